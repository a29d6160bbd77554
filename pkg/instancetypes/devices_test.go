// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unique"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

const nodeName = "n1"

// server is one server of a type: as core plans it before it is claimed, and as kube-scheduler sees its node.
type server struct {
	instanceType *cloudprovider.InstanceType
	core         *dynamicresources.Allocator
	classes      []*resourcev1.DeviceClass
	published    []*resourcev1.ResourceSlice
	allocated    structured.AllocatedState
}

func newServer(t *testing.T, groups []v1alpha1.NodeTypeDevice, classes ...*resourcev1.DeviceClass) *server {
	t.Helper()
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}
	nodeType.Spec.Resources, nodeType.Spec.Devices = env.Resources("cpu", "64", "memory", "512Gi"), groups
	nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "rack", Values: []string{"r1"}}}
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	catalog.Set(nodeType)
	instanceType := catalog.InstanceTypes(instancetypes.NewFilter(nil, nil))[0]
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme)
	for _, class := range classes {
		builder = builder.WithObjects(class)
	}
	return &server{
		instanceType: instanceType, classes: classes, published: publishedBy(instanceType),
		core: dynamicresources.NewAllocator(nil, dynamicresources.AllocatedDeviceState{},
			dynamicresources.BuildAttributeBindings(map[string][]*cloudprovider.InstanceType{"pool": {instanceType}}), builder.Build(),
			nil),
		allocated: structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection()},
	}
}

// publishedBy are the ResourceSlices of the node, in which a driver has room for as many devices and sets of counters as Kubernetes allows.
func publishedBy(instanceType *cloudprovider.InstanceType) (published []*resourcev1.ResourceSlice) {
	perDriver, roots := map[string]int64{}, map[cloudprovider.DeviceID]string{}
	for n, binding := range instanceType.DynamicResources.AttributeBindings {
		for _, device := range binding.Devices {
			roots[device] = fmt.Sprintf("pci0000:%02x", n)
		}
	}
	add := func(template *cloudprovider.ResourceSliceTemplate, spec resourcev1.ResourceSliceSpec) {
		spec.Driver, spec.NodeName = template.Driver.Value(), ptr.To(nodeName)
		spec.Pool = resourcev1.ResourcePool{Name: nodeName, Generation: 1}
		perDriver[spec.Driver]++
		published = append(published, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", spec.Driver, perDriver[spec.Driver])}, Spec: spec})
	}
	for _, template := range instanceType.DynamicResources.ResourceSliceTemplates {
		for counters := range slices.Chunk(template.SharedCounters, resourcev1.ResourceSliceMaxCounterSets) {
			add(template, resourcev1.ResourceSliceSpec{SharedCounters: counters})
		}
		for chunk := range slices.Chunk(template.Devices, resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures) {
			spec := resourcev1.ResourceSliceSpec{}
			for _, device := range chunk {
				attributes := maps.Clone(device.Attributes)
				if root, found := roots[cloudprovider.DeviceID{Driver: template.Driver, Pool: template.Pool.Name,
					Device: device.Name}]; found {
					attributes[devices.PCIeRoot] = resourcev1.DeviceAttribute{StringValue: ptr.To(root)}
				}
				spec.Devices = append(spec.Devices, resourcev1.Device{Name: device.Name.Value(), Attributes: attributes,
					Capacity: device.Capacity, ConsumesCounters: device.ConsumesCounters,
					AllowMultipleAllocations: ptr.To(device.AllowMultipleAllocations)})
			}
			add(template, spec)
		}
	}
	for _, slice := range published {
		slice.Spec.Pool.ResourceSliceCount = perDriver[slice.Spec.Driver]
	}
	return published
}

func (s *server) ID() dynamicresources.NodeClaimID         { return unique.Make("claim") }
func (s *server) NodeName() string                         { return "" }
func (s *server) NodePoolID() dynamicresources.NodePoolID  { return unique.Make("pool") }
func (s *server) Requirements() scheduling.Requirements    { return scheduling.NewRequirements() }
func (s *server) List() ([]*resourcev1.DeviceClass, error) { return s.classes, nil }
func (s *server) InstanceTypes() []dynamicresources.InstanceTypeID {
	return []dynamicresources.InstanceTypeID{unique.Make(s.instanceType.Name)}
}

func (s *server) ResourceSlices() map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice {
	var templates []dynamicresources.ResourceSlice
	for _, template := range s.instanceType.DynamicResources.ResourceSliceTemplates {
		templates = append(templates, dynamicresources.NewTemplateSlice(template))
	}
	return map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice{s.InstanceTypes()[0]: templates}
}

// Get is for kube-scheduler's allocator, with List.
func (s *server) Get(name string) (*resourcev1.DeviceClass, error) {
	for _, class := range s.classes {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no class %s", name)
}

// plans returns whether core plans a pod with the claims on this server beside those that it has planned already.
func (s *server) plans(claims ...*resourcev1.ResourceClaim) bool {
	ctx := log.IntoContext(context.Background(), logr.Discard())
	result, err := s.core.Allocate(ctx, s, claims)
	if err != nil {
		return false
	}
	result.Allocation.Commit(ctx)
	return true
}

// schedules returns whether kube-scheduler allocates the claims of a pod on the node beside those that it has allocated already.
func (s *server) schedules(t *testing.T, claims ...*resourcev1.ResourceClaim) bool {
	t.Helper()
	allocator, err := structured.NewAllocator(t.Context(), structured.Features{AdminAccess: true, ConsumableCapacity: true,
		PartitionableDevices: true, PrioritizedList: true, DeviceTaints: true}, s.allocated, s, s.published,
		cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		t.Fatal(err)
	}
	results, err := allocator.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, claims)
	if err != nil || len(results) != len(claims) {
		return false
	}
	for _, result := range results {
		for _, device := range result.Devices.Results {
			id := structured.MakeDeviceID(device.Driver, device.Pool, device.Device)
			switch {
			case ptr.Deref(device.AdminAccess, false):
			case device.ShareID != nil:
				s.allocated.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, device.ShareID))
				s.allocated.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, device.ConsumedCapacity))
			default:
				s.allocated.AllocatedDevices.Insert(id)
			}
		}
	}
	return true
}

