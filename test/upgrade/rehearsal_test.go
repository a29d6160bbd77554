// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	controlplane "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

const (
	upgradePage     = "../../docs/upgrade.md"
	installPage     = "../../docs/install.md"
	tenantName      = "acme"
	systemNamespace = "karpenter-metal3"
	// The accounts that the charts make.
	managerAccount, webhookAccount           = "karpenter-metal3-manager", "karpenter-metal3-webhook"
	providerAccount, providerInTenantAccount = "karpenter-metal3-provider-" + tenantName, "karpenter-metal3-provider"
)

// rehearsal is a sandbox that has our programs from the charts. Pods do not run in its management cluster: the programs are processes with
// the arguments and accounts of the charts' Deployments.
type rehearsal struct {
	box                *sandbox.Sandbox
	dir                string
	management, tenant cluster
	webhookAddress     string
	// metrics are the addresses of the programs that run.
	metrics map[string]string
}

// cluster is the administrator's access to a cluster.
type cluster struct {
	client.Client
	config     *rest.Config
	kubeconfig string
}

// step is a block of commands of the page, and the version that they are to install.
type step struct {
	version  version
	commands string
}

func newRehearsal(t *testing.T) *rehearsal {
	t.Helper()
	servers, err := fleet.Load("testdata/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Up(t.Context(), sandbox.Config{
		Dir: filepath.Join(t.TempDir(), "sandbox"), Binaries: controlplane.Binaries{present(t).programs}, Fleet: servers, Tenant: tenantName,
		Bare: true,
	})
	if err != nil {
		t.Fatalf("starting a sandbox (run `make tools build` first), %v", err)
	}
	t.Cleanup(box.Close)
	r := &rehearsal{box: box, dir: t.TempDir(), metrics: map[string]string{}, webhookAddress: freeport.ForTest(t)}
	t.Cleanup(func() { r.diagnose(t) })
	r.management = connect(t, box.ManagementConfig(), box.Kubeconfigs().Management)
	r.tenant = connect(t, box.TenantConfig(), box.Kubeconfigs().Tenant)
	r.writeHelm(t)
	return r
}

