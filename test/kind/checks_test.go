// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fakes are programs in the place of docker, kind and what is in bin. They print what the real ones do, and write down how they
// were called.
type fakes struct {
	repository string
	// before are cases of a shell script for each program, which win over what is here.
	before map[string]string
}

var usual = map[string]string{
	"docker": `
"version "*) echo 28.2.2;;
"info "*) echo '{"MemTotal":16777216000,"SecurityOptions":["name=seccomp,profile=builtin","name=cgroupns"]}';;
"ps "*) echo registry;;
"network ls "*) echo kind;;
"run --rm --entrypoint=cat kindest/node:"*) echo v1.36.3;;
"run --rm "*) echo "docker: Error response from daemon: pull access denied." >&2; exit 125;;`,
	"kind": `
"get clusters") echo 'No kind clusters found.' >&2;;
"get kubeconfig "*) echo 'kind: Config';;`,
	"kubelet": `
"--version") echo 'Kubernetes v1.36.3';;`,
	"kubectl": `
"get crd "*) echo customresourcedefinition.apiextensions.k8s.io/certificates.cert-manager.io;;
"get nodes "*) ;;
"version "*) echo '{"serverVersion": {"gitVersion": "v1.37.0"}}';;`,
	"helm": "",
}

func newFakes(t *testing.T, before map[string]string) *fakes {
	t.Helper()
	f := &fakes{repository: t.TempDir(), before: before}
	for _, program := range built {
		writeFile(t, filepath.Join(f.repository, "bin", program), "")
	}
	path := filepath.Join(f.repository, "path")
	t.Setenv("PATH", path+":/usr/bin:/bin")
	for program, cases := range usual {
		dir := filepath.Join(f.repository, "bin")
		if program == "docker" {
			dir = path
		}
		writeFile(t, filepath.Join(dir, program), "#!/bin/sh\nprintf '%s\\n' \""+program+" $*\" >>"+f.calls()+
			"\ncase \"$*\" in"+before[program]+cases+
			"\n*) echo \"the fake does not know $*\" >&2; exit 1;;\nesac\n")
	}
	return f
}

func (f *fakes) calls() string { return filepath.Join(f.repository, "calls") }

