// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodetype"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory/feed"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// fleet is a provider with a namespace and one type of its own, and a manager that feeds and reports.
type fleet struct {
	*testing.T
	namespace string
	provider  *v1alpha1.NodeProvider
	nodeType  *v1alpha1.NodeType
	inventory *inventory.Inventory
	events    *events.FakeRecorder
}

func newFleet(t *testing.T, change func(*v1alpha1.NodeType)) *fleet {
	t.Helper()
	f := &fleet{T: t, namespace: environment.Namespace(t), inventory: inventory.NewInventory(inventory.Options{}),
		events: events.NewFakeRecorder(1000)}
	f.provider = &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	f.provider.Spec.Metal3.ClusterRef.Namespace = f.namespace
	f.create(f.provider)
	f.nodeType = &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-h100"}}
	f.nodeType.Spec.ProviderRef.Name = f.provider.Name
	f.nodeType.Spec.Resources = env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")
	f.nodeType.Spec.BareMetalHosts = env.HostsWith(map[string]string{"gpu": "h100"})
	if change != nil {
		change(f.nodeType)
	}
	f.create(f.nodeType)
	return f
}

func (f *fleet) create(object client.Object) {
	f.Helper()
	if err := environment.Client.Create(f.Context(), object); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) host(name string) *bmov1alpha1.BareMetalHost {
	return environment.CreateHost(f,
		env.AvailableHost(f.namespace, name, map[string]string{"gpu": "h100", "datacenter": "dc1", "rack": "r-" + name}))
}

// start runs the manager until the test ends.
func (f *fleet) start() {
	f.Helper()
	run(f.T, &environment, f.inventory, about(f.events, f.namespace))
}

// about returns a recorder of the events of objects in a namespace, and of those whose names begin with it: the tests of this package have
// one API server.
func about(recorder events.EventRecorder, namespace string) events.EventRecorder {
	return &filter{recorder, namespace}
}

type filter struct {
	events.EventRecorder
	namespace string
}

// Eventf implements events.EventRecorder.
func (f *filter) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	object, isObject := regarding.(client.Object)
	if isObject && (object.GetNamespace() == f.namespace || strings.HasPrefix(object.GetName(), f.namespace)) {
		f.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
	}
}

