// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// backupPage runs on a sandbox of its own, because its management cluster is lost.
const backupPage = "docs/backup.md"

// lossyCluster is a shell with a sandbox whose management cluster can be lost.
type lossyCluster struct {
	*shell
	box *sandbox.Sandbox
	bin string
	// server of each pod when the cluster was lost, and the Machine that has it.
	servers, machines map[string]string
}

// stops are the marks on the page at which the test does something that is not a command, in their order.
func (l *lossyCluster) stops() []stop {
	return []stop{
		{"time goes by, and the cluster is lost", l.changeSinceBackup},
		{"etcd and an API server that only you reach", l.startPrivateAPIServer},
		{"the API server is opened", l.openAPIServer},
		{"our programs run again", l.startOurs},
		{"they are registered again", l.registerAgain},
		{"the owner has decided", l.claimForOther},
		{"the cluster is lost, and there is another", l.replaceEtcd},
		{"Metal3 and our manager are installed", l.install},
		{"what was compared fits, and the hosts are unpaused", l.unpause},
	}
}

type stop struct {
	name string
	do   func(*testing.T)
}

var mark = regexp.MustCompile(`(?m)^<!-- test: (.+) -->$`)

// TestBackup runs the page, and loses the cluster at its marks.
func TestBackup(t *testing.T) {
	system.Only(t)
	l := newLossyCluster(t)
	content := read(t, backupPage)
	stops := l.stops()
	if found := len(mark.FindAllString(content, -1)); found != len(stops) {
		t.Fatalf("%s has %d marks, want %d", backupPage, found, len(stops))
	}
	line := 0
	for n, text := range mark.Split(content, -1) {
		for _, block := range page.Blocks(text) {
			placement := fmt.Sprintf("%s:%d", backupPage, line+block.Line)
			switch {
			case block.NotRun != "":
				t.Logf("%s: not run: %s", placement, block.NotRun)
			case block.HasCommands():
				all, err := steps(block)
				if err != nil {
					t.Fatalf("%s: %v", placement, err)
				}
				for _, step := range all {
					l.run(t, placement, step)
				}
			}
		}
		line += strings.Count(text, "\n")
		if n < len(stops) {
			if name := mark.FindAllStringSubmatch(content, -1)[n][1]; name != stops[n].name {
				t.Fatalf("mark %d of %s is %q, want %q", n+1, backupPage, name, stops[n].name)
			}
			t.Log(stops[n].name)
			stops[n].do(t)
		}
	}
}