func classOf(name string, selectors ...string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Selectors = selectorsOf(selectors...)
	return class
}

func selectorsOf(expressions ...string) (selectors []resourcev1.DeviceSelector) {
	for _, expression := range expressions {
		selectors = append(selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}})
	}
	return selectors
}

func claimOf(name string, requests ...resourcev1.ExactDeviceRequest) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for n, request := range requests {
		request.AllocationMode = resourcev1.DeviceAllocationModeExactCount
		request.Count = max(1, request.Count)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests,
			resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", n), Exactly: &request})
	}
	return claim
}

// firstOf makes a claim for what the first request asks for, or else the second.
func firstOf(name string, requests ...resourcev1.ExactDeviceRequest) *resourcev1.ResourceClaim {
	claim := claimOf(name, requests...)
	either := resourcev1.DeviceRequest{Name: "either"}
	for _, request := range claim.Spec.Devices.Requests {
		exactly := request.Exactly
		either.FirstAvailable = append(either.FirstAvailable, resourcev1.DeviceSubRequest{Name: request.Name,
			DeviceClassName: exactly.DeviceClassName, AllocationMode: exactly.AllocationMode, Count: exactly.Count,
			Selectors: exactly.Selectors, Capacity: exactly.Capacity})
	}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{either}
	return claim
}

func requesting(memory string) *resourcev1.CapacityRequirements {
	return &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}
}

// GPUs of a type: 4 that claims share, and 8 that are cut into 7 slices each.
func sharedGPUs() []v1alpha1.NodeTypeDevice {
	return []v1alpha1.NodeTypeDevice{{Driver: "gpu.example.com", Count: 4, AllowMultipleAllocations: true,
		Capacity: quantities("memory", "80Gi"),
		RequestPolicies: map[string]resourcev1.CapacityRequestPolicy{"memory": {Default: ptr.To(resource.MustParse("1Gi")),
			ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1Gi")),
				Step: ptr.To(resource.MustParse("1Gi"))}}}}}
}