// run runs a manager that feeds an inventory and writes what it counts, with what others add, until the test ends.
func run(t *testing.T, api *env.Environment, hosts *inventory.Inventory, recorder events.EventRecorder,
	others ...func(manager.Manager) registrar) {
	t.Helper()
	mgr, err := ctrl.NewManager(api.Config, ctrl.Options{
		Scheme: api.Scheme, Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(feed.New(mgr.GetCache(), hosts)); err != nil {
		t.Fatal(err)
	}
	controllers := []registrar{nodetype.NewController(mgr.GetClient(), hosts, recorder, clock.RealClock{},
		*resource.NewQuantity(capacity.DefaultEphemeralStorage, resource.BinarySI))}
	for _, construct := range others {
		controllers = append(controllers, construct(mgr))
	}
	for _, controller := range controllers {
		if err := controller.Register(t.Context(), mgr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("the manager stopped with %v", err)
		}
	})
}

// registrar is a controller.
type registrar interface {
	Register(context.Context, manager.Manager) error
}

// eventually waits until capacity and the two conditions' reasons and the message of HasCapacity are as wanted.
func (f *fleet) eventually(what string, capacity v1alpha1.Capacity, synced, hasCapacity, message string) *v1alpha1.NodeType {
	f.Helper()
	got := &v1alpha1.NodeType{}
	poll.Eventually(f, what, func(ctx context.Context) error {
		if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeType), got); err != nil {
			return err
		}
		reason := func(name string) string {
			condition := meta.FindStatusCondition(got.Status.Conditions, name)
			if condition == nil {
				return ""
			}
			if name == v1alpha1.ConditionHasCapacity {
				return condition.Reason + ": " + condition.Message
			}
			return condition.Reason
		}
		if diff := cmp.Diff(
			[]any{capacity, synced, hasCapacity + ": " + message},
			[]any{got.Status.Capacity, reason(v1alpha1.ConditionSynced), reason(v1alpha1.ConditionHasCapacity)},
		); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	return got
}

func TestStatusFollowsHosts(t *testing.T) {
	f := newFleet(t, nil)
	first := f.host("server-01")
	f.start()
	f.eventually("one server is counted", v1alpha1.Capacity{Total: 1, Available: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"1 server matches, 0 claimed, 0 in error, 1 available")

	second := f.host("server-02")
	f.eventually("a new server is counted", v1alpha1.Capacity{Total: 2, Available: 2}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"2 servers match, 0 claimed, 0 in error, 2 available")

	first.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "tenant",
		Name: "m"}
	if err := environment.Client.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second.Status.OperationalStatus, second.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.RegistrationError
	if err := environment.Client.Status().Update(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	got := f.eventually("none is to be had", v1alpha1.Capacity{Total: 2, Claimed: 1, Error: 1}, v1alpha1.ReasonSynced,
		v1alpha1.ReasonExhausted,
		"2 servers match, 1 claimed, 1 in error")
	if ready := conditions.Find(got.Status.Conditions, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("a type without a free server is not ready: %+v", ready)
	}
	for _, managed := range got.ManagedFields {
		if text := managed.FieldsV1.GetRawString(); strings.Contains(text, "f:values") {
			t.Errorf("managedFields repeat the values of requirements, which each watch of the type carries: %s", text)
		}
	}
	got.Status.Conditions, got.Status.CountedUntil = nil, 0 // claims of other tests count, too
	name := f.nodeType.Name
	want := v1alpha1.NodeTypeStatus{
		ObservedGeneration: got.Generation,
		Cost:               82496, Accelerators: "nvidia.com/gpu=8",
		Resources:        env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"),
		Capacity:         v1alpha1.Capacity{Total: 2, Claimed: 1, Error: 1},
		EphemeralStorage: ptr.To(resource.MustParse("20Gi")),
		Zones:            []v1alpha1.ZoneCapacity{{Name: "dc1", Capacity: v1alpha1.Capacity{Total: 2, Claimed: 1, Error: 1}}},
		Domains: []v1alpha1.DomainCapacity{
			{Zone: "dc1", Labels: map[string]string{"datacenter": "dc1", "rack": "r-server-01"}, Capacity: v1alpha1.Capacity{Total: 1, Claimed: 1}},
			{Zone: "dc1", Labels: map[string]string{"datacenter": "dc1", "rack": "r-server-02"}, Capacity: v1alpha1.Capacity{Total: 1, Error: 1}},
		},
		Requirements: []v1alpha1.NodeTypeRequirement{
			{Key: "datacenter", Values: []string{"dc1"}},
			{Key: "karpenter.metal3.io/instance-cpu", Values: []string{"96"}},
			{Key: "karpenter.metal3.io/instance-gpu-count", Values: []string{"8"}},
			{Key: "karpenter.metal3.io/instance-gpu-manufacturer", Values: []string{"nvidia"}},
			{Key: "karpenter.metal3.io/instance-memory", Values: []string{"786432"}}, {Key: v1alpha1.NodeTypeLabelKey, Values: []string{name}},
			{Key: "kubernetes.io/arch", Values: []string{"amd64"}}, {Key: "kubernetes.io/os", Values: []string{"linux"}},
			{Key: "node.kubernetes.io/instance-type", Values: []string{name}}, {Key: "rack", Values: []string{"r-server-01", "r-server-02"}},
			{Key: "topology.kubernetes.io/zone", Values: []string{"dc1"}},
		},
	}
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("requirements come from all hosts, also those in use (-want +got):\n%s", diff)
	}

	for _, host := range []*bmov1alpha1.BareMetalHost{first, second} {
		if err := environment.Client.Delete(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("none is left", v1alpha1.Capacity{}, v1alpha1.ReasonSynced, v1alpha1.ReasonNoHosts,
		fmt.Sprintf("no BareMetalHost of NodeProvider %s matches %q: label the servers, or correct bareMetalHosts.selector", f.provider.Name,
			"gpu=h100"))
}

func TestMaxCapacityLimits(t *testing.T) {
	f := newFleet(t, func(nodeType *v1alpha1.NodeType) { nodeType.Spec.MaxCapacity = ptr.To(int32(1)) })
	f.host("server-01")
	f.host("server-02")
	f.start()
	f.eventually("one of two is available", v1alpha1.Capacity{Total: 2, Available: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"2 servers match, 0 claimed, 0 in error, 1 available")
	choice, err := f.inventory.Choose(inventory.Request{Machine: "m", NodeType: f.nodeType.Name})
	if err != nil || !f.inventory.Assume(choice, "m") {
		t.Fatal(err)
	}
	f.eventually("a server that is given out counts", v1alpha1.Capacity{Total: 2, Claimed: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonExhausted,
		"2 servers match, 1 claimed, 0 in error; maxCapacity 1 is reached")
}

func TestInvalidTypeKeepsRequirements(t *testing.T) {
	f := newFleet(t, nil)
	f.host("server-01")
	f.start()
	f.eventually("one server is counted", v1alpha1.Capacity{Total: 1, Available: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"1 server matches, 0 claimed, 0 in error, 1 available")

	const invalid = `no server is selected: bareMetalHosts.selector.matchExpressions[0] (gpu Is []) is not valid: "Is" is not a valid label ` +
		`selector operator: correct it`
	f.edit(func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.BareMetalHosts.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "gpu", Operator: "Is"}}
	})
	got := f.eventually("the selector is refused", v1alpha1.Capacity{}, v1alpha1.ReasonInvalidSelector, v1alpha1.ReasonInvalidSelector,
		invalid)
	if len(got.Status.Zones) != 1 || got.Status.Zones[0].Total != 0 || len(got.Status.Requirements) == 0 {
		t.Errorf("zones and requirements are gone, which tenants take for drift: %+v", got.Status)
	}
	if event := <-f.events.Events; event != "Warning InvalidSelector "+invalid {
		t.Errorf("event %q", event)
	}

	f.edit(func(nodeType *v1alpha1.NodeType) { nodeType.Spec.BareMetalHosts.Selector.MatchExpressions = nil })
	f.eventually("the selector is mended", v1alpha1.Capacity{Total: 1, Available: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"1 server matches, 0 claimed, 0 in error, 1 available")

	if err := environment.Client.Delete(t.Context(), f.provider); err != nil {
		t.Fatal(err)
	}
	missing := fmt.Sprintf("NodeProvider %s does not exist: create it, or delete this NodeType", f.provider.Name)
	f.eventually("the provider is missed", v1alpha1.Capacity{}, v1alpha1.ReasonProviderNotFound, v1alpha1.ReasonProviderNotFound, missing)

	if err := environment.Client.Delete(t.Context(), f.nodeType); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the type is forgotten", func(context.Context) error {
		if _, known := f.inventory.Summary(f.nodeType.Name); known {
			return fmt.Errorf("the inventory still knows it")
		}
		return nil
	})
}

// edit changes the spec as a user would, whatever the controller writes meanwhile.
func (f *fleet) edit(change func(*v1alpha1.NodeType)) {
	f.Helper()
	poll.Eventually(f, "the edit is accepted", func(ctx context.Context) error {
		nodeType := &v1alpha1.NodeType{}
		if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeType), nodeType); err != nil {
			return err
		}
		change(nodeType)
		return environment.Client.Update(ctx, nodeType)
	})
}