// writeHelm writes a program in front of Helm. It installs what is not there, and renders addresses in place of the webhook's Service,
// because the API server is not in the network of the cluster.
func (r *rehearsal) writeHelm(t *testing.T) {
	t.Helper()
	render := "#!/bin/sh\nexec sed -E '/clientConfig:/,/port:/{/(service|name|namespace|port):/d; s|path: |url: https://" + r.webhookAddress +
		"|;}'\n"
	helm := "#!/bin/sh\ncase \"$*\" in\n*rollback*) ;;\n*install*) set -- \"$@\" --post-renderer=" + r.renderer() +
		" ;;\n*) set -- \"$@\" --install --create-namespace --post-renderer=" + r.renderer() +
		" ;;\nesac\nexec " + filepath.Join(present(t).programs, "helm") + " \"$@\"\n"
	for path, script := range map[string]string{r.renderer(): render, filepath.Join(r.dir, "helm"): helm} {
		if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func connect(t *testing.T, config *rest.Config, kubeconfig string) cluster {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return cluster{Client: c, config: config, kubeconfig: kubeconfig}
}

// renderer is the program that Helm gives what it has rendered.
func (r *rehearsal) renderer() string { return filepath.Join(r.dir, "renderer") }

// install installs a version as an upgrade of nothing, and has its servers taken in all ways.
func (r *rehearsal) install(t *testing.T, v version) {
	t.Helper()
	steps := r.steps(t, v, upgradePage, "Upgrade")
	if len(steps) != 3 {
		t.Fatalf("%s has %d steps, want one for each release", upgradePage, len(steps))
	}
	r.do(t, steps[0])
	r.applyManifests(t, r.management, "management.yaml", unchanged)
	r.do(t, steps[1])
	r.applyManifests(t, r.tenant, "tenant.yaml", unchanged)
	r.do(t, steps[2])
	r.takeServers(t)
}

// follow installs a version as docs/install.md does, and has its servers taken in all ways.
func (r *rehearsal) follow(t *testing.T, v version) {
	t.Helper()
	for _, section := range []string{"1. The management cluster", "2. The tenant cluster", "3. The tenant's provider"} {
		for _, step := range r.steps(t, v, installPage, section) {
			r.do(t, step)
			if strings.Contains(step.commands, "install karpenter-metal3 charts/karpenter-metal3-tenant") {
				// It is read by the next commands of the page.
				poll.Eventually(t, "the namespace has the authority of its cluster", func(ctx context.Context) error {
					key := client.ObjectKey{Namespace: systemNamespace, Name: "kube-root-ca.crt"}
					return r.tenant.Get(ctx, key, &corev1.ConfigMap{})
				})
			}
		}
	}
	r.applyFleet(t, unchanged)
	r.takeServers(t)
}

// takeServers has a server taken by each kind of pool.
func (r *rehearsal) takeServers(t *testing.T) {
	t.Helper()
	for _, pool := range []string{"static", "auto-static", "auto-dynamic"} {
		r.startPodOn(t, "before-"+pool, pool)
	}
	r.startPod(t, "before")
}

// steps are the blocks of commands in a section of a page, but for those that pods would have to run for.
func (r *rehearsal) steps(t *testing.T, v version, file, section string) (steps []step) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range page.Blocks(string(content)) {
		if block.Section == section && block.HasCommands() && block.NotRun == "" {
			steps = append(steps, step{version: v, commands: block.Text()})
		}
	}
	return steps
}

// do runs the commands of a step, and replaces the programs of its release by those of its version.
func (r *rehearsal) do(t *testing.T, s step) {
	t.Helper()
	names := []string{"acme.example.com:6443", strings.TrimPrefix(r.tenant.config.Host, "https://")}
	links := map[string]string{"acme-admin.kubeconfig": r.tenant.kubeconfig}
	if s.version.release != nil {
		names = append(names, s.version.release.Charts()...)
	} else {
		links["charts"] = s.version.charts
	}
	commands := strings.NewReplacer(names...).Replace(s.commands)
	t.Logf("%s: %s", s.version.name, strings.TrimSpace(commands))
	p, err := page.Open(page.Config{
		File: upgradePage, Dir: r.dir, Bin: r.dir + string(os.PathListSeparator) + present(t).programs, Kubeconfig: r.management.kubeconfig,
		Links: links,
	})
	if err != nil {
		t.Fatal(err)
	}
	if output, err := p.Run(t.Context(), commands); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	switch {
	case strings.Contains(s.commands, "acme-admin.kubeconfig"): // the tenant's cluster has none of our programs
	case strings.Contains(s.commands, "--namespace "+systemNamespace):
		r.start(t, s.version, sandbox.ManagerName)
		r.start(t, s.version, sandbox.WebhookName)
	case strings.Contains(s.commands, "--namespace "+tenantName):
		r.start(t, s.version, sandbox.ProviderName)
	}
}

// start replaces a program by that of a version, and returns when it is ready.
func (r *rehearsal) start(t *testing.T, v version, program string) {
	t.Helper()
	namespace, account, flags := r.account(t, program)
	deployment := &appsv1.Deployment{}
	if err := r.management.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: account}, deployment); err != nil {
		t.Fatal(err)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	command := v.command(t, program, container.Image)
	manager := &appsv1.Deployment{}
	if err := r.management.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: managerAccount}, manager); err != nil {
		t.Fatal(err)
	}
	switch byManager := slices.Contains(manager.Spec.Template.Spec.Containers[0].Args, "--webhook-cert-rotation"); {
	case byManager && program == sandbox.ManagerName:
		flags = append(flags, "--webhook-cert-names=127.0.0.1", "--webhook-ca-settle=1s")
	case !byManager && program == sandbox.WebhookName: // it makes its certificates itself
		flags = append(flags, "--cert-names=127.0.0.1", "--ca-settle=1s")
	}
	probes, metrics := freeport.ForTest(t), freeport.ForTest(t)
	processes := r.box.Processes()
	if _, runs := r.metrics[program]; runs {
		if err := processes.Stop(program); err != nil {
			t.Fatal(err)
		}
	}
	err := processes.Start(process.Spec{
		Name: program, Path: command[0], Rank: controlplane.RankClients + 1, Restart: true,
		Args: slices.Concat(command[1:], container.Args,
			[]string{"--health-probe-bind-address=" + probes, "--metrics-bind-address=" + metrics}, flags),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.metrics[program] = "http://" + metrics + "/metrics"
	poll.Eventually(t, program+" of "+v.name+" is ready", func(ctx context.Context) error {
		return controlplane.CheckURL(ctx, http.DefaultClient, "http://"+probes+"/readyz")
	})
}

// account returns the account of a program in the management cluster, which its Deployment is named like, and flags in place of what a pod
// has.
func (r *rehearsal) account(t *testing.T, program string) (namespace, name string, flags []string) {
	t.Helper()
	switch program {
	case sandbox.ManagerName:
		return systemNamespace, managerAccount, []string{
			"--kubeconfig=" + r.asAccount(t, r.management, systemNamespace, managerAccount), "--metrics-secure=false",
		}
	case sandbox.WebhookName:
		return systemNamespace, webhookAccount, []string{
			"--kubeconfig=" + r.asAccount(t, r.management, systemNamespace, webhookAccount), "--metrics-secure=false",
			"--webhook-bind-address=" + r.webhookAddress, "--shutdown-delay=0s",
		}
	default:
		return tenantName, providerAccount, []string{
			"--management-kubeconfig=" + r.asAccount(t, r.management, tenantName, providerAccount),
			"--tenant-kubeconfig=" + r.asAccount(t, r.tenant, systemNamespace, providerInTenantAccount),
		}
	}
}

// asAccount returns the path of a kubeconfig with a token of an account.
func (r *rehearsal) asAccount(t *testing.T, in cluster, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	token := &authenticationv1.TokenRequest{}
	if err := in.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: in.config.Host, CertificateAuthorityData: in.config.CAData}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "c"
	// A program ends when its kubeconfig changes, so the one that is replaced keeps its own.
	dir, err := os.MkdirTemp(r.dir, "kubeconfig-")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, namespace+"-"+name)
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func unchanged(manifests string) string { return manifests }

