// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

var environment env.Environment

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	env.Main(m, &environment)
}

// fixture is one tenant with its CloudProvider; the test plays the manager.
type fixture struct {
	*CloudProvider
	t         *testing.T
	ctx       context.Context
	namespace string
	nodeType  string
	class     *v1alpha1.MetalNodeClass
	events    *record.FakeRecorder
}

// newFixture makes a tenant that may have one type, with two servers of four accelerators. intercept may be the zero
// value; it stands between the provider and the management cluster.
func newFixture(t *testing.T, intercept interceptor.Funcs) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel((&options.Options{}).ToContext(context.Background()))
	f := &fixture{t: t, ctx: ctx, namespace: environment.Namespace(t), events: record.NewFakeRecorder(100)}
	f.nodeType = "a100-" + f.namespace
	f.create(&v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "tenant"},
		Spec:       v1alpha1.TenantClusterSpec{APIServerEndpoint: "192.0.2.1:6443", AllowedNodeTypes: &[]string{f.nodeType}},
	})
	f.class = &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}, Spec: v1alpha1.MetalNodeClassSpec{
		Properties:  map[string]string{v1alpha1.PropertyOSImage: "ubuntu"},
		KubeletArgs: v1alpha1.KubeletArgs{"max-pods": "200"},
	}}
	f.create(f.class)
	f.setReady(metav1.ConditionTrue)
	nodeType := newNodeType(f.nodeType)
	written := nodeType.Status
	f.create(nodeType)
	nodeType.Status = written
	f.updateStatus(nodeType)

	management, err := cluster.New(environment.Config, func(o *cluster.Options) {
		o.Scheme = environment.Scheme
		o.Cache.DefaultNamespaces = map[string]cache.Config{f.namespace: {}}
	})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	// Writes and live reads go through the interceptor, cached reads do not: they need no API server.
	direct := interceptor.NewClient(live, intercept)
	servers, err := NewManagement(ctx, management.GetCache(), cachedReads{Client: direct, Reader: management.GetCache()}, direct,
		instancetypes.NewCatalog(instancetypes.DefaultPods))
	if err != nil {
		t.Fatal(err)
	}
	if err := servers.Synced(); !errors.Is(err, errNotSynced) {
		t.Errorf("before the cache starts, Synced() is %v", err)
	}
	f.CloudProvider = New(environment.Client, environment.Client, servers, events.NewRecorder(f.events), clock.RealClock{}, Options{
		Namespace: f.namespace, TenantCluster: "tenant", ClaimTimeout: poll.Patience(), RebootConditions: DefaultRebootConditions(),
	})
	if err := f.Watch(ctx, management.GetCache(), management.GetCache()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.List(ctx); !errors.Is(err, errNotSynced) {
		t.Errorf("before the cache starts, List() returns %v", err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- management.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("stopping the cache, %v", err)
		}
	})
	f.eventually("the cache to be filled", func() error { return servers.Synced() })
	return f
}

// cachedReads writes with one client and reads with the cache.
type cachedReads struct {
	client.Client
	client.Reader
}

func (c cachedReads) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.Reader.Get(ctx, key, object, opts...)
}

func (c cachedReads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Reader.List(ctx, list, opts...)
}

func newNodeType(name string) *v1alpha1.NodeType {
	return &v1alpha1.NodeType{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: env.MadeBy("metal3")},
		Spec: v1alpha1.NodeTypeSpec{
			ProviderRef: v1alpha1.NameReference{Name: "metal3"},
			HardwareProfile: v1alpha1.HardwareProfile{
				Resources: env.Resources("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "4"),
				Overhead:  &v1alpha1.NodeTypeOverhead{KubeReserved: env.Resources("cpu", "1")},
			},
		},
		Status: v1alpha1.NodeTypeStatus{
			Cost:  41741,
			Zones: []v1alpha1.ZoneCapacity{{Name: "dc1", Capacity: v1alpha1.Capacity{Total: 2, Available: 2}}},
			Requirements: []v1alpha1.NodeTypeRequirement{
				{Key: corev1.LabelInstanceTypeStable, Values: []string{name}},
				{Key: corev1.LabelTopologyZone, Values: []string{"dc1"}},
				{Key: "rack", Values: []string{"r1", "r2"}},
			},
		},
	}
}

func (f *fixture) create(object client.Object) {
	f.t.Helper()
	if err := environment.Client.Create(f.ctx, object); err != nil {
		f.t.Fatalf("creating %T, %v", object, err)
	}
	if nodeClaim, ok := object.(*karpv1.NodeClaim); ok {
		f.t.Cleanup(func() { f.remove(nodeClaim.Name) })
	}
}

// remove deletes a NodeClaim, whatever its finalizers. All tests have one API server, and a NodeClaim that has no server takes one from
// the tenants of the others.
func (f *fixture) remove(name string) {
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	noFinalizers := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for _, err := range []error{environment.Client.Patch(f.ctx, nodeClaim, noFinalizers), environment.Client.Delete(f.ctx, nodeClaim)} {
		if client.IgnoreNotFound(err) != nil {
			f.t.Errorf("removing NodeClaim %s, %v", name, err)
		}
	}
}