func partitionedGPUs() []v1alpha1.NodeTypeDevice {
	kind := func(name string) map[string]v1alpha1.NodeTypeDeviceAttribute {
		return map[string]v1alpha1.NodeTypeDeviceAttribute{"type": {String: &name}}
	}
	return []v1alpha1.NodeTypeDevice{
		{Driver: "gpu.example.com", Count: 8, Attributes: kind("gpu"), Capacity: quantities("memory", "80Gi"),
			SharedCounters: []v1alpha1.NodeTypeCounterSet{{Name: "gpu", Count: 8, Counters: quantities("memory", "80Gi", "slices", "7")}},
			ConsumesCounters: []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: quantities("memory", "80Gi", "slices",
				"7")}}},
		{Driver: "gpu.example.com", Count: 56, Attributes: kind("mig"), Capacity: quantities("memory", "10Gi"),
			ConsumesCounters: []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: quantities("memory", "10Gi", "slices",
				"1")}}},
	}
}

func quantities(pairs ...string) map[string]resource.Quantity {
	result := map[string]resource.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		result[pairs[i]] = resource.MustParse(pairs[i+1])
	}
	return result
}

// TestSharedDevicesArePlanned has core plan pods with a claim each.
func TestSharedDevicesArePlanned(t *testing.T) {
	part := resourcev1.ExactDeviceRequest{DeviceClassName: "any", Capacity: requesting("20Gi")}
	whole, slice := resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}, resourcev1.ExactDeviceRequest{DeviceClassName: "mig"}
	board := whole
	board.Count = 8
	for name, tc := range map[string]struct {
		reason  string
		devices []v1alpha1.NodeTypeDevice
		pods    map[*resourcev1.ExactDeviceRequest]int
		want    int
	}{
		"Parts":      {"eight parts of 20Gi are two GPUs", sharedGPUs(), map[*resourcev1.ExactDeviceRequest]int{&part: 8}, 1},
		"ManyParts":  {"four GPUs have sixteen such parts", sharedGPUs(), map[*resourcev1.ExactDeviceRequest]int{&part: 17}, 2},
		"Slices":     {"8 GPUs have 56 slices", partitionedGPUs(), map[*resourcev1.ExactDeviceRequest]int{&slice: 56}, 1},
		"ManySlices": {"and no more", partitionedGPUs(), map[*resourcev1.ExactDeviceRequest]int{&slice: 57}, 2},
		"Wholes":     {"8 GPUs", partitionedGPUs(), map[*resourcev1.ExactDeviceRequest]int{&whole: 8}, 1},
		"Both": {"slices of one GPU leave seven whole ones", partitionedGPUs(),
			map[*resourcev1.ExactDeviceRequest]int{&whole: 7, &slice: 7}, 1},
		"Board":        {"a claim for all", partitionedGPUs(), map[*resourcev1.ExactDeviceRequest]int{&board: 1}, 1},
		"BoardAndPart": {"no slice is left of them", partitionedGPUs(), map[*resourcev1.ExactDeviceRequest]int{&board: 1, &slice: 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := planning.NodeType("gpus", 0, planning.Domain(9))
			nodeType.Spec.Devices = tc.devices
			objects := []client.Object{classOf("any"), classOf("gpu", `device.attributes["gpu.example.com"].type == "gpu"`),
				classOf("mig", `device.attributes["gpu.example.com"].type == "mig"`)}
			for request, count := range tc.pods {
				for range count {
					claim := claimOf(fmt.Sprintf("claim-%02d", len(objects)), *request)
					objects = append(objects, claim, planning.Pod("pod-"+claim.Name, []string{"cpu", "100m"}, func(pod *corev1.Pod) {
						pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: &claim.Name}}
					}))
				}
			}
			results := planning.Plan{Types: []*v1alpha1.NodeType{nodeType}, Objects: objects}.Solve(t)
			if len(results.NewNodeClaims) != tc.want || len(results.PodErrors) > 0 {
				t.Errorf("%d servers, want %d: %s; errors: %v", len(results.NewNodeClaims), tc.want, tc.reason, results.PodErrors)
			}
		})
	}
}