func newLossyCluster(t *testing.T) *lossyCluster {
	t.Helper()
	bin := absolute(t, root("bin"))
	servers, err := fleet.Load("backup-fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l := &lossyCluster{shell: &shell{dir: t.TempDir()}, bin: bin, servers: map[string]string{}, machines: map[string]string{}}
	l.box, err = sandbox.Up(t.Context(), sandbox.Config{
		Dir: filepath.Join(t.TempDir(), "sandbox"), Binaries: cluster.Binaries{bin}, Fleet: servers, Tenant: "acme", ManagementEtcd: true,
	})
	if err != nil {
		t.Fatalf("starting a sandbox (run `make tools build` first), %v", err)
	}
	t.Cleanup(l.box.Close)
	kubeconfigs, etcd := l.box.Kubeconfigs(), l.box.ManagementEtcd()
	if err := os.Symlink(kubeconfigs.Tenant, filepath.Join(l.dir, "acme-admin.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	l.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+l.dir, "KUBECONFIG="+kubeconfigs.Management,
		"ETCDCTL_ENDPOINTS="+etcd.URL, "ETCDCTL_CACERT="+etcd.CAFile, "ETCDCTL_CERT="+etcd.CertFile, "ETCDCTL_KEY="+etcd.CertKey)
	for _, block := range blocks(t, "docs/first-server.md") {
		if name, ok := strings.CutPrefix(block.Lines[0], "# "); ok && block.Language == "yaml" &&
			(name == "provider.yaml" || name == "pool.yaml") {
			if err := os.WriteFile(filepath.Join(l.dir, name), []byte(block.Text()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.do(t, "kubectl -n acme create secret generic acme-kubeconfig --from-file=kubeconfig=acme-admin.kubeconfig")
	t.Cleanup(func() { l.diagnose(t) })
	// Metal3 takes the annotation off that says what it would find out about them.
	l.do(t, "kubectl get secrets,baremetalhosts -n metal3-system -o yaml | "+
		"sed -e '/^    ownerReferences:/,/^      uid:/d' -e '/^    uid:/d' -e '/^    resourceVersion:/d' | "+
		"kubectl annotate --local -f - inspect.metal3.io/hardwaredetails='"+details+"' -o yaml >registered.yaml")
	l.addOthers(t)
	l.do(t, "kubectl apply -f provider.yaml && kubectl --kubeconfig acme-admin.kubeconfig apply -f pool.yaml")
	l.pod(t, "stays")
	l.pod(t, "goes")
	return l
}

// others are hosts that Cluster API has or will have. One was paused by it.
const others = `
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: server-05, namespace: capm3, annotations: {baremetalhost.metal3.io/paused: metal3.io/capm3}}
spec:
  online: true
  consumerRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: Metal3Machine, namespace: capm3, name: worker-5}
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: server-06, namespace: capm3}
spec: {online: true}
`

// addOthers makes what the page has to leave alone, and Helm's records of releases, which it must not restore.
func (l *lossyCluster) addOthers(t *testing.T) {
	t.Helper()
	l.do(t, "kubectl create namespace capm3 && kubectl create -f - <<'EOF'"+others+"EOF")
	l.node(t, "worker-5", "metal3://capm3/server-05/worker-5")
	l.node(t, "by-hand", "")
	for _, namespace := range []string{"metal3-system", "acme"} {
		l.do(t, "kubectl -n "+namespace+" create secret generic sh.helm.release.v1.acme.v1 --type=helm.sh/release.v1")
	}
}

// node creates a Node that Karpenter has not made.
func (l *lossyCluster) node(t *testing.T, name, providerID string) {
	t.Helper()
	l.do(t, `echo '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+name+`"}, "spec": {"providerID": "`+providerID+`"}}' | `+
		"kubectl --kubeconfig acme-admin.kubeconfig create -f -")
}

// checkOthers fails if a host of Cluster API is not as it was, or a node is gone that Karpenter has not made.
func (l *lossyCluster) checkOthers(t *testing.T) {
	t.Helper()
	got := l.get(t, "kubectl -n capm3 get baremetalhosts -o jsonpath='{range .items[*]}{.metadata.name} {.spec.consumerRef.name} "+
		`{.metadata.annotations.baremetalhost\.metal3\.io/paused}{.metadata.deletionTimestamp};{end}'`)
	if want := "server-05 worker-5 metal3.io/capm3;server-06 worker-6 ;"; got != want {
		t.Errorf("the hosts of Cluster API are %q, want %q", got, want)
	}
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig get nodes worker-5 worker-6 by-hand")
}

// claimForOther claims the host of Cluster API again that was claimed after the backup was made, and unpauses it.
func (l *lossyCluster) claimForOther(t *testing.T) {
	l.do(t, `kubectl -n capm3 patch baremetalhost server-06 --type=merge -p '{"spec": {"consumerRef": {"apiVersion": `+
		`"infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "namespace": "capm3", "name": "worker-6"}}}'`)
	l.do(t, unpauseRestored)
	l.checkOthers(t)
}

// unpauseRestored unpauses what the page has paused, in all namespaces.
const unpauseRestored = "kubectl get baremetalhosts -A -o jsonpath='{range .items[?(@.metadata.annotations." +
	`baremetalhost\.metal3\.io/paused=="restore")]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}' | ` +
	"while IFS=/ read -r namespace host; do kubectl annotate baremetalhost -n $namespace $host baremetalhost.metal3.io/paused-; done"

// diagnose prints the objects of both clusters if the test has failed.
func (l *lossyCluster) diagnose(t *testing.T) {
	if !t.Failed() {
		return
	}
	command := exec.Command("bash", "-c", "kubectl get baremetalhosts,machines.karpenter.metal3.io,nodetypes -A -o wide; kubectl "+
		"--kubeconfig acme-admin.kubeconfig get nodeclaims,nodes,pods -o wide")
	command.Dir, command.Env = l.dir, l.env
	output, err := command.CombinedOutput()
	t.Logf("%s%v", output, err)
}

// do runs commands that are not on the page.
func (l *lossyCluster) do(t *testing.T, command string) {
	t.Helper()
	l.run(t, "not on the page", step{command: command})
}

// get waits until a command prints something, and returns that.
func (l *lossyCluster) get(t *testing.T, command string) string {
	t.Helper()
	l.do(t, "until [ -n \"$("+command+")\" ]; do sleep 0.2; done; "+command+" >answer")
	answer, err := os.ReadFile(filepath.Join(l.dir, "answer"))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(answer))
}

// pod creates a pod that needs a whole server, waits until it runs, and records its server.
func (l *lossyCluster) pod(t *testing.T, name string) {
	t.Helper()
	l.createPod(t, name)
	l.do(t, "until kubectl --kubeconfig acme-admin.kubeconfig wait pod "+name+" --for=condition=Ready --timeout=10s && "+
		"kubectl --kubeconfig acme-admin.kubeconfig get pod "+name+"; do "+again(name)+"; done")
	l.servers[name], l.machines[name] = l.placement(t, name)
}

// createPod creates a pod that needs a whole server.
func (l *lossyCluster) createPod(t *testing.T, name string) {
	t.Helper()
	l.do(t, create(name))
}

func create(pod string) string {
	return `kubectl --kubeconfig acme-admin.kubeconfig run ` + pod + ` --image=registry.example.com/train:1 --overrides='{"spec": ` +
		`{"containers": [{"name": "` + pod +
		`", "image": "registry.example.com/train:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}'`
}

// again does what a ReplicaSet does. kube-controller-manager deletes pods that kube-scheduler has bound to a node which is gone, or right
// after Karpenter took its taint from a new one (kubernetes/kubernetes#139992).
func again(pod string) string {
	return "{ kubectl --kubeconfig acme-admin.kubeconfig get pod " + pod + " >pod 2>&1 || " + create(pod) + " >pod; }"
}

// placement returns the server that a pod runs on, and its Machine.
func (l *lossyCluster) placement(t *testing.T, pod string) (server, machine string) {
	t.Helper()
	node := l.get(t, "kubectl --kubeconfig acme-admin.kubeconfig get pod "+pod+" -o jsonpath={.spec.nodeName}")
	parts := strings.Split(l.get(t, "kubectl --kubeconfig acme-admin.kubeconfig get node "+node+" -o jsonpath={.spec.providerID}"), "/")
	return parts[3], parts[4]
}

// deletePod deletes a pod and releases its server.
func (l *lossyCluster) deletePod(t *testing.T, pod string) {
	t.Helper()
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig delete pod "+pod+" --now")
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig delete nodeclaim "+l.machines[pod]+" --wait=false")
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig wait --for=delete nodeclaim "+l.machines[pod]+" --timeout=2m")
	delete(l.servers, pod)
}

// checkRunning fails if a pod does not run on the same server and Machine as before.
func (l *lossyCluster) checkRunning(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig wait pod "+pod+" --for=condition=Ready --timeout=1s")
		l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig wait node "+l.machines[pod]+" --for=condition=Ready --timeout=1s")
		if server, machine := l.placement(t, pod); server != l.servers[pod] || machine != l.machines[pod] {
			t.Errorf("pod %s ran on %s of %s, and now it is on %s of %s", pod, l.servers[pod], l.machines[pod], server, machine)
		}
	}
}

// checkClaimed fails if a pod's Machine does not have its server, or the server is not provisioned.
func (l *lossyCluster) checkClaimed(t *testing.T, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		l.do(t, "kubectl -n acme wait machines.karpenter.metal3.io "+l.machines[pod]+" --for=condition=Ready --timeout=1m")
		got := l.get(t, "kubectl -n metal3-system get baremetalhost "+l.servers[pod]+" -o jsonpath='{.spec.consumerRef.name} "+
			"{.status.provisioning.state} {.spec.online}'")
		if want := l.machines[pod] + " provisioned true"; got != want {
			t.Errorf("server %s of pod %s is %q, want %q", l.servers[pod], pod, got, want)
		}
	}
}

// changeSinceBackup releases a server and claims it again, and claims another one, after the backup was made.
func (l *lossyCluster) changeSinceBackup(t *testing.T) {
	l.deletePod(t, "goes")
	l.pod(t, "again")
	l.pod(t, "since")
	l.node(t, "worker-6", "metal3://capm3/server-06/worker-6")
	want := map[string]string{"stays": "server-01", "again": "server-02", "since": "server-03"}
	for pod, server := range want {
		if l.servers[pod] != server {
			t.Fatalf("pod %s is on %s, and the page shows %s", pod, l.servers[pod], server)
		}
	}
	l.stop(t, sandbox.ManagementAPIServerName, sandbox.ManagementEtcdName)
}

func (l *lossyCluster) stop(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := l.box.Processes().Stop(name); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *lossyCluster) start(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := l.box.Processes().StartAgain(name); err != nil {
			t.Fatal(err)
		}
	}
}

const privateName = "private-kube-apiserver"

// metal3Webhook is a part of the configuration that baremetal-operator brings. Its Service does not exist.
const metal3Webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: baremetal-operator-validating-webhook-configuration}
webhooks:
- name: baremetalhost.metal3.io
  admissionReviewVersions: [v1]
  clientConfig: {service: {namespace: baremetal-operator-system, name: baremetal-operator-webhook-service}}
  failurePolicy: Fail
  rules: [{apiGroups: [metal3.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE], resources: [baremetalhosts]}]
  sideEffects: None
`

// startPrivateAPIServer starts etcd on the restored snapshot, and an API server on another port, which does not reach
// Metal3's webhook. All other programs keep looking for the lost one.
func (l *lossyCluster) startPrivateAPIServer(t *testing.T) {
	data := filepath.Join(l.box.ManagementEtcd().Dir, "data")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(l.dir, "restored"), data); err != nil {
		t.Fatal(err)
	}
	l.start(t, sandbox.ManagementEtcdName)
	ports, err := freeport.Reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := l.box.Processes().Spec(sandbox.ManagementAPIServerName)
	if err != nil {
		t.Fatal(err)
	}
	spec.Name, spec.Args = privateName, slices.Clone(spec.Args)
	n := slices.IndexFunc(spec.Args, func(argument string) bool { return strings.HasPrefix(argument, "--secure-port=") })
	if n < 0 {
		t.Fatalf("the API server is not told its port: %v", spec.Args)
	}
	spec.Args[n] = "--secure-port=" + strconv.Itoa(ports[0])
	if err := l.box.Processes().Start(spec); err != nil {
		t.Fatal(err)
	}
	l.useAPIServer(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])))
	l.do(t, "kubectl create -f - <<'EOF'"+metal3Webhook+"EOF")
	l.do(t, "while kubectl annotate baremetalhost -n metal3-system server-01 example.com/try=it --dry-run=server >refused 2>&1; do "+
		"sleep 0.2; done; grep 'failed calling webhook' refused")
}

// useAPIServer waits until an API server is ready, and points kubectl at it.
func (l *lossyCluster) useAPIServer(t *testing.T, address string) {
	t.Helper()
	config := rest.CopyConfig(l.box.ManagementConfig())
	if address == "" {
		address = strings.TrimPrefix(config.Host, "https://")
	}
	content, err := os.ReadFile(l.box.Kubeconfigs().Management)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.dir, "here.kubeconfig")
	server := strings.TrimPrefix(config.Host, "https://")
	if err := os.WriteFile(path, bytes.ReplaceAll(content, []byte(server), []byte(address)), 0o600); err != nil {
		t.Fatal(err)
	}
	l.env = append(l.env, "KUBECONFIG="+path)
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.AwaitURL(t.Context(), "the API server to be ready", &http.Client{Transport: transport},
		"https://"+address+"/readyz"); err != nil {
		t.Fatal(err)
	}
}

// openAPIServer starts the API server at the old address. Our programs are stopped: they have no Deployments here.
// Nothing serves Metal3's webhook here, so its configuration goes.
func (l *lossyCluster) openAPIServer(t *testing.T) {
	l.do(t, "kubectl delete -f metal3-webhook.yaml")
	l.stop(t, privateName, sandbox.ManagerName, sandbox.ProviderName)
	l.start(t, sandbox.ManagementAPIServerName)
	l.useAPIServer(t, "")
}

// startOurs starts our programs and checks that each Machine keeps its server, and that a new pod gets the free server,
// not one that only the snapshot has as free or being released.
func (l *lossyCluster) startOurs(t *testing.T) {
	l.start(t, sandbox.ManagerName, sandbox.ProviderName)
	l.pod(t, "next")
	if l.servers["next"] != "server-04" {
		t.Errorf("the next pod is given %s, want the free server-04", l.servers["next"])
	}
	l.checkClaimed(t, "stays", "next")
	l.checkRunning(t, "stays", "again", "since", "next")
}

// registerAgain registers the servers again from their files.
func (l *lossyCluster) registerAgain(t *testing.T) {
	l.do(t, "kubectl wait baremetalhosts -n metal3-system server-02 server-03 --for=delete --timeout=2m")
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig wait pods again since --for=delete --timeout=2m")
	l.do(t, "kubectl create -f registered.yaml >created 2>&1 || true; cat created; grep -q server-02.*created created; grep -q "+
		"server-03.*created created")
	delete(l.servers, "again")
	delete(l.servers, "since")
	l.do(t, "until [ \"$(kubectl get nodetype h100-8x -o jsonpath={.status.capacity.available})\" = 2 ]; do sleep 0.2; done")
	l.pod(t, "again")
	l.checkClaimed(t, "stays", "next", "again")
	l.checkRunning(t, "stays", "next", "again")
}

// replaceEtcd deletes all data of the management cluster, and installs the CRDs. The new etcd starts at a much higher
// revision, because the rack still watches, and would ignore lower resource versions.
func (l *lossyCluster) replaceEtcd(t *testing.T) {
	l.do(t, "! grep helm.sh/release.v1 secrets.yaml acme-secrets.yaml")
	l.stop(t, sandbox.ManagerName, sandbox.ProviderName, sandbox.WebhookName, sandbox.Metal3Name, sandbox.ManagementControllersName,
		sandbox.ManagementAPIServerName, sandbox.ManagementEtcdName)
	data := filepath.Join(l.box.ManagementEtcd().Dir, "data")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	l.start(t, sandbox.ManagementEtcdName)
	l.do(t, "until etcdctl snapshot save empty.db; do sleep 0.2; done")
	l.stop(t, sandbox.ManagementEtcdName)
	l.do(t, "rm -r "+data+"; etcdutl snapshot restore empty.db --data-dir "+data+" --bump-revision 2000000000 --mark-compacted")
	l.start(t, sandbox.ManagementEtcdName, sandbox.ManagementAPIServerName)
	l.useAPIServer(t, "")
	if err := l.box.PrepareAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.do(t, "kubectl create namespace capm3")
	l.start(t, sandbox.ManagementControllersName)
}

func (l *lossyCluster) install(t *testing.T) { l.start(t, sandbox.Metal3Name, sandbox.ManagerName) }

// unpause checks that each Machine keeps its server, and that the free one is installed for a pod. It does not wait for
// the pod: the rack's back-off after the outage can be a minute.
func (l *lossyCluster) unpause(t *testing.T) {
	l.checkClaimed(t, "stays", "next", "again")
	l.do(t, unpauseRestored)
	l.checkOthers(t)
	l.start(t, sandbox.ProviderName)
	l.createPod(t, "last")
	l.do(t, "kubectl -n metal3-system wait baremetalhost server-03 --for=jsonpath='{.status.provisioning.state}'=provisioned --timeout=1m")
	l.checkClaimed(t, "stays", "next", "again")
	l.checkRunning(t, "stays", "next", "again")
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig delete pods --all --now")
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig delete nodeclaims --all --wait=false")
	l.do(t, "kubectl --kubeconfig acme-admin.kubeconfig wait --for=delete nodeclaims --all --timeout=2m")
	l.do(t, "kubectl -n acme wait --for=delete machines.karpenter.metal3.io --all --timeout=2m")
	l.do(t, "until [ \"$(kubectl get nodetype h100-8x -o jsonpath={.status.capacity.available})\" = 4 ]; do sleep 0.2; done")
}
