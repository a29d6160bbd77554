// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/md5"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// image is a made-up operating system image: a directory for a root, and programs that write down how they are run.
type image struct {
	*testing.T
	root, programs, journal string
}

func newImage(t *testing.T, programs ...string) *image {
	i := &image{T: t, root: t.TempDir(), programs: t.TempDir()}
	i.journal = filepath.Join(i.programs, "journal")
	for _, name := range []string{"sh", "cat", "mkdir", "wc", "tr", "sed", "awk", "grep", "mktemp", "rm", "chmod", "md5sum"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(i.programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs {
		i.program(name, "")
	}
	i.write("/proc/swaps", "Filename Type Size Used Priority\n")
	return i
}

// program adds a program that writes its arguments to the journal and then does what the script says.
func (i *image) program(name, script string) {
	i.Helper()
	text := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\n%s\n", name, i.journal, script)
	path := filepath.Join(i.programs, name)
	// It can be a link to a program of this machine, which must not be written.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		i.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		i.Fatal(err)
	}
}

func (i *image) write(path, content string) {
	i.Helper()
	path = filepath.Join(i.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		i.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		i.Fatal(err)
	}
}

// read returns the content of a file, empty if it is not there.
func (i *image) read(path string) string {
	content, _ := os.ReadFile(filepath.Join(i.root, path))
	return string(content)
}

// run runs one of our scripts and returns what programs it has run.
func (i *image) run(script string, args ...string) ([]string, string, error) {
	i.Helper()
	command := exec.CommandContext(i.Context(), "/bin/sh", append([]string{file(i.T, "script.sh", []byte(script))}, args...)...)
	command.Env = []string{"PATH=" + i.programs, "NODE_ROOT=" + i.root, "TMPDIR=" + i.TempDir()}
	out, err := command.CombinedOutput()
	journal, _ := os.ReadFile(i.journal)
	return strings.Split(strings.TrimSpace(string(journal)), "\n"), string(out), err
}

func (i *image) prepared() {
	for _, path := range []string{"/sys/module/overlay/x", "/sys/module/br_netfilter/x"} {
		i.write(path, "")
	}
	for _, path := range []string{"ipv4/ip_forward", "bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"} {
		i.write("/proc/sys/net/"+path, "1\n")
	}
	i.write("/etc/containerd/config.toml", "version = 2\n")
}

// TestScriptsParse asks the shells that servers have. "sh" is one or the other, and what only one of them reads, such as
// an array, would be found out at the first boot of a server.
func TestScriptsParse(t *testing.T) {
	scripts := map[string]string{"prepare-node.sh": prepareScript, "vcluster-join.sh": vclusterScript, "use-mirrors.sh": useMirrorsScript}
	shells := map[string][]string{"bash": {"--posix", "-n"}, "dash": {"-n"}}
	for shell, options := range shells {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("there is no %s here", shell)
			}
			parse := func(script string) (string, error) {
				out, err := exec.CommandContext(t.Context(), path, append(options, file(t, "script.sh", []byte(script)))...).CombinedOutput()
				return string(out), err
			}
			for name, script := range scripts {
				if out, err := parse(script); err != nil {
					t.Errorf("%s does not read %s: %v\n%s", shell, name, err, out)
				}
			}
			if _, err := parse("if true; then\n"); err == nil {
				t.Errorf("%s reads anything", shell)
			}
		})
	}
}

