// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	karpapis "sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

var (
	// burstPods each need a server of their own, and burstServers is how many there are.
	burstPods    = 500
	burstServers = 100
	// afterwards is how long NodeClaims are counted after the last server was claimed: two of core's retries.
	afterwards = 25 * time.Second
)

// BenchmarkYardstick has 500 pods wait for 100 servers, one each, and the same pods wait for the nodes of Karpenter's own
// provider, kwok, of which a pool may have 100. Both get a fresh control plane of the same kind, one after the other. Time
// counts from the last pod to the 100th NodeClaim that has been launched, which means that it has a provider ID. It reports:
//
//	nodeclaims          NodeClaims ever made
//	s                   until the 100th was launched
//	writes/claim        API writes of the manager and the provider together, until then, for each of the hundred: installing
//	                    and joining what was claimed first included. Which of them are Karpenter's own is in
//	                    designs/writes.md
//	pod-events/claim    Karpenter's events on the 400 pods that wait, which are not among those writes: they are as many as
//	                    there are pods too many
//	409s/claim          those of them that were refused because the object had changed
//	kwok-nodeclaims, kwok-s
//	                    the same of Karpenter with its own provider, which does not count its requests
//	ratio               our time over kwok's
func BenchmarkYardstick(b *testing.B) {
	for b.Loop() {
		kwok := measureBurst(b, kwokBurst)
		ours := measureBurst(b, ourBurst)
		reportAtMost(b, float64(ours.nodeClaims), "nodeclaims", float64(burstServers), "one for each server that is there")
		b.ReportMetric(ours.took.Seconds(), "s")
		reportAtMost(b, ours.writes/float64(burstServers), "writes/claim", 15,
			"4 of Karpenter, 4 of the provider, 5 of the manager until a launch (designs/writes.md); the rest of those that launch first")
		b.ReportMetric(ours.podEvents/float64(burstServers), "pod-events/claim")
		reportAtMost(b, ours.conflicts/float64(burstServers), "409s/claim", 0.5,
			"core and the provider both write conditions of NodeClaims")
		b.ReportMetric(float64(kwok.nodeClaims), "kwok-nodeclaims")
		b.ReportMetric(kwok.took.Seconds(), "kwok-s")
		b.ReportMetric(ours.took.Seconds()/kwok.took.Seconds(), "ratio")
	}
}

// burst sets up one of the two providers.
type burst struct {
	without []string
	// setUp makes the pool, which must be ready when it returns, and returns the URLs of the metrics of all processes.
	setUp func(context.Context, *sandbox.Sandbox, client.Client) ([]string, error)
}

type burstResult struct {
	nodeClaims int
	took       time.Duration
	// writes are without podEvents.
	writes, podEvents float64
	conflicts         float64
}

