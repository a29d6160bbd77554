// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package minorupgrade upgrades a tenant from one minor version of Kubernetes to the next, on real API servers of both.
package minorupgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/gangstories"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	workers    = 5
	apiServers = 3
	// window is for how long no API server may be old before the servers follow.
	window = 10 * time.Minute
	// driftPeriod is how often Karpenter asks whether a NodeClaim has drifted.
	driftPeriod = 5 * time.Minute
	// apiServer is the process of the sandbox's only API server of the tenant.
	apiServer = "tenant-kube-apiserver"
)

// versionPolicy has an API server log one line for each time that the provider has asked it for its version.
const versionPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [` + cluster.ProviderUser + `], nonResourceURLs: [/version]}
`

// The three API servers of a tenant are upgraded one after another. While an old one is left, the provider, which a new one has answered,
// replaces no node, and installs a server for the old version. Then each node is replaced once, within the budget of its NodePool, and its
// pod moves within its PodDisruptionBudget.
func TestMinorUpgrade(t *testing.T) {
	system.Only(t)
	ctrllog.SetLogger(logr.Discard())
	u := newUpgrade(t)
	u.scale(workers - 1)
	poll.Eventually(t, "all but one worker are nodes", u.nodesAre(u.older, workers-1))

	for i := range apiServers - 1 {
		u.replaceAPIServer(i)
	}
	poll.Eventually(t, "an API server of the newer version has answered the provider", u.answered())
	u.touch()
	u.scale(workers)
	poll.Eventually(t, "the last worker is installed for the older version", u.settled(u.older))
	if seen := u.disruptions(); len(seen) > 0 {
		t.Errorf("NodeClaims do not stay while an API server is old: %v", seen)
	}
	before := u.countReady()
	u.replaceAPIServer(apiServers - 1)
	u.replace("tenant-kube-controller-manager", "kube-controller-manager")
	u.replace("tenant-kube-scheduler", "kube-scheduler")

	u.within(window, "servers follow the API servers", u.follows)
	u.say("servers follow %s", u.newer)
	u.within(driftPeriod, "all nodes are of the newer version", u.settled(u.newer))

	installed := 0
	for server, count := range u.installations() {
		times := count - before[server]
		installed += times
		u.say("server %s was installed %d times for the upgrade", server, times)
		if times > 1 {
			t.Errorf("server %s was installed %d times, want at most once", server, times)
		}
	}
	if installed != workers {
		t.Errorf("servers were installed %d times for the upgrade of %d nodes", installed, workers)
	}
	mostDeleting, leastReady := u.extremes()
	u.say("%d nodes were deleted at a time at most, and %d of %d pods were ready at least", mostDeleting, leastReady, workers)
	if mostDeleting != 1 {
		t.Errorf("%d nodes were deleted at a time, and the budget is 1", mostDeleting)
	}
	if leastReady < workers-1 {
		t.Errorf("only %d of %d pods were ready, and the PodDisruptionBudget lets one be moved", leastReady, workers)
	}
}

// upgrade is a sandbox whose tenant has three API servers behind one address.
type upgrade struct {
	*observer
	t   *testing.T
	box *sandbox.Sandbox
	// older and newer are minor versions, such as v1.36, and programs are those of the newer.
	older, newer       string
	programs           cluster.Binaries
	management, tenant client.Client
	// ports are those of the API servers, and logs their audit logs.
	ports []int
	logs  []string
	// replaced are those of the newer version.
	replaced []int
}

// newUpgrade returns one with a Deployment without pods, each of which needs a server, and with servers for all and one to spare.
func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	binaries := cluster.Binaries{filepath.Join("..", "..", "bin")}
	older := os.Getenv(sandbox.TenantKubernetesVariable)
	if older == "" {
		t.Skip("make test-versions runs it: it takes control planes of two versions, and a quarter of an hour, most of which it waits")
	}
	before := version.MustParseGeneric(older)
	newer := fmt.Sprintf("%d.%d", before.Major(), before.Minor()+1)
	programs, err := binaries.Kubernetes(t.Context(), newer)
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Up(t.Context(), sandbox.Config{Dir: filepath.Join(t.TempDir(), "sandbox"), Binaries: binaries,
		Fleet: gangstories.Servers(map[string]int{"n1": workers + 1})})
	if err != nil {
		t.Fatalf("starting a sandbox (run `make tools build` first), %v", err)
	}
	t.Cleanup(box.Close)
	u := &upgrade{t: t, box: box, older: "v" + older, newer: "v" + newer, programs: programs}
	u.startAPIServers()
	u.management, u.tenant = u.connect(box.ManagementConfig()), u.connect(box.TenantConfig())
	u.fill()
	u.observer = observe(t, box.ManagementConfig(), box.TenantConfig())
	return u
}

func (u *upgrade) connect(config *rest.Config) client.Client {
	u.t.Helper()
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		u.t.Fatal(err)
	}
	return c
}

// startAPIServers starts API servers in place of the sandbox's only one, and has its address lead to them.
func (u *upgrade) startAPIServers() {
	u.t.Helper()
	dir := u.t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(versionPolicy), 0o600); err != nil {
		u.t.Fatal(err)
	}
	spec, err := u.box.Processes().Spec(apiServer)
	if err != nil {
		u.t.Fatal(err)
	}
	if u.ports, err = freeport.Reserve(apiServers); err != nil {
		u.t.Fatal(err)
	}
	// The provider would start in the middle of an outage.
	for _, name := range []string{sandbox.ProviderName, apiServer} {
		if err := u.box.Processes().Stop(name); err != nil {
			u.t.Fatal(err)
		}
	}
	var addresses []string
	for i, port := range u.ports {
		log := filepath.Join(dir, fmt.Sprintf("version-%d.log", i))
		replica := spec
		replica.Name = fmt.Sprintf("%s-%d", apiServer, i)
		// The last of two flags counts.
		replica.Args = append(slices.Clone(spec.Args), fmt.Sprintf("--secure-port=%d", port), "--audit-policy-file="+policy,
			"--audit-log-path="+log)
		if err := u.box.Processes().Start(replica); err != nil {
			u.t.Fatal(err)
		}
		u.logs, addresses = append(u.logs, log), append(addresses, address(port))
	}
	for i := range u.ports {
		u.untilServes(i)
	}
	balance(u.t, strings.TrimPrefix(u.box.TenantConfig().Host, "https://"), addresses)
	if err := u.box.Processes().StartAgain(sandbox.ProviderName); err != nil {
		u.t.Fatal(err)
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// untilServes waits until one of the API servers is ready.
func (u *upgrade) untilServes(i int) {
	u.t.Helper()
	config := u.box.TenantConfig()
	config.Host = "https://" + address(u.ports[i])
	through, err := rest.HTTPClientFor(config)
	if err != nil {
		u.t.Fatal(err)
	}
	poll.Eventually(u.t, fmt.Sprintf("API server %d is ready", i), func(ctx context.Context) error {
		return cluster.CheckURL(ctx, through, config.Host+"/readyz")
	})
}

// replaceAPIServer has an API server run the newer version.
func (u *upgrade) replaceAPIServer(i int) {
	u.t.Helper()
	u.replace(fmt.Sprintf("%s-%d", apiServer, i), "kube-apiserver")
	u.untilServes(i)
	u.replaced = append(u.replaced, i)
}

// replace has a process run that program of the newer version.
func (u *upgrade) replace(name, program string) {
	u.t.Helper()
	spec, err := u.box.Processes().Spec(name)
	if err != nil {
		u.t.Fatal(err)
	}
	if err := u.box.Processes().Stop(name); err != nil {
		u.t.Fatal(err)
	}
	if err := u.programs.Start(u.box.Processes(), program, spec); err != nil {
		u.t.Fatal(err)
	}
	u.say("%s is of %s", name, u.newer)
}

// answered is a condition: an API server that was replaced has said its version to the provider since.
func (u *upgrade) answered() func(context.Context) error {
	before := u.answers()
	return func(context.Context) error {
		if u.answers() == before {
			return errors.New("the provider has not asked one")
		}
		return nil
	}
}

// answers counts the answers of the API servers that were replaced, also before that.
func (u *upgrade) answers() (count int) {
	u.t.Helper()
	for _, i := range u.replaced {
		content, err := os.ReadFile(u.logs[i])
		if err != nil {
			u.t.Fatal(err)
		}
		count += bytes.Count(content, []byte("\n"))
	}
	return count
}

// fill makes the fleet, has servers follow the tenant's version, and makes the Deployment.
func (u *upgrade) fill() {
	u.t.Helper()
	if _, err := examples.Apply(u.t.Context(), u.management, examples.ManagementFile); err != nil {
		u.t.Fatal(err)
	}
	if _, err := examples.Apply(u.t.Context(), u.tenant, examples.TenantFile); err != nil {
		u.t.Fatal(err)
	}
	u.edit(u.management, &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.DefaultTenant, Name: sandbox.DefaultTenant}},
		`{"spec": {"privateNodes": {"enabled": true, "autoUpgrade": {"enabled": true}}}}`)
	u.edit(u.tenant, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		`{"spec": {"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}}}`)
	labels := map[string]string{"app": "worker"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: gangstories.Pod("", func(*corev1.Pod) {}).Spec}
	meta, selector := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "worker"}, &metav1.LabelSelector{MatchLabels: labels}
	for _, object := range []client.Object{
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(0)), Selector: selector, Template: template}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: selector}},
	} {
		if err := u.tenant.Create(u.t.Context(), object); err != nil {
			u.t.Fatal(err)
		}
	}
}