func TestPrepareNode(t *testing.T) {
	all := []string{"systemctl", "modprobe", "sysctl", "swapoff", "containerd", "kubelet", "kubeadm", "apt-get"}
	t.Run("Ready", func(t *testing.T) {
		image := newImage(t, all...)
		image.prepared()
		got, out, err := image.run(prepareScript, "v1.35")
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		want := []string{"systemctl enable --now containerd", "containerd config dump", "systemctl enable kubelet"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what the image has is left as it is, and nothing is installed (-want +got):\n%s", diff)
		}
		if image.read("/etc/containerd/config.toml") != "version = 2\n" {
			t.Error("the configuration of the image was changed")
		}
	})
	t.Run("CRIO", func(t *testing.T) {
		image := newImage(t, append(all, "crio")...)
		image.prepared()
		if got, out, err := image.run(prepareScript); err != nil || !slices.Contains(got, "systemctl enable --now crio") ||
			strings.Contains(strings.Join(got, " "), "containerd") {
			t.Errorf("an image with CRI-O needs no containerd: %q, %v\n%s", got, err, out)
		}
	})
	t.Run("Bare", func(t *testing.T) {
		image := newImage(t, "systemctl", "modprobe", "sysctl", "swapoff", "curl")
		image.write("/proc/swaps", "Filename Type Size Used Priority\n/swap file 1 0 -2\n")
		image.program("apt-get", "for p in \"$@\"; do case $p in containerd) printf '#!/bin/sh\\necho SystemdCgroup = false\\n' >"+image.programs+
			"/containerd; /bin/chmod +x "+image.programs+"/containerd;; esac; done")
		got, out, err := image.run(prepareScript, "v1.35")
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		want := []string{"modprobe overlay", "modprobe br_netfilter", "sysctl -w net.ipv4.ip_forward=1", "swapoff -a",
			"systemctl mask swap.target",
			"apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends containerd", "systemctl restart containerd",
			"apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends kubelet kubeadm"}
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("a bare image needs %q; got %q", line, got)
			}
		}
		for path, content := range map[string]string{
			"/etc/containerd/config.toml":              "SystemdCgroup = true\n",
			"/etc/modules-load.d/kubernetes-node.conf": "overlay\nbr_netfilter\n",
			"/etc/sysctl.d/90-kubernetes-node.conf": "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = " +
				"1\nnet.bridge.bridge-nf-call-ip6tables = 1\n",
			"/etc/apt/sources.list.d/kubernetes.list": "deb [signed-by=/etc/apt/keyrings/kubernetes.asc] " +
				"https://pkgs.k8s.io/core:/stable:/v1.35/deb/ /\n",
		} {
			if diff := cmp.Diff(content, image.read(path)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	})
	t.Run("Mirrored", func(t *testing.T) {
		const mirror = "https://mirror.example.com/kubernetes/core:/stable:/v1.35/"
		for manager, file := range map[string]string{
			"apt-get": "/etc/apt/sources.list.d/kubernetes.list", "dnf": "/etc/yum.repos.d/kubernetes.repo",
		} {
			image := newImage(t, "systemctl", "containerd", "curl", manager)
			image.prepared()
			image.write(mirrorsSedPath, packagesSed(mirrorOf("pkgs.k8s.io", "https://mirror.example.com/kubernetes")))
			got, out, err := image.run(prepareScript, "v1.35")
			if err != nil {
				t.Fatalf("%s: %v\n%s", manager, err, out)
			}
			if fetched := strings.Join(got, "\n") + image.read(file); !strings.Contains(fetched, mirror) || strings.Contains(fetched, "//pkgs.") {
				t.Errorf("%s: not all of Kubernetes comes from the mirror:\n%s", manager, fetched)
			}
		}
	})
	t.Run("NoPackage", func(t *testing.T) {
		image := newImage(t, "systemctl")
		image.prepared()
		image.program("dnf", "exit 1") // as where no repository has containerd
		if _, out, err := image.run(prepareScript, "v1.35"); err == nil ||
			!strings.Contains(out, "error: dnf cannot install containerd: its repositories lack it") {
			t.Errorf("it says what is missing: %v\n%s", err, out)
		}
	})
	t.Run("IPv6", func(t *testing.T) {
		image := newImage(t, all...)
		image.prepared()
		for path, value := range map[string]string{"all/forwarding": "0", "default/forwarding": "0", "all/accept_ra": "1",
			"default/accept_ra": "1", "lo/accept_ra": "1", "eth0/accept_ra": "0", "eth1.100/accept_ra": "1"} {
			image.write("/proc/sys/net/ipv6/conf/"+path, value+"\n")
		}
		got, out, err := image.run(prepareScript, "--ipv6", "v1.35")
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		want := []string{"sysctl -w net.ipv6.conf.eth1/100.accept_ra=2", "sysctl -w net.ipv6.conf.all.forwarding=1",
			"sysctl -w net.ipv6.conf.default.forwarding=1"}
		got = slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, "sysctl") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kubeadm joins by IPv6 only with forwarding, and routes of router advertisements stay (-want +got):\n%s", diff)
		}
		if got := image.read("/etc/sysctl.d/90-kubernetes-node.conf"); got != "net.ipv6.conf.eth1/100.accept_ra = 2\n"+
			"net.ipv6.conf.all.forwarding = 1\nnet.ipv6.conf.default.forwarding = 1\n" {
			t.Errorf("the settings are gone after a reboot: %q", got)
		}
	})
	t.Run("DockersContainerd", func(t *testing.T) {
		image := newImage(t, all...)
		image.prepared()
		image.program("containerd", "echo SystemdCgroup = false")
		image.write("/etc/containerd/config.toml", "disabled_plugins = [\"cri\"]\n")
		if got, out, err := image.run(prepareScript); err != nil || image.read("/etc/containerd/config.toml") != "SystemdCgroup = true\n" ||
			!slices.Contains(got, "systemctl restart containerd") {
			t.Errorf("kubelet could not talk to it: %q, %v\n%s", got, err, out)
		}
	})
	t.Run("NoVersion", func(t *testing.T) {
		image := newImage(t, "systemctl", "containerd", "apt-get")
		image.prepared()
		if _, out, err := image.run(prepareScript); err == nil ||
			!strings.Contains(out, "error: the image lacks kubelet kubeadm, and the version to install is not known") {
			t.Errorf("it says what is missing: %v\n%s", err, out)
		}
	})
	t.Run("NoManager", func(t *testing.T) {
		image := newImage(t, "systemctl")
		image.prepared()
		if _, out, err := image.run(prepareScript, "v1.35"); err == nil ||
			!strings.Contains(out, "has no apt-get, dnf or yum to install it with") {
			t.Errorf("it says what is missing: %v\n%s", err, out)
		}
	})
}