func measureBurst(b *testing.B, contestant burst) burstResult {
	var servers []fleet.Server
	for i := range burstServers {
		servers = append(servers, fleet.Server{
			Name: fmt.Sprintf("server-%03d", i+1), Labels: map[string]string{"server-class": "burst"},
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi")},
		})
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		b.Fatal(err)
	}
	box, err := sandbox.Up(b.Context(), sandbox.Config{
		Dir: filepath.Join(b.TempDir(), "sandbox"), Binaries: cluster.Binaries{bin}, Fleet: servers, Without: contestant.without,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close()
	tenant, err := client.New(box.TenantConfig(), client.Options{Scheme: tenantScheme()})
	if err != nil {
		b.Fatal(err)
	}
	processes, err := contestant.setUp(b.Context(), box, tenant)
	if err != nil {
		b.Fatal(err)
	}
	result, err := runBurst(b.Context(), box.TenantConfig(), tenant, processes)
	if err != nil {
		b.Fatal(err)
	}
	return result
}

// runBurst creates the pods and follows the NodeClaims.
func runBurst(ctx context.Context, config *rest.Config, tenant client.Client, processes []string) (result burstResult, err error) {
	ctx, stop := context.WithTimeout(ctx, waitTimeout)
	defer stop()
	nodeClaims, err := followNodeClaims(ctx, config)
	if err != nil {
		return result, err
	}
	writesBefore, conflictsBefore, err := writes(ctx, processes)
	if err != nil {
		return result, err
	}
	for i := range burstPods {
		if err := tenant.Create(ctx, oneServerPod(i)); err != nil {
			return result, fmt.Errorf("creating a pod, %w", err)
		}
	}
	begin := time.Now()
	select {
	case finished := <-nodeClaims.enough:
		result.took = finished.Sub(begin)
	case <-ctx.Done():
		made, launched := nodeClaims.count()
		return result, fmt.Errorf("%d of %d NodeClaims were launched within %s, %d were made", launched, burstServers, waitTimeout, made)
	}
	writesAfter, conflictsAfter, err := writes(ctx, processes)
	if err != nil {
		return result, err
	}
	if result.podEvents, err = podEvents(ctx, tenant); err != nil {
		return result, err
	}
	result.writes, result.conflicts = writesAfter-writesBefore-result.podEvents, conflictsAfter-conflictsBefore
	select {
	case <-time.After(afterwards):
	case <-ctx.Done():
		return result, ctx.Err()
	}
	result.nodeClaims, _ = nodeClaims.count()
	return result, nil
}

// nodeClaims are all NodeClaims that were ever seen.
type nodeClaims struct {
	// enough receives the time at which as many were launched as there are servers.
	enough chan time.Time

	mu             sync.Mutex
	made, launched map[types.UID]bool
}

func followNodeClaims(ctx context.Context, config *rest.Config) (*nodeClaims, error) {
	ctrllog.SetLogger(logr.Discard())
	informers, err := cache.New(config, cache.Options{Scheme: tenantScheme()})
	if err != nil {
		return nil, fmt.Errorf("watching NodeClaims, %w", err)
	}
	informer, err := informers.GetInformer(ctx, &karpv1.NodeClaim{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching NodeClaims, %w", err)
	}
	seen := &nodeClaims{enough: make(chan time.Time, 1), made: map[types.UID]bool{}, launched: map[types.UID]bool{}}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: seen.see, UpdateFunc: func(_, object any) { seen.see(object) },
	}); err != nil {
		return nil, fmt.Errorf("watching NodeClaims, %w", err)
	}
	go func() { _ = informers.Start(ctx) }() // ends with the context, which is no error
	if !informers.WaitForCacheSync(ctx) {
		return nil, errors.New("the watch on NodeClaims did not begin")
	}
	return seen, nil
}

func (n *nodeClaims) see(object any) {
	nodeClaim, ok := object.(*karpv1.NodeClaim)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made[nodeClaim.UID] = true
	if nodeClaim.Status.ProviderID == "" || n.launched[nodeClaim.UID] {
		return
	}
	if n.launched[nodeClaim.UID] = true; len(n.launched) == burstServers {
		n.enough <- time.Now()
	}
}

func (n *nodeClaims) count() (made, launched int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.made), len(n.launched)
}

// writes is the number of requests of the processes that write, and of those that were refused because of a conflict.
func writes(ctx context.Context, processes []string) (total, conflicts float64, err error) {
	for _, url := range processes {
		metrics, err := management.ReadMetrics(ctx, url)
		if err != nil {
			return 0, 0, err
		}
		total, conflicts = total+metrics.Writes(), conflicts+metrics.Conflicts()
	}
	return total, conflicts, nil
}

// podEvents is how often Karpenter has written that it has no node for a pod.
func podEvents(ctx context.Context, tenant client.Client) (total float64, err error) {
	events := &corev1.EventList{}
	if err := tenant.List(ctx, events); err != nil {
		return 0, fmt.Errorf("listing events, %w", err)
	}
	for _, event := range events.Items {
		if event.InvolvedObject.Kind == "Pod" && event.Reason == "FailedScheduling" && event.Source.Component != "default-scheduler" {
			total += float64(event.Count)
		}
	}
	return total, nil
}

// oneServerPod requests more than half of a server, so that no two pods share one.
func oneServerPod(n int) *corev1.Pod {
	asks := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("pod-%03d", n)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/main:1", Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks},
		}}},
	}
}