func (u *upgrade) edit(in client.Client, object client.Object, patch string) {
	u.t.Helper()
	if err := in.Patch(u.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		u.t.Fatal(err)
	}
}

func (u *upgrade) scale(replicas int) {
	u.t.Helper()
	u.edit(u.tenant, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "worker"}},
		fmt.Sprintf(`{"spec": {"replicas": %d}}`, replicas))
}

// touch has Karpenter ask at once whether NodeClaims have drifted.
func (u *upgrade) touch() {
	u.t.Helper()
	claims := &karpv1.NodeClaimList{}
	if err := u.tenant.List(u.t.Context(), claims); err != nil {
		u.t.Fatal(err)
	}
	for i := range claims.Items {
		u.edit(u.tenant, &claims.Items[i], `{"metadata": {"annotations": {"example.com/asked": "now"}}}`)
	}
}

// within waits until the condition is true, for that long and the patience of other waits.
func (u *upgrade) within(limit time.Duration, what string, condition func(context.Context) error) {
	u.t.Helper()
	ctx, stop := context.WithTimeout(u.t.Context(), limit+poll.Patience())
	defer stop()
	if err := poll.Until(ctx, condition); err != nil {
		u.t.Fatalf("waiting for %s until %s, %v", limit+poll.Patience(), what, err)
	}
}

