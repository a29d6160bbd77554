// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// trio is a type of exactly three servers, and the name of the pool that has them all.
const (
	trio     = "trio"
	trioSize = 3
	oldImage = "trio-old"
	newImage = "trio-new"
)

// All three servers of a pool run a pod each. The platform team points their type at a new OSImage. No fourth server is
// free, so one node after the other is drained, installed again on the same server, and comes back: at no time is more than
// one missing.
func TestDriftReplacesFullPool(t *testing.T) {
	w := enter(t, threeServers)
	w.createTrio(t, nil)
	w.createTrioPods(t, trioSize)
	before := w.trioMachines(t, trioSize)
	up := w.watchUp(t, trioSize)
	w.pointTrioAt(t, newImage)
	w.eventually(t, "a NodeClaim of NodePool trio says what has changed", func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		if err != nil {
			return "", err
		}
		for _, claim := range claims {
			if containsAll(claim.Annotations[v1alpha1.DriftAnnotationKey], "OSImageChanged: property karpenter.metal3.io/os-image of NodeType trio",
				`is "trio-new", and was "trio-old"`) == "" {
				return "", nil
			}
		}
		return fmt.Sprintf("none of %d NodeClaims does", len(claims)), nil
	})
	w.eventually(t, "the first node of NodePool trio is on the new image", w.onNewImage(1))
	w.eventually(t, "the second node of NodePool trio is on the new image", w.onNewImage(2))
	w.eventually(t, "all nodes of NodePool trio are on the new image", w.onNewImage(trioSize))
	if least := up.stop(); least < trioSize-1 {
		t.Errorf("only %d of %d nodes were there at a time, and the budget is one", least, trioSize)
	}
	after := w.trioMachines(t, trioSize)
	if !slices.Equal(slices.Sorted(maps.Values(before)), slices.Sorted(maps.Values(after))) {
		t.Errorf("the pool was on the servers %v and is on %v", before, after)
	}
	for name := range after {
		if _, stayed := before[name]; stayed {
			t.Errorf("Machine %s is still there", name)
		}
	}
}

// The same for a static pool, whose limit on nodes is its number of replicas: Karpenter alone would never move.
func TestDriftReplacesFullStaticPool(t *testing.T) {
	system.Only(t)
	w := enter(t, threeServers)
	const replicas = 2
	w.createTrio(t, func(pool *karpv1.NodePool) {
		pool.Spec.Replicas = ptr.To(int64(replicas))
		pool.Spec.Limits = karpv1.Limits(resources("nodes", fmt.Sprint(replicas)))
	})
	w.trioMachines(t, replicas)
	up := w.watchUp(t, replicas)
	w.pointTrioAt(t, newImage)
	w.eventually(t, "the first node of NodePool trio is on the new image", w.onNewImage(1))
	w.eventually(t, "all nodes of NodePool trio are on the new image", w.onNewImage(replicas))
	if least := up.stop(); least < replicas-1 {
		t.Errorf("only %d of %d nodes were there at a time, and the budget is one", least, replicas)
	}
}

// A PodDisruptionBudget allows no pod to be moved: the nodes have drifted, stay, and say why. When it is gone, they roll.
func TestDriftWaitsForPodDisruptionBudget(t *testing.T) {
	system.Only(t)
	w := enter(t, threeServers)
	w.createTrio(t, nil)
	w.createTrioPods(t, 1)
	before := w.trioMachines(t, 1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: trio},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": trio}}},
	}
	w.make(t, w.tenant, budget)
	w.eventually(t, "PodDisruptionBudget trio is in force", func(ctx context.Context) (string, error) {
		seen := &policyv1.PodDisruptionBudget{}
		err := w.tenant.Get(ctx, client.ObjectKeyFromObject(budget), seen)
		if seen.Status.ObservedGeneration == 0 {
			return "its status is not set", err
		}
		return "", err
	})
	// The other two servers are busy with something else, so that there is no spare one.
	w.occupyTheRest(t)
	w.pointTrioAt(t, newImage)
	w.eventually(t, "an event on a NodeClaim of NodePool trio names the PodDisruptionBudget",
		w.hasEvent("NodeClaim", "", "DisruptionBlocked", w.group.namespace+"/"+trio))
	for name := range w.trioMachines(t, 1) {
		if _, stayed := before[name]; !stayed {
			t.Errorf("Machine %s was given up, and its pod may not be moved", name)
		}
	}
	if err := w.tenant.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the node of NodePool trio is on the new image", w.onNewImage(1))
}