// TestStatusWritesAreBatched changes many hosts at once and counts the versions of the status that were written.
func TestStatusWritesAreBatched(t *testing.T) {
	const servers = 100
	f := newFleet(t, nil)
	f.start()
	f.eventually("there is none", v1alpha1.Capacity{}, v1alpha1.ReasonSynced, v1alpha1.ReasonNoHosts,
		fmt.Sprintf("no BareMetalHost of NodeProvider %s matches %q: label the servers, or correct bareMetalHosts.selector", f.provider.Name,
			"gpu=h100"))
	writes, stop := f.countWrites()
	for n := range servers {
		// Straight into the inventory, as from one large answer of the watch.
		f.inventory.SetHost(env.AvailableHost(f.namespace, fmt.Sprintf("server-%03d", n), map[string]string{"gpu": "h100"}))
	}
	f.eventually("all are counted", v1alpha1.Capacity{Total: servers, Available: servers}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		fmt.Sprintf("%d servers match, 0 claimed, 0 in error, %d available", servers, servers))
	stop()
	if got := len(writes); got > servers/10 {
		t.Errorf("%d writes for %d hosts", got, servers)
	}
}

// countWrites watches the type until stop is called, which waits for the end of the watch.
func (f *fleet) countWrites() (writes chan struct{}, stop func()) {
	f.Helper()
	watching, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		f.Fatal(err)
	}
	current := &v1alpha1.NodeType{}
	if err := environment.Client.Get(f.Context(), client.ObjectKeyFromObject(f.nodeType), current); err != nil {
		f.Fatal(err)
	}
	watch, err := watching.Watch(f.Context(), &v1alpha1.NodeTypeList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: current.ResourceVersion, FieldSelector: "metadata.name=" + f.nodeType.Name},
	})
	if err != nil {
		f.Fatal(err)
	}
	writes, done := make(chan struct{}, 10000), make(chan struct{})
	go func() {
		defer close(done)
		for range watch.ResultChan() {
			writes <- struct{}{}
		}
	}()
	return writes, func() {
		watch.Stop()
		<-done
	}
}