func (f *fixture) updateStatus(object client.Object) {
	f.t.Helper()
	if err := environment.Client.Status().Update(f.ctx, object); err != nil {
		f.t.Fatalf("writing the status of %T, %v", object, err)
	}
}

// nodePool makes a NodePool of the fixture's type, with a label that its pods select.
func (f *fixture) nodePool() *karpv1.NodePool {
	f.t.Helper()
	nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu-" + f.namespace}}
	nodePool.Spec.Template.Spec.NodeClassRef = f.nodeClaim("any").Spec.NodeClassRef
	nodePool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{f.nodeType}}}
	nodePool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	nodePool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	nodePool.Spec.Template.Labels = map[string]string{"tenant": f.namespace}
	f.create(nodePool)
	return nodePool
}

// podFor is a pod of a NodePool with these requests.
func podFor(nodePool *karpv1.NodePool, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: nodePool.Spec.Template.Labels, Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: requests}}}}}
}

// freeTwo has the type say that both of its servers are free, and waits until a NodePool could have them.
func (f *fixture) freeTwo(nodePool *karpv1.NodePool) {
	f.t.Helper()
	nodeType := &v1alpha1.NodeType{}
	if err := environment.Client.Get(f.ctx, types.NamespacedName{Name: f.nodeType}, nodeType); err != nil {
		f.t.Fatal(err)
	}
	nodeType.Status.Capacity = v1alpha1.Capacity{Total: 2, Available: 2}
	f.updateStatus(nodeType)
	f.eventually("two servers are free", func() error {
		free, _, err := f.FreeFor(f.ctx, nodePool)
		if err == nil && free != 2 {
			err = fmt.Errorf("%d are free", free)
		}
		return err
	})
}

func (f *fixture) setReady(ready metav1.ConditionStatus) {
	f.t.Helper()
	switch ready {
	case metav1.ConditionTrue:
		f.class.StatusConditions().SetTrue(v1alpha1.ConditionValidationSucceeded)
	case metav1.ConditionFalse:
		f.class.StatusConditions().SetFalse(v1alpha1.ConditionValidationSucceeded, "Wrong", "the image is missing")
	default:
		f.class.SetConditions([]status.Condition{})
	}
	f.updateStatus(f.class)
}

// nodeClaim is what core asks for. It exists in memory only: the provider writes none.
func (f *fixture) nodeClaim(name string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{karpv1.NodePoolLabelKey: "gpu", "team": "vision"},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: f.class.Name},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{f.nodeType}},
				{Key: karpv1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"gpu"}},
			},
			Resources: karpv1.ResourceRequirements{Requests: env.Resources("nvidia.com/gpu", "1", "pods", "1")},
			Taints:    []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}},
		},
	}
}

// answer plays the manager: it waits for the Machine and writes into its status.
func (f *fixture) answer(name string, write func(*v1alpha1.Machine)) {
	machine := &v1alpha1.Machine{}
	f.eventually("machine "+name, func() error {
		return environment.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: name}, machine)
	})
	write(machine)
	if err := environment.Client.Status().Update(f.ctx, machine); err != nil {
		f.t.Errorf("writing the status of machine %s, %v", name, err)
	}
}

// claims is the manager's answer that a server has been claimed.
func (f *fixture) claims(machine *v1alpha1.Machine) {
	cost := int64(41741)
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: "a100-01", UID: "1"}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: f.nodeType}
	machine.Status.Cost = &cost
	machine.Status.ProviderID = v1alpha1.ProviderID("metal3", "a100-01", machine.Name)
	machine.Status.NodeLabels = map[string]string{corev1.LabelTopologyZone: "dc1", "rack": "r1"}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonClaimed, ObservedGeneration: machine.Generation,
	})
}

// refuses is the manager's answer that there will be no server.
func refuses(reason, message string) func(*v1alpha1.Machine) {
	return func(machine *v1alpha1.Machine) {
		meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: machine.Generation,
		})
	}
}

// machineGone checks that the API server has no such Machine.
func (f *fixture) machineGone(name string) {
	f.t.Helper()
	err := environment.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: name}, &v1alpha1.Machine{})
	if !apierrors.IsNotFound(err) {
		f.t.Errorf("machine %s is left behind (%v)", name, err)
	}
}

// eventually waits until the check passes.
func (f *fixture) eventually(what string, check func() error) {
	f.t.Helper()
	poll.Eventually(f.t, what, func(context.Context) error { return check() })
}

// wantEvent checks that an event with that text has been published.
func (f *fixture) wantEvent(parts ...string) {
	f.t.Helper()
	select {
	case event := <-f.events.Events:
		for _, part := range parts {
			if !strings.Contains(event, part) {
				f.t.Errorf("event %q does not contain %q", event, part)
			}
		}
	default:
		f.t.Errorf("no event, want one with %q", parts)
	}
}