var ourBurst = burst{setUp: func(ctx context.Context, box *sandbox.Sandbox, tenant client.Client) ([]string, error) {
	managementClient, err := newClient(box.ManagementConfig())
	if err != nil {
		return nil, err
	}
	image := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "linux"}}
	image.Spec.Properties = map[string]string{
		"karpenter.metal3.io/image-url":      "https://images.example.com/linux.qcow2",
		"karpenter.metal3.io/image-checksum": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "burst"}}
	provider.Spec.Properties = map[string]string{"karpenter.metal3.io/os-image": image.Name}
	provider.Spec.Metal3.ClusterRef.Namespace = sandbox.HostNamespace
	nodeType := v1alpha1.NodeTypeTemplate{Name: "burst"}
	nodeType.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi")}
	nodeType.BareMetalHosts = &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"server-class": "burst"}}}
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{nodeType}
	for _, object := range []client.Object{image, provider} {
		if err := managementClient.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("creating %T, %w", object, err)
		}
	}
	if err := await(ctx, "100 available servers", func(ctx context.Context) (bool, error) {
		found := &v1alpha1.NodeType{}
		err := managementClient.Get(ctx, client.ObjectKey{Name: "burst"}, found)
		return int(found.Status.Capacity.Available) == burstServers, client.IgnoreNotFound(err)
	}); err != nil {
		return nil, err
	}
	nodeClass := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "MetalNodeClass", "metadata": map[string]any{"name": "burst"},
	}}
	return []string{box.Metrics(sandbox.ManagerName), box.Metrics(sandbox.ProviderName)}, makePool(ctx, tenant, nodeClass)
}}

var kwokBurst = burst{without: []string{sandbox.ManagerName, sandbox.ProviderName},
	setUp: func(ctx context.Context, box *sandbox.Sandbox, tenant client.Client) ([]string, error) {
		for _, crd := range kwokapis.CRDs {
			if err := tenant.Create(ctx, crd.DeepCopy()); err != nil {
				return nil, fmt.Errorf("creating the CRD %s, %w", crd.Name, err)
			}
		}
		ports, err := freeport.Reserve(2)
		if err != nil {
			return nil, err
		}
		program, err := filepath.Abs(filepath.Join("..", "..", "bin", "karpenter-kwok"))
		if err != nil {
			return nil, err
		}
		if err := box.Processes().Start(process.Spec{
			Name: "karpenter-kwok", Path: program, Rank: cluster.RankClients + 1, Restart: true,
			Env: []string{
				"KUBECONFIG=" + box.Kubeconfigs().Tenant, "DISABLE_LEADER_ELECTION=true", "SYSTEM_NAMESPACE=kube-system",
				fmt.Sprintf("METRICS_PORT=%d", ports[0]), fmt.Sprintf("HEALTH_PROBE_PORT=%d", ports[1]),
			},
		}); err != nil {
			return nil, err
		}
		if err := cluster.AwaitURL(ctx, "karpenter-kwok to be ready", http.DefaultClient,
			fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[1])); err != nil {
			return nil, err
		}
		nodeClass := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": kwokapis.Group + "/v1alpha1", "kind": "KWOKNodeClass", "metadata": map[string]any{"name": "burst"},
		}}
		return []string{fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[0])}, makePool(ctx, tenant, nodeClass,
			karpv1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"c-16x-amd64-linux"}},
			karpv1.NodeSelectorRequirementWithMinValues{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn,
				Values: []string{karpv1.CapacityTypeOnDemand}},
		)
	}}

// makePool makes a pool of at most a hundred nodes, and returns when Karpenter has found it ready.
func makePool(ctx context.Context, tenant client.Client, nodeClass *unstructured.Unstructured,
	requirements ...karpv1.NodeSelectorRequirementWithMinValues) error {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "burst"}}
	pool.Spec.Limits = karpv1.Limits{"nodes": resource.MustParse(fmt.Sprint(burstServers))}
	pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	pool.Spec.Template.Spec.Requirements = append([]karpv1.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}},
	}, requirements...)
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{
		Group: nodeClass.GroupVersionKind().Group, Kind: nodeClass.GetKind(), Name: nodeClass.GetName(),
	}
	for _, object := range []client.Object{nodeClass, pool} {
		if err := await(ctx, "the API server to take a "+fmt.Sprintf("%T", object), func(ctx context.Context) (bool, error) {
			err := tenant.Create(ctx, object)
			if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
				return false, nil // its CRD is not served yet
			}
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return await(ctx, "the pool to be ready", func(ctx context.Context) (bool, error) {
		err := tenant.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		return pool.StatusConditions().Root().IsTrue(), err
	})
}

func await(ctx context.Context, what string, check wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, waitTimeout, true, check); err != nil {
		return fmt.Errorf("waiting for %s, %w", what, err)
	}
	return nil
}

func tenantScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	karpenter := schema.GroupVersion{Group: karpapis.Group, Version: "v1"}
	metav1.AddToGroupVersion(scheme, karpenter)
	scheme.AddKnownTypes(karpenter, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	return scheme
}