// An OSImage is edited in place, and then the type is pointed at one that does not exist. Neither moves anything.
func TestDriftIgnoresEditsAndUnknownImages(t *testing.T) {
	system.Only(t)
	w := enter(t, threeServers)
	w.createTrio(t, nil)
	w.createTrioPods(t, 1)
	before := w.trioMachines(t, 1)
	image := &v1alpha1.OSImage{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: oldImage}, image); err != nil {
		t.Fatal(err)
	}
	image.Spec.Properties[v1alpha1.PropertyImageURL] = "https://images.example.com/edited.qcow2"
	if err := w.management.Update(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	w.pointTrioAt(t, "trio-typo")
	w.eventually(t, "the NodeClaim of NodePool trio says what is wrong with the image", func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		if err != nil || len(claims) != 1 {
			return fmt.Sprintf("there are %d", len(claims)), err
		}
		why := claims[0].Annotations[v1alpha1.DriftAnnotationKey]
		if missing := containsAll(why, "this one is not replaced", "trio-typo", "no OSImage of that name"); missing != "" {
			return fmt.Sprintf("it says %q", why), nil
		}
		if claims[0].StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue() {
			t.Error("the NodeClaim is taken for drifted, and its replacement could not be installed")
		}
		return "", nil
	})
	if after := w.trioMachines(t, 1); !maps.Equal(before, after) {
		t.Errorf("the Machines were %v and are %v", before, after)
	}
}

// createTrio makes the type, its images and its pool, and takes them away after the test.
func (w *fixture) createTrio(t *testing.T, change func(*karpv1.NodePool)) {
	t.Helper()
	for _, name := range []string{oldImage, newImage} {
		w.newImage(t, name)
	}
	if !w.clusters.AllServers { // the servers trio have the label
		for _, server := range []string{"server-01", "server-02", "server-03"} {
			w.labelHost(t, server, trio, "true")
		}
	}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: trio}}
	provider.Spec.Properties = w.fleetProperties(t)
	delete(provider.Spec.Properties, v1alpha1.PropertyOSImage) // the type has its own
	provider.Spec.Metal3.ClusterRef.Namespace = hostNamespace
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{trioType(oldImage)}
	w.make(t, w.management, provider)
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: trio},
		Spec: v1alpha1.MetalNodeClassSpec{ProviderRef: &v1alpha1.NameReference{Name: trio}}}
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: trio}}
	pool.Spec.Template.Labels = map[string]string{"pool": trio}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: trio}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{trio}},
		{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeReserved}},
	}
	pool.Spec.Disruption = karpv1.Disruption{
		ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty, ConsolidateAfter: karpv1.MustParseNillableDuration("Never"),
		Budgets: []karpv1.Budget{{Nodes: "1"}},
	}
	if change != nil {
		change(pool)
	}
	w.make(t, w.tenant, class)
	w.make(t, w.tenant, pool)
	w.eventually(t, "NodeType trio has three servers", func(ctx context.Context) (string, error) {
		nodeType := &v1alpha1.NodeType{}
		if err := w.management.Get(ctx, client.ObjectKey{Name: trio}, nodeType); client.IgnoreNotFound(err) != nil {
			return "", err
		}
		if nodeType.Status.Capacity.Total != trioSize {
			return fmt.Sprintf("it has %d", nodeType.Status.Capacity.Total), nil
		}
		return "", nil
	})
}

func trioType(image string) v1alpha1.NodeTypeTemplate {
	nodeType := v1alpha1.NodeTypeTemplate{Name: trio}
	nodeType.Resources = resources("cpu", "64", "memory", "256Gi", gpu, "4")
	nodeType.Properties = map[string]string{v1alpha1.PropertyOSImage: image}
	nodeType.BareMetalHosts = &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{trio: "true"}}}
	return nodeType
}

func (w *fixture) pointTrioAt(t *testing.T, image string) {
	t.Helper()
	provider := &v1alpha1.NodeProvider{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: trio}, provider); err != nil {
		t.Fatal(err)
	}
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{trioType(image)}
	if err := w.management.Update(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
}

// createTrioPods makes pods that each want a server of the pool for themselves.
func (w *fixture) createTrioPods(t *testing.T, replicas int32) {
	t.Helper()
	asks, labels := resources("cpu", "40", gpu, "4"), map[string]string{"app": trio}
	apart := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
	}}}
	w.make(t, w.tenant, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: trio},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: ptr.To(int64(0)),
				NodeSelector:                  map[string]string{"pool": trio},
				Affinity:                      &corev1.Affinity{PodAntiAffinity: apart},
				Containers:                    []corev1.Container{w.container(asks)},
			}},
		},
	})
}