func (f *fakes) config() Config {
	return Config{
		Repository: f.repository, Dir: filepath.Join(f.repository, ".kind"), Kind: filepath.Join(f.repository, "bin", "kind"),
		IPFamily: "ipv4", Out: &bytes.Buffer{},
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}

// readOnly are calls that make nothing.
var readOnly = regexp.MustCompile(`^(docker (version|info|ps|network ls|run --rm --entrypoint=cat)|` +
	`kind get|kubectl (get|version)|kubelet --version)\b`)

func TestUpChecksFirst(t *testing.T) {
	cases := map[string]struct {
		reason string
		fakes  map[string]string
		// remove is a file that is not there, below the repository.
		remove string
		config func(*Config)
		want   string
	}{
		"NoDocker": {reason: "the first thing to install", remove: "path/docker",
			want: "the command docker is not in PATH: install Docker, and start its daemon"},
		"NoDaemon": {reason: "what docker says of its daemon is one line, with the address that it has tried",
			fakes: map[string]string{"docker": `
"version "*) echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1;;`},
			want: "docker version has failed, exit status 1: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. " +
				"Is the docker daemon running?"},
		"NoPermission": {reason: "a user who is not in the group docker",
			fakes: map[string]string{"docker": `
"version "*) echo "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock" >&2; exit 1;;`},
			want: "docker version has failed, exit status 1: permission denied while trying to connect to the Docker daemon socket at " +
				"unix:///var/run/docker.sock"},
		"DaemonHangs": {reason: "a daemon that accepts connections and does not answer is not waited for",
			fakes: map[string]string{"docker": "\n\"version \"*) exec sleep 600;;"},
			want:  "running docker version, its daemon has not answered for 100ms: restart it"},
		"LittleMemory": {reason: "what is there, and what is needed", fakes: map[string]string{"docker": `
"info "*) echo '{"MemTotal":2061729792,"SecurityOptions":[]}';;`},
			want: "there are 1.9 GiB of memory for Docker, and an environment needs 6 GiB: give it more"},
		"Rootless": {reason: "servers that are containers need root", fakes: map[string]string{"docker": `
"info "*) echo '{"MemTotal":16777216000,"SecurityOptions":["name=seccomp,profile=builtin","name=rootless","name=cgroupns"]}';;`},
			want: "the daemon of Docker is rootless, and servers that boot as containers need one that runs as root"},
		"NoKind": {reason: "kind is one of the programs that are built", remove: "bin/kind",
			want: "there is no DIR/bin/kind: `make kind-up` builds it"},
		"NoImages": {reason: "which target of make builds it", remove: "bin/images/webhook.tar",
			want: "there is no DIR/bin/images/webhook.tar: `make kind-up` builds it"},
		"NoServerImage": {reason: "which target of make builds it", remove: "bin/server-image/.layer",
			want: "there is no DIR/bin/server-image/.layer: `make kind-up` builds it"},
		"NoIronic": {reason: "which target of make builds it", remove: "bin/ironic/ironic",
			want: "there is no DIR/bin/ironic/ironic: `make kind-up` builds it"},
		"ClusterThere": {reason: "a cluster of another checkout, or of the user, stays as it is",
			fakes: map[string]string{"kind": "\n\"get clusters\") echo kind; echo metal3-tenant;;"},
			want: "the kind cluster metal3-tenant is there already, and not of this checkout: delete it by `kind delete cluster --name " +
				"metal3-tenant`, or take it by KIND_TENANT=metal3-tenant"},
		"NoCluster": {reason: "a cluster to take is not created", config: func(c *Config) { c.Management = "mine" },
			fakes: map[string]string{"kind": "\n\"get clusters\") echo kind; echo other;;"},
			want: "there is no kind cluster mine, which is to be the management cluster: create it by `kind create cluster --name mine`, or " +
				"leave KIND_MANAGEMENT unset"},
		"OneCluster": {reason: "one for both is not supported", config: func(c *Config) { c.Management, c.Tenant = "mine", "mine" },
			want: "management and tenant are both the cluster mine: they must be two"},
		"ClusterInUse": {reason: "down deletes Metal3, and must not delete the user's", config: func(c *Config) { c.Management = "mine" },
			fakes: map[string]string{"kind": "\n\"get clusters\") echo mine;;",
				"kubectl": "\n\"get crd \"*) echo customresourcedefinition.apiextensions.k8s.io/baremetalhosts.metal3.io;;"},
			want: "the kind cluster mine has customresourcedefinition.apiextensions.k8s.io/baremetalhosts.metal3.io already, which is deleted " +
				"with an environment: take a cluster without Metal3 and Karpenter"},
		"TenantWithWorkers": {reason: "pods would run without a server", config: func(c *Config) { c.Tenant = "mine" },
			fakes: map[string]string{"kind": "\n\"get clusters\") echo mine;;", "kubectl": "\n\"get nodes \"*) echo node/mine-worker;;"},
			want: "the kind cluster mine has nodes for pods, which then need no servers: take a tenant cluster that has control-plane nodes " +
				"only"},
		"TenantTooOld": {reason: "no server could join", config: func(c *Config) { c.Tenant = "mine" },
			fakes: map[string]string{"kind": "\n\"get clusters\") echo mine;;",
				"kubectl": "\n\"version \"*) echo '{\"serverVersion\": {\"gitVersion\": \"v1.35.9\"}}';;"},
			want: "the kind cluster mine has Kubernetes v1.35.9, and the servers' kubelet is v1.36.3, which must not be newer: take a node " +
				"image of v1.36 or later"},
		"ImageTooOld": {reason: "a node image is asked before a cluster is made of it", config: func(c *Config) { c.Image = "kindest/node:old" },
			fakes: map[string]string{"docker": "\n\"run --rm --entrypoint=cat \"*) echo v1.34.0;;"},
			want: "the node image kindest/node:old has Kubernetes v1.34.0, and the servers' kubelet is v1.36.3, which must not be newer: take a " +
				"node image of v1.36 or later"},
		"NoImage": {reason: "an image that cannot be pulled", config: func(c *Config) { c.Image = "example.com/none:1" },
			want: "example.com/none:1 is no node image of kind, docker run has failed, exit status 125: docker: Error response from daemon: " +
				"pull access denied."},
		"ContainerThere": {reason: "a container of the same name, running or not", fakes: map[string]string{"docker": `
"ps "*) echo registry; echo metal3-management-rack;;`},
			want: "there is a container metal3-management-rack already, and not of this checkout: remove it by `docker rm -f -v " +
				"metal3-management-rack`"},
		"NoDriver": {reason: "servers would boot without the image of the driver", config: func(c *Config) { c.DRADriver = true },
			want: "there is no DIR/bin/dra-example-kubeletplugin: `make dra-tools` builds it"},
		"DriverOfTaken": {reason: "what is ours must not stay in a cluster that was taken",
			config: func(c *Config) { c.DRADriver, c.Tenant = true, "mine" },
			want:   "the DRA driver would stay in the kind cluster mine: leave KIND_TENANT unset"},
		"NoFamily": {reason: "kind would say so after pulling its image", config: func(c *Config) { c.IPFamily = "ipv5" },
			want: `the IP family is "ipv5": it must be one of ipv4, dual, ipv6`},
	}
	before := answerTimeout
	t.Cleanup(func() { answerTimeout = before })
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t, tc.fakes)
			config := f.config()
			if tc.config != nil {
				tc.config(&config)
			}
			if tc.remove != "" {
				if err := os.Remove(filepath.Join(f.repository, tc.remove)); err != nil {
					t.Fatal(err)
				}
			}
			answerTimeout = before
			if name == "DaemonHangs" {
				answerTimeout = 100 * time.Millisecond
			}
			_, err := New(config).Up(t.Context())
			if err == nil {
				t.Fatalf("%s\nup has worked", tc.reason)
			}
			got := strings.ReplaceAll(err.Error(), f.repository, "DIR")
			// Where the output is, is said of programs that fail.
			got, _, _ = strings.Cut(got, " (all of its output is in ")
			if got != tc.want {
				t.Errorf("%s\nthe error is\n%s\nwant\n%s", tc.reason, got, tc.want)
			}
			f.madeNothing(t)
		})
	}
}