// TestPartsFillGPUs: parts of a GPU are given out before another GPU is begun.
func TestPartsFillGPUs(t *testing.T) {
	s, used := newServer(t, sharedGPUs(), classOf("any")), map[string]int{}
	for n := range 8 {
		claim := claimOf(fmt.Sprint(n), resourcev1.ExactDeviceRequest{DeviceClassName: "any", Capacity: requesting("20Gi")})
		if !s.plans(claim) || !s.schedules(t, claim) {
			t.Fatalf("pod %d gets no server", n)
		}
		for _, device := range s.core.ResourceClaimAllocationMetadataForClaim(client.ObjectKeyFromObject(claim)).Devices[s.InstanceTypes()[0]] {
			used[device.DeviceID.Device.Value()]++
		}
	}
	if len(used) != 2 || len(s.allocated.AggregatedCapacity) != 2 {
		t.Errorf("core has planned %v, and kube-scheduler allocated %v: want four parts of two GPUs each", used,
			s.allocated.AggregatedCapacity)
	}
}

// TestCoreOverlooks holds docs/finite-hardware/shared-devices.md to where core v1.15.0 plans otherwise than kube-scheduler allocates. A
// case that fails after an update of core is good news: correct the page.
func TestCoreOverlooks(t *testing.T) {
	gpu := func(change func(*v1alpha1.NodeTypeDevice)) []v1alpha1.NodeTypeDevice {
		device := v1alpha1.NodeTypeDevice{Driver: "gpu.example.com", Count: 1, Capacity: quantities("memory", "24Gi")}
		change(&device)
		return []v1alpha1.NodeTypeDevice{device}
	}
	request := resourcev1.ExactDeviceRequest{DeviceClassName: "any"}
	admin, large, part, parts := request, request, request, request
	admin.AdminAccess, large.Capacity, part.Capacity = ptr.To(true), requesting("40Gi"), requesting("1Gi")
	parts.Capacity, parts.Count = requesting("1Gi"), 2
	typed := request
	typed.Selectors = selectorsOf(`device.attributes["gpu.example.com"].type == "mig"`)
	two := func(device *v1alpha1.NodeTypeDevice) { device.Count = 2 }
	share := func(device *v1alpha1.NodeTypeDevice) { device.AllowMultipleAllocations = true }
	for name, tc := range map[string]struct {
		reason            string
		devices           []v1alpha1.NodeTypeDevice
		before, claim     resourcev1.ExactDeviceRequest
		planned, possible bool
	}{
		"Admin": {"admin access needs no free device", gpu(func(*v1alpha1.NodeTypeDevice) {}), request, admin, false, true},
		"AfterAdmin": {"admin access takes nothing from others", gpu(func(*v1alpha1.NodeTypeDevice) {}), admin, request,
			false, true},
		"TooLarge": {"a whole device has less than is requested", gpu(two),
			request, large,
			true, false},
		"TwoOfOne": {"the devices of one request are different ones", gpu(share), part, parts, true, false},
		"FailingSelector": {"kube-scheduler refuses a node with a device that a selector fails on", append(gpu(two),
			v1alpha1.NodeTypeDevice{Driver: "gpu.example.com", Count: 1,
				Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"type": {String: ptr.To("mig")}}}), part, typed, true, false},
		"PartOfPart": {"a part of a shared device that consumes counters consumes them again", gpu(func(device *v1alpha1.NodeTypeDevice) {
			share(device)
			device.SharedCounters = []v1alpha1.NodeTypeCounterSet{{Name: "gpu", Counters: quantities("slices", "7")}}
			device.ConsumesCounters = []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: quantities("slices", "7")}}
		}), part, part, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tc.devices, classOf("any"))
			before, claim := claimOf("before", tc.before), claimOf("claim", tc.claim)
			if !s.plans(before) || !s.schedules(t, before) {
				t.Fatal("not even the first claim is planned")
			}
			if planned, possible := s.plans(claim), s.schedules(t, claim); planned != tc.planned || possible != tc.possible {
				t.Errorf("%s: core plans it: %t, want %t; kube-scheduler allocates it: %t, want %t", tc.reason, planned, tc.planned,
					possible,
					tc.possible)
			}
		})
	}
}