// follows is a condition: servers are installed for the newer version.
func (u *upgrade) follows(ctx context.Context) error {
	tenant := &v1alpha1.TenantCluster{}
	err := u.management.Get(ctx, client.ObjectKey{Namespace: sandbox.DefaultTenant, Name: sandbox.DefaultTenant}, tenant)
	if got := tenant.Status.KubernetesVersion; err == nil && got != u.newer {
		return fmt.Errorf("servers follow %s, want %s", got, u.newer)
	}
	return err
}

// nodesAre is a condition: so many nodes, or more, have a kubelet of the minor version.
func (u *upgrade) nodesAre(minor string, count int) func(context.Context) error {
	return func(ctx context.Context) error {
		nodes := &corev1.NodeList{}
		if err := u.tenant.List(ctx, nodes, client.HasLabels{karpv1.NodeInitializedLabelKey}); err != nil {
			return err
		}
		versions := map[string]int{}
		for _, node := range nodes.Items {
			versions[node.Status.NodeInfo.KubeletVersion]++
		}
		if versions[minor+".0"] < count {
			return fmt.Errorf("of %d nodes there are %v", len(nodes.Items), versions)
		}
		return nil
	}
}

// settled is a condition: all nodes have a kubelet of the minor version, there are no more than needed, and all pods are ready.
func (u *upgrade) settled(minor string) func(context.Context) error {
	return func(ctx context.Context) error {
		claims, workload := &karpv1.NodeClaimList{}, &appsv1.Deployment{}
		if err := u.tenant.List(ctx, claims); err != nil {
			return err
		}
		if err := u.tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "worker"}, workload); err != nil {
			return err
		}
		if len(claims.Items) != workers || workload.Status.ReadyReplicas != workers {
			return fmt.Errorf("there are %d NodeClaims, and %d pods are ready", len(claims.Items), workload.Status.ReadyReplicas)
		}
		return u.nodesAre(minor, workers)(ctx)
	}
}