// madeNothing checks how the fakes were called, and that no environment is written down.
func (f *fakes) madeNothing(t *testing.T) {
	t.Helper()
	calls, _ := os.ReadFile(f.calls())
	for call := range strings.Lines(string(calls)) {
		if !readOnly.MatchString(call) {
			t.Errorf("this may have made something: %s", call)
		}
	}
	if _, err := os.Stat(filepath.Join(f.repository, ".kind", "state.json")); !os.IsNotExist(err) {
		t.Errorf("an environment is written down: %v", err)
	}
}

func TestDownNothing(t *testing.T) {
	f := newFakes(t, nil)
	for range 2 {
		if found, err := New(f.config()).Down(t.Context(), false); err != nil || found {
			t.Fatalf("where nothing is, down finds something: %t, %v", found, err)
		}
	}
	f.madeNothing(t)
}

// An environment that cannot be made is deleted again, and so is one that was killed while it was made.
func TestUpFailsCleanly(t *testing.T) {
	f := newFakes(t, map[string]string{"kind": `
"create cluster --name=metal3-management "*) touch "${0%/bin/kind}/network";;
"create cluster --name=metal3-tenant "*) echo "Preparing nodes" >&2; echo "ERROR: failed to create cluster: no space left" >&2; exit 1;;
"load image-archive "*|"delete cluster "*) ;;`, "docker": `
"network ls "*) if [ -e "${0%/path/docker}/network" ]; then echo kind; fi;;
"network inspect "*) echo 0;;
"network rm "*) rm "${0%/path/docker}/network";;
"rm "*) ;;
"logs "*) echo "no such container" >&2; exit 1;;`})
	_, err := New(f.config()).Up(t.Context())
	const why = "kind create cluster has failed, exit status 1: ERROR: failed to create cluster: no space left ("
	if err == nil || !strings.HasPrefix(err.Error(), why) {
		t.Errorf("the error is %v", err)
	}
	f.deleted(t)

	// As if the process had been killed.
	kept := f.config()
	kept.Keep = true
	const still = "; what was made is still there, and `make kind-down` deletes it"
	if _, err = New(kept).Up(t.Context()); err == nil || !strings.HasSuffix(err.Error(), still) {
		t.Errorf("the error is %v", err)
	}
	if err := os.Remove(f.calls()); err != nil {
		t.Fatal(err)
	}
	if found, err := New(f.config()).Down(t.Context(), false); err != nil || !found {
		t.Errorf("down finds something: %t, %v", found, err)
	}
	f.deleted(t)
}