// Configurations as containerd prints and as packages bring them, without the parts that the script does not look at.
const (
	default16 = `version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    restrict_oom_score_adj = false
    systemd_cgroup = false
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/opt/cni/bin"
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = ""
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      ShimCgroup = ""
      SystemdCgroup = false
`
	default17 = `version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
    enable_cdi = false
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/opt/cni/bin"
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = ""
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      ShimCgroup = ""
      SystemdCgroup = false
`
	default2 = `version = 4

[plugins]
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = ''
  [plugins.'io.containerd.cri.v1.runtime']
    restrict_oom_score_adj = false
    enable_cdi = true
    cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      ShimCgroup = ''
      SystemdCgroup = false
    [plugins.'io.containerd.cri.v1.runtime'.cni]
      bin_dir = ''
      bin_dirs = ['/opt/cni/bin']
  [plugins.'io.containerd.nri.v1.nri']
    plugin_config_path = '/etc/nri/conf.d'
`
	debians = `version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
`
	operators = "version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"registry.example.com/pause:3.10\"\n"
)

// A kubelet of kubeadm's uses systemd's control groups, and gives the devices of DRA drivers to containerd as names of CDI.
func TestPrepareNodeConfiguresContainerd(t *testing.T) {
	const noCDI, noMirrors = "warning: CDI is off", "warning: mirrors of registries are not used"
	configured := strings.NewReplacer("SystemdCgroup = false", "SystemdCgroup = true", "enable_cdi = false", "enable_cdi = true",
		" config_path = ''", ` config_path = "/etc/containerd/certs.d"`, ` config_path = ""`, ` config_path = "/etc/containerd/certs.d"`).Replace
	// What dpkg says of the package's configuration: the path, and the MD5 of what the package brought.
	conffiles := func(text string) string {
		return fmt.Sprintf("\n /etc/default/other 0123456789abcdef0123456789abcdef\n /etc/containerd/config.toml %x\n", md5.Sum([]byte(text)))
	}
	cases := map[string]struct {
		reason                   string
		defaults, file, packages string
		// effective is what containerd runs with; it fills in its defaults. Empty: the file.
		effective string
		want      string
		wantCDI   bool
		// mirrored is whether there are mirrors of registries.
		mirrored, unused bool
	}{
		"Missing17": {reason: "1.7 has CDI, and does not turn it on", defaults: default17, want: configured(default17), wantCDI: true},
		"Missing2":  {reason: "2.x turns it on", defaults: default2, want: configured(default2), wantCDI: true},
		"Missing16": {reason: "1.6 has none, and a container would silently get no device", defaults: default16, want: configured(default16)},
		"Debians17": {reason: "the package's file leaves the cgroup driver, CDI and the directory of CNI plugins as kubelet cannot use them",
			defaults: default17, file: debians, packages: conffiles(debians), want: configured(default17), wantCDI: true},
		"Debians2": {reason: "the same file under 2.x",
			defaults: default2, file: debians, packages: conffiles(debians), want: configured(default2), wantCDI: true},
		"Changed": {reason: "an operator has changed the package's file",
			defaults: default17, file: debians + "# ours\n", packages: conffiles(debians), want: debians + "# ours\n"},
		"Operators17": {reason: "an operator's file stays, and the warning says what it lacks",
			defaults: default17, file: operators, packages: conffiles(debians), effective: default17, want: operators},
		"Operators2": {reason: "an operator's file stays, and 2.x has CDI on without a line for it",
			defaults: default2, file: operators, packages: conffiles(debians), effective: default2, want: operators, wantCDI: true},
		"Mirrors": {reason: "our file has containerd look for them",
			defaults: default2, want: configured(default2), wantCDI: true, mirrored: true},
		"OperatorsMirrors": {reason: "an operator's file stays, and the warning says what it lacks",
			defaults: default2, file: operators, effective: default2, want: operators, wantCDI: true, mirrored: true, unused: true},
		"OperatorsCDI": {reason: "an operator's file that turns it on",
			defaults: default17, file: configured(default17) + "# ours\n", want: configured(default17) + "# ours\n", wantCDI: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			image := newImage(t, "systemctl", "kubelet", "kubeadm")
			image.prepared()
			image.write("/etc/containerd/config.toml", tc.file)
			effective := filepath.Join(image.root, "/etc/containerd/config.toml")
			if tc.effective != "" {
				effective = file(t, "effective.toml", []byte(tc.effective))
			}
			if tc.mirrored {
				image.write("/etc/containerd/certs.d/registry.k8s.io/hosts.toml", "")
			}
			image.program("containerd", fmt.Sprintf("case \"$2\" in default) cat %s ;; dump) cat %s ;; esac",
				file(t, "default.toml", []byte(tc.defaults)), effective))
			if tc.packages != "" {
				image.program("dpkg-query", "cat "+file(t, "conffiles", []byte(tc.packages)))
			}
			got, out, err := image.run(prepareScript, "v1.36")
			if err != nil {
				t.Fatalf("%s: %v:\n%s", tc.reason, err, out)
			}
			if diff := cmp.Diff(tc.want, image.read("/etc/containerd/config.toml")); diff != "" {
				t.Errorf("%s, -want +got:\n%s", tc.reason, diff)
			}
			if restarted := slices.Contains(got, "systemctl restart containerd"); restarted != (tc.want != tc.file) {
				t.Errorf("%s: containerd restarted: %v", tc.reason, restarted)
			}
			if strings.Contains(out, noCDI) == tc.wantCDI {
				t.Errorf("%s: want a warning: %v, it says\n%s", tc.reason, !tc.wantCDI, out)
			}
			if strings.Contains(out, noMirrors) != tc.unused {
				t.Errorf("%s: want a warning about mirrors: %v, it says\n%s", tc.reason, tc.unused, out)
			}
		})
	}
}

func TestVClusterJoinScript(t *testing.T) {
	image := newImage(t, "sleep")
	// The tenant is not ready the first time.
	tried := filepath.Join(image.root, "tried")
	image.program("curl", "[ -e "+tried+" ] || { : >"+tried+"; exit 22; }\nwhile [ $# -gt 1 ]; do if [ \"$1\" = --output ]; then echo joined "+
		"--now >\"$2\"; fi; shift; done")
	image.program("joined", "")
	image.write("/request", "url = \"https://10.0.0.1:6443/node/join?token=abcdef.0123456789abcdef\"\n")
	got, out, err := image.run(vclusterScript, filepath.Join(image.root, "request"), "/ca.crt")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if len(got) != 4 || got[1] != "sleep 5" || got[3] != "joined --now" || !strings.Contains(got[0], "--cacert /ca.crt --config "+image.root) {
		t.Errorf("it tries until the script is there, checks the tenant's certificate, and runs it: %q", got)
	}
	if strings.Contains(strings.Join(got, " "), "abcdef") {
		t.Errorf("the token is in the list of processes: %q", got)
	}
	if image.read("/request") != "" {
		t.Error("the token is left on the disk")
	}
}