// chance draws what a property test needs, from one seed.
type chance struct{ *rand.Rand }

func (c chance) happens(percent int) bool { return c.IntN(100) < percent }

func pick[T any](c chance, values ...T) T { return values[c.IntN(len(values))] }

// groups are the devices of a type: GPUs with or without partitions, that are shared or not, and network cards.
func (c chance) groups() (groups []v1alpha1.NodeTypeDevice) {
	quantity := resource.MustParse
	gpus := int32(c.IntN(4) + 1)
	gpu := v1alpha1.NodeTypeDevice{Driver: "gpu.example.com", Count: gpus,
		Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"type": {String: ptr.To("gpu")}, "index": {Int: ptr.To(int64(c.IntN(2)))}},
		Capacity:   map[string]resource.Quantity{"memory": quantity("80Gi")}}
	if c.happens(40) {
		gpu.Capacity["cores"] = quantity("100")
	}
	if c.happens(30) {
		gpu.PCIeRoots = []string{"a", "b"}
	}
	shared := c.happens(40)
	if shared {
		c.share(&gpu)
	}
	if !shared && c.happens(70) {
		set := v1alpha1.NodeTypeCounterSet{Name: "gpu", Count: gpus, Counters: map[string]resource.Quantity{"memory": quantity("80Gi")}}
		part := v1alpha1.NodeTypeDevice{Driver: gpu.Driver, Count: gpus * int32(pick(c, 1, 3, 7)),
			Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"type": {String: ptr.To("mig")}},
			Capacity:   map[string]resource.Quantity{"memory": quantity(pick(c, "10Gi", "20Gi"))}}
		whole := map[string]resource.Quantity{"memory": quantity("80Gi")}
		piece := map[string]resource.Quantity{"memory": quantity(pick(c, "10Gi", "20Gi", "40Gi"))}
		only := c.happens(30)
		if only {
			for _, counters := range []map[string]resource.Quantity{set.Counters, whole, piece} {
				delete(counters, "memory")
			}
		}
		if only || c.happens(70) {
			set.Counters["slices"], whole["slices"], piece["slices"] = quantity("7"), quantity("7"), quantity(pick(c, "1", "2", "3"))
		}
		gpu.SharedCounters = []v1alpha1.NodeTypeCounterSet{set}
		gpu.ConsumesCounters = []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: whole}}
		part.ConsumesCounters = []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: piece}}
		if c.happens(30) {
			set := v1alpha1.NodeTypeCounterSet{Name: "board", Counters: map[string]resource.Quantity{"watts": quantity("1000")}}
			gpu.SharedCounters = append(gpu.SharedCounters, set)
			part.ConsumesCounters = append(part.ConsumesCounters, v1alpha1.NodeTypeCounterConsumption{
				CounterSet: "board", Counters: map[string]resource.Quantity{"watts": quantity(pick(c, "100", "300"))}})
		}
		groups = append(groups, part)
	}
	groups = append(groups, gpu)
	if c.happens(50) {
		nic := v1alpha1.NodeTypeDevice{Driver: "nic.example.com", Count: int32(c.IntN(3) + 1), PCIeRoots: gpu.PCIeRoots}
		groups = append(groups, nic)
	}
	if c.happens(50) {
		slices.Reverse(groups)
	}
	return groups
}

// share makes the devices of a group ones that several claims share.
func (c chance) share(group *v1alpha1.NodeTypeDevice) {
	group.AllowMultipleAllocations = true
	quantity := func(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }
	group.RequestPolicies = pick(c, nil, map[string]resourcev1.CapacityRequestPolicy{
		"memory": {Default: quantity("5Gi"), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: quantity("5Gi"),
			Step: quantity("5Gi")}},
	}, map[string]resourcev1.CapacityRequestPolicy{
		"memory": {Default: quantity("1Gi"), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: quantity("0"), Max: quantity("40Gi")}},
	}, map[string]resourcev1.CapacityRequestPolicy{
		"memory": {Default: quantity("20Gi"), ValidValues: []resource.Quantity{*quantity("10Gi"), *quantity("20Gi"), *quantity("80Gi")}},
	}, map[string]resourcev1.CapacityRequestPolicy{"memory": {Default: quantity("7Gi")}})
	if _, has := group.Capacity["cores"]; has && group.RequestPolicies != nil && c.happens(50) {
		group.RequestPolicies["cores"] = resourcev1.CapacityRequestPolicy{Default: quantity("10")}
	}
}