// deleted checks that all that an Up makes was deleted.
func (f *fakes) deleted(t *testing.T) {
	t.Helper()
	calls, err := os.ReadFile(f.calls())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"docker rm --force --volumes metal3-management-metal3", "docker rm --force --volumes metal3-management-rack", "docker network rm kind",
		"kind delete cluster --name=metal3-management", "kind delete cluster --name=metal3-tenant",
	} {
		if !strings.Contains(string(calls), want) {
			t.Errorf("%q was not called:\n%s", want, calls)
		}
	}
	entries, err := os.ReadDir(filepath.Join(f.repository, ".kind"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != "lock" && name != "logs" {
			t.Errorf("%s is left", name)
		}
	}
}

func TestUpTwice(t *testing.T) {
	f := newFakes(t, map[string]string{"docker": `
"ps "*) echo metal3-management-metal3; echo metal3-management-rack; echo metal3-management-control-plane; echo metal3-tenant-control-plane;;`})
	w := New(f.config())
	w.state = f.config().wanted()
	w.state.Network, w.state.Rack, w.state.Ready = true, "http://127.0.0.1:1", true
	writeFile(t, filepath.Join(f.repository, ".kind", "lock"), "")
	if err := w.save(); err != nil {
		t.Fatal(err)
	}
	if made, err := New(f.config()).Up(t.Context()); err != nil || made {
		t.Errorf("up makes an environment that is there: %t, %v", made, err)
	}
	other := f.config()
	other.IPFamily = "ipv6"
	if _, err := New(other).Up(t.Context()); err == nil || !strings.Contains(err.Error(), "has other settings") {
		t.Errorf("an environment with other settings gives %v", err)
	}
}

// A cluster that was taken stays, without what is ours, and with what kind has in it.
func TestDownCleansTaken(t *testing.T) {
	f := newFakes(t, map[string]string{"kind": "\n\"get clusters\") echo hosts; echo mine;;", "docker": "\n\"rm \"*) ;;",
		"helm": "\n\"uninstall \"*) ;;", "kubectl": `
"get crd "*) echo customresourcedefinition.apiextensions.k8s.io/certificates.cert-manager.io
	echo customresourcedefinition.apiextensions.k8s.io/nodeclaims.karpenter.sh;;
"get nodeclaims.karpenter.sh "*) echo /default-abc;;
"get nodes "*) ;;
"get secrets "*) echo metal3-system/server-01-bmc;;
"get configmap kubelet-config "*) printf 'a: b\ncgroupRoot: ""\nfailSwapOn: false';;
"get configmap cluster-info "*) printf '    server: https://172.18.0.3:6443\n  name: ""';;
"get daemonsets "*) echo daemonset.apps/kube-proxy;;
"delete "*|"patch "*) ;;
"taint "*) echo 'error: taint "node-role.kubernetes.io/control-plane:NoSchedule" not found' >&2; exit 1;;`})
	config := f.config()
	config.Management, config.Tenant = "hosts", "mine"
	w := New(config)
	w.state = config.wanted()
	writeFile(t, filepath.Join(f.repository, ".kind", "lock"), "")
	if err := os.Mkdir(filepath.Join(f.repository, ".kind", "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.save(); err != nil {
		t.Fatal(err)
	}
	if found, err := New(config).Down(t.Context(), false); err != nil || !found {
		t.Fatalf("down finds something: %t, %v", found, err)
	}
	content, err := os.ReadFile(f.calls())
	if err != nil {
		t.Fatal(err)
	}
	calls := string(content)
	for _, want := range []string{
		"uninstall tenant-a --namespace=tenant-a", "uninstall karpenter-metal3 ", "delete nodeclaims.karpenter.sh default-abc ",
		`patch nodeclaims.karpenter.sh default-abc --namespace= --type=merge --patch={"metadata": {"finalizers": null}}`,
		`patch secrets server-01-bmc --namespace=metal3-system --type=merge --patch={"metadata": {"finalizers": null}}`,
		"delete crd nodeclaims.karpenter.sh", "delete namespace tenant-a karpenter-metal3 metal3-system",
		`--patch={"data":{"kubelet":"a: b\ncgroupRoot: /kubelet\nfailSwapOn: false\n"}}`,
		"server: https://mine-control-plane:6443\\n", `"node-role.kubernetes.io/control-plane": null`,
	} {
		if !strings.Contains(calls, want) {
			t.Errorf("%q was not called:\n%s", want, calls)
		}
	}
	for _, not := range []string{"delete cluster", "cert-manager.io", "network rm"} {
		if strings.Contains(calls, not) {
			t.Errorf("%q was called:\n%s", not, calls)
		}
	}
}