// occupyTheRest has two stand-alone Machines claim what the pool has not.
func (w *fixture) occupyTheRest(t *testing.T) {
	t.Helper()
	for n := range trioSize - 1 {
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: fmt.Sprintf("busy-%d", n)}}
		machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: trio}
		w.make(t, w.management, machine)
	}
	w.eventually(t, "no server of NodeType trio is free", func(ctx context.Context) (string, error) {
		nodeType := &v1alpha1.NodeType{}
		err := w.management.Get(ctx, client.ObjectKey{Name: trio}, nodeType)
		if nodeType.Status.Capacity.Available != 0 {
			return fmt.Sprintf("%d are", nodeType.Status.Capacity.Available), err
		}
		return "", err
	})
}

// trioMachines waits until the pool has so many nodes, and returns their servers by the name of the Machine.
func (w *fixture) trioMachines(t *testing.T, count int) map[string]string {
	t.Helper()
	servers := map[string]string{}
	w.eventually(t, fmt.Sprintf("NodePool trio has %d nodes", count), func(ctx context.Context) (string, error) {
		clear(servers)
		claims, err := w.nodeClaims(ctx)
		if err != nil {
			return "", err
		}
		for _, claim := range claims {
			if isUp(&claim) {
				_, host, machine, _ := v1alpha1.ParseProviderID(claim.Status.ProviderID)
				servers[machine] = host
			}
		}
		if len(servers) != count {
			return fmt.Sprintf("%d of %d NodeClaims are initialized", len(servers), len(claims)), nil
		}
		return "", nil
	})
	return servers
}

// onNewImage is a condition: so many servers of the pool, or more, run the new image and their nodes are up.
func (w *fixture) onNewImage(count int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		machines, err := w.machines(ctx)
		if err != nil {
			return "", err
		}
		claims, err := w.nodeClaims(ctx)
		if err != nil {
			return "", err
		}
		done := 0
		for _, machine := range machines {
			isNew := slices.ContainsFunc(machine.Status.Installed, func(f v1alpha1.InstalledField) bool {
				return v1alpha1.CanonicalKey(f.Field) == v1alpha1.PropertyOSImage && f.Value == newImage
			})
			up := slices.ContainsFunc(claims, func(claim karpv1.NodeClaim) bool { return claim.Name == machine.Name && isUp(&claim) })
			if isNew && up && meta.IsStatusConditionFalse(machine.Status.Conditions, v1alpha1.ConditionDrifted) {
				done++
			}
		}
		if done < count {
			return fmt.Sprintf("%d are, of %d Machines", done, len(machines)), nil
		}
		return "", nil
	}
}

func isUp(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp.IsZero() && claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()
}

// upCounter knows the least number of nodes that were up at a time.
type upCounter struct {
	watching watch.Interface
	done     sync.WaitGroup
	least    int
}

// watchUp begins to count, for a pool of that size.
func (w *fixture) watchUp(t *testing.T, size int) *upCounter {
	t.Helper()
	watching, err := w.tenant.Watch(t.Context(), &karpv1.NodeClaimList{})
	if err != nil {
		t.Fatal(err)
	}
	counter := &upCounter{watching: watching, least: size}
	counter.done.Go(func() {
		up, full := map[string]bool{}, false
		for event := range watching.ResultChan() {
			claim, ok := event.Object.(*karpv1.NodeClaim)
			if !ok || !w.group.owns(claim.Name) {
				continue
			}
			delete(up, claim.Name)
			if event.Type != watch.Deleted && isUp(claim) {
				up[claim.Name] = true
			}
			// A watch begins with what there is, one after the other.
			if full = full || len(up) == size; full {
				counter.least = min(counter.least, len(up))
			}
		}
	})
	return counter
}

// stop ends the counting and returns the result.
func (c *upCounter) stop() int {
	c.watching.Stop()
	c.done.Wait()
	return c.least
}

func (w *fixture) labelHost(t *testing.T, name, key, value string) {
	t.Helper()
	hosts, err := w.hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range hosts {
		if hosts[i].Name != name {
			continue
		}
		before := hosts[i].DeepCopy()
		hosts[i].Labels[key] = value
		if err := w.management.Patch(t.Context(), &hosts[i], client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.management.Patch(context.Background(), before.DeepCopy(), client.RawPatch("application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, key))); err != nil {
				t.Error(err)
			}
		})
	}
}