// replaceAliases writes our keys in place of the reference's.
func replaceAliases(t *testing.T, manifests string) string {
	t.Helper()
	replaced := manifests
	for ours, alias := range v1alpha1.Aliases() {
		replaced = regexp.MustCompile(`\b`+regexp.QuoteMeta(alias)+`\b`).ReplaceAllString(replaced, ours)
	}
	if replaced == manifests {
		t.Error("no key of the reference is in the manifests")
	}
	return replaced
}

// applyFleet applies all manifests again, with a change.
func (r *rehearsal) applyFleet(t *testing.T, change func(string) string) {
	t.Helper()
	r.applyManifests(t, r.management, "management.yaml", change)
	r.applyManifests(t, r.tenant, "tenant.yaml", change)
}

// applyManifests applies a file of testdata, with a change.
func (r *rehearsal) applyManifests(t *testing.T, to cluster, name string, change func(string) string) {
	t.Helper()
	manifests, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	endpoint, file := strings.TrimPrefix(r.tenant.config.Host, "https://"), filepath.Join(r.dir, name)
	changed := change(strings.Replace(string(manifests), "API_SERVER", endpoint, 1))
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	// What a tenant may have follows its TenantCluster, where the provider runs already.
	poll.Eventually(t, name+" is applied", func(ctx context.Context) error {
		output, err := exec.CommandContext(ctx, filepath.Join(present(t).programs, "kubectl"), "apply", "--filename="+file,
			"--kubeconfig="+to.kubeconfig).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
		return nil
	})
}

// startPod starts a pod that needs a server for itself, and waits until it runs.
func (r *rehearsal) startPod(t *testing.T, name string) {
	r.startPodOn(t, strings.ToLower(name), "dynamic")
}

// startPodOn starts a pod on a node of a pool, and waits until it runs.
func (r *rehearsal) startPodOn(t *testing.T, name, pool string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{karpv1.NodePoolLabelKey: pool},
			// Karpenter removes this taint from the node, and kube-controller-manager may see the pod there before it sees that.
			Tolerations: []corev1.Toleration{{Key: karpv1.UnregisteredTaintKey, Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: "registry.example.com/train:1"}},
		},
	}
	if pool == "dynamic" {
		pod.Spec.Containers[0].Resources.Limits = env.Resources("nvidia.com/gpu", "8")
	}
	if err := r.tenant.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "pod "+name+" runs", func(ctx context.Context) error {
		if err := r.tenant.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
}

// diagnose shows what there is, and the ends of the logs, if the test has failed.
func (r *rehearsal) diagnose(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, info := range r.box.Processes().List() {
		if _, ours := r.metrics[info.Name]; ours {
			lines, err := process.LastLines(info.LogFile, 40)
			t.Logf("log of %s, %v:\n%s", info.Name, err, strings.Join(lines, "\n"))
		}
	}
	for _, side := range []struct {
		cluster cluster
		kinds   string
	}{{r.management, "baremetalhosts,machines.karpenter.metal3.io"}, {r.tenant, "nodepools,nodeclaims,nodes,pods"}} {
		output, err := exec.Command(filepath.Join(present(t).programs, "kubectl"), "get", side.kinds, "--all-namespaces", "--output=wide",
			"--kubeconfig="+side.cluster.kubeconfig).CombinedOutput()
		t.Logf("%v\n%s", err, output)
	}
}