// request is one of a claim. It asks for one device if devices are shared, and for no more than a GPU has: see TestCoreOverlooks.
func (c chance) request(shared bool) resourcev1.ExactDeviceRequest {
	request := resourcev1.ExactDeviceRequest{DeviceClassName: pick(c, "gpu", "gpu", "mig", "any", "nic"), Count: int64(pick(c, 1, 1,
		1, 2, 3))}
	if shared {
		request.Count = 1
	}
	if request.DeviceClassName == "gpu" && c.happens(60) {
		request.Capacity = requesting(pick(c, "1Gi", "20Gi", "33Gi", "40Gi", "80Gi", "0"))
	}
	if request.DeviceClassName != "nic" && c.happens(20) {
		request.Selectors = selectorsOf(pick(c, `device.capacity["gpu.example.com"].memory.compareTo(quantity("20Gi")) >= 0`,
			`device.allowMultipleAllocations`, `device.attributes["gpu.example.com"].type == "gpu"`))
	}
	return request
}

// TestPlannedClaimsCanBeAllocated: kube-scheduler allocates each claim that core has planned on a server, on the node with the devices. A
// class has devices of one driver: kube-scheduler takes the drivers of a node in no order, and may give the last card away.
func TestPlannedClaimsCanBeAllocated(t *testing.T) {
	planned, refused := 0, 0
	for seed := range uint64(200) {
		c := chance{rand.New(rand.NewPCG(seed, 0))}
		groups := c.groups()
		shared := slices.ContainsFunc(groups, func(group v1alpha1.NodeTypeDevice) bool { return group.AllowMultipleAllocations })
		if err := devices.Validate(field.NewPath("devices"), groups).ToAggregate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s := newServer(t, groups, classOf("any", `device.driver == "gpu.example.com"`), classOf("gpu", `device.driver == "gpu.example.com"`,
			`device.attributes["gpu.example.com"].type == "gpu"`), classOf("mig", `device.driver == "gpu.example.com"`,
			`device.attributes["gpu.example.com"].type == "mig"`),
			classOf("nic", `device.driver == "nic.example.com"`))
		var before []*resourcev1.ResourceClaim
		for pod := range 12 {
			var claims []*resourcev1.ResourceClaim
			for n := range pick(c, 1, 1, 2) {
				claim := claimOf(fmt.Sprintf("claim-%d-%d", pod, n), c.request(shared))
				switch c.IntN(10) {
				case 0, 1:
					claim = claimOf(claim.Name, c.request(shared), c.request(shared))
					if c.happens(30) {
						claim.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{
							MatchAttribute: ptr.To(resourcev1.FullyQualifiedName(devices.PCIeRoot))}}
					}
				case 2:
					claim.Spec.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
					claim.Spec.Devices.Requests[0].Exactly.Count = 0
				case 3:
					claim = firstOf(claim.Name, c.request(shared), c.request(shared))
				}
				claims = append(claims, claim)
			}
			if !s.plans(claims...) {
				refused++
				continue
			}
			planned++
			if !s.schedules(t, claims...) {
				t.Fatalf("seed %d: kube-scheduler does not allocate what core has planned: %s\nbefore: %s\ndevices: %s", seed,
					asJSON(claims),
					asJSON(before), asJSON(groups))
			}
			before = append(before, claims...)
		}
	}
	t.Logf("%d pods planned, %d not", planned, refused)
	if planned < 400 || refused < 800 {
		t.Errorf("%d pods planned and %d not: the claims are too easy or too hard to say anything", planned, refused)
	}
}

func asJSON(value any) string {
	content, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(content)
}
