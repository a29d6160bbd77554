// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleettest makes snapshots of fleets of any size for tests. The same size gives the same fleet.
package fleettest

import (
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// Now is the time of the snapshots.
var Now = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// perRack is how many servers a rack has.
const perRack = 20

var nodeTypes = []struct {
	name      string
	resources corev1.ResourceList
	limit     *int32
}{
	{"h100-8x", env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"), nil},
	{"a100-4x", env.Resources("cpu", "64", "memory", "256Gi", "nvidia.com/gpu", "4"), ptr.To[int32](400)},
	{"cpu", env.Resources("cpu", "32", "memory", "128Gi"), nil},
}

var tenants = []string{"acme", "initech", "umbrella"}

// New returns a fleet of the given number of servers, in racks of twenty. Most servers are nodes of three tenants,
// and some are in every other state. Some of the servers with few or no GPUs are free. The snapshot has acme's tenant
// cluster, where pods wait.
func New(servers int) *view.Snapshot {
	s := &view.Snapshot{
		TypeMeta: metav1.TypeMeta{Kind: view.SnapshotKind, APIVersion: view.SnapshotVersion}, Time: metav1.NewTime(Now),
		Tenant: &view.Tenant{UID: types.UID(tenants[0]), NodePools: []karpv1.NodePool{*planning.Pool("default", nil)}},
	}
	class := v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	class.StatusConditions().SetTrue(v1alpha1.ConditionValidationSucceeded)
	s.Tenant.NodeClasses = []v1alpha1.MetalNodeClass{class}
	provider := v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal3-provider", UID: "metal3-provider"}}
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3-system"
	for _, model := range nodeTypes {
		nodeType := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: model.name, OwnerReferences: env.MadeBy(string(provider.UID))}}
		nodeType.Spec.ProviderRef.Name = provider.Name
		nodeType.Spec.HardwareProfile = v1alpha1.HardwareProfile{Resources: model.resources, MaxCapacity: model.limit,
			BareMetalHosts: env.HostsWith(map[string]string{"type": model.name})}
		nodeType.Status.Provisioning = &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1140}
		provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, v1alpha1.NodeTypeTemplate{Name: model.name})
		s.Management.NodeTypes = append(s.Management.NodeTypes, nodeType)
	}
	s.Management.NodeProviders = []v1alpha1.NodeProvider{provider}
	for _, name := range tenants {
		tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
		tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(int64(servers / 2)), GPUs: ptr.To(int64(2 * servers))}
		tenant.Status.ClusterUID = name
		s.Management.TenantClusters = append(s.Management.TenantClusters, tenant)
	}
	for number := range servers {
		addServer(s, number)
	}
	for i := range 12 {
		addPod(s, i)
	}
	fillCapacity(s)
	return s
}

// Shared returns the fleet of New with a second tenant cluster, initech's, where a pod waits.
func Shared(servers int) *view.Snapshot {
	s := New(servers)
	second := *s.Tenant
	second.UID, second.Pods = types.UID(tenants[1]), []corev1.Pod{*s.Tenant.Pods[0].DeepCopy()}
	second.Pods[0].Name = "inference-0"
	s.More = []*view.Tenant{&second}
	return s
}

// addServer adds a server, and its Machine if it has one. Its number decides its state.
func addServer(s *view.Snapshot, number int) {
	nodeType := nodeTypes[number/perRack%len(nodeTypes)]
	name := fmt.Sprintf("server-%04d", number)
	host := env.AvailableHost("metal3-system", name, map[string]string{"rack": fmt.Sprintf("r%03d", number/perRack+1), "type": nodeType.name,
		"datacenter": []string{"hall-a", "hall-b"}[number/perRack%2], "spine": fmt.Sprintf("%c%d", 'a'+number/perRack%2, number/perRack/8+1),
		v1alpha1.RackUnitLabelKey: fmt.Sprint(2*(perRack-number%perRack) - 1)})
	host.UID = types.UID(name)
	host.Status.HardwareDetails.CPU.Count = int(nodeType.resources.Cpu().Value())
	host.Status.HardwareDetails.RAMMebibytes = int(nodeType.resources.Memory().Value() >> 20)
	host.Status.HardwareDetails.Storage = []bmov1alpha1.Storage{{SizeBytes: 480e9}, {SizeBytes: 3840e9}, {SizeBytes: 3840e9}}
	host.Status.HardwareDetails.NIC = []bmov1alpha1.NIC{{Name: "eno1"}, {Name: "eno2"}}
	host.Status.OperationHistory.Inspect = bmov1alpha1.OperationMetric{Start: before(48 * time.Hour),
		End: before(48*time.Hour - 7*time.Minute)}
	switch kind := number * 7919 % 100; {
	case kind < 62:
		addMachine(s, host, number, v1alpha1.MachineJoined)
	case kind < 66:
		addMachine(s, host, number, v1alpha1.MachineProvisioning)
	case kind < 68:
		addMachine(s, host, number, v1alpha1.MachineProvisioned)
	case kind < 70:
		addMachine(s, host, number, v1alpha1.MachineReleasing)
	case kind == 70:
		addMachine(s, host, number, v1alpha1.MachineFailed)
	case kind == 71:
		host.Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: `{"reason":"HostError","since":"2026-01-02T12:00:00Z"}`}
	case kind == 72:
		host.Annotations = map[string]string{v1alpha1.MaintenanceAnnotationKey: "DIMM 3 is replaced"}
	case kind == 73:
		host.Status.OperationalStatus, host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.RegistrationError
		host.Status.ErrorMessage = "the BMC refuses the password"
	case kind == 74:
		host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine",
			Namespace: "capm3", Name: "worker-0"}
	case nodeType.name == nodeTypes[0].name: // no server of this type is free
		addMachine(s, host, number, v1alpha1.MachineJoined)
	}
	s.Management.Hosts = append(s.Management.Hosts, *host)
}

func before(d time.Duration) metav1.Time { return metav1.NewTime(Now.Add(-d)) }

func addMachine(s *view.Snapshot, host *bmov1alpha1.BareMetalHost, number int, phase v1alpha1.MachinePhase) {
	tenant := tenants[number/3%len(tenants)]
	age := time.Duration(25+number*37%4000) * time.Minute
	if phase != v1alpha1.MachineJoined {
		age = time.Duration(5+number%12) * time.Minute
	}
	name := fmt.Sprintf("default-%04x", number*40503%65536)
	machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, UID: types.UID(name),
		CreationTimestamp: before(age + time.Minute)}}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: tenant}
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: tenant, Name: name}
	host.Status.Provisioning.State = bmov1alpha1.StateProvisioned
	machine.Status = v1alpha1.MachineStatus{
		Phase: phase, NodeTypeRef: &v1alpha1.NameReference{Name: host.Labels["type"]},
		HostRef:    &v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID},
		ProviderID: v1alpha1.ProviderID(host.Namespace, host.Name, name),
	}
	done := func(condition string, after time.Duration) {
		machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue,
			LastTransitionTime: before(age - after)})
	}
	message := map[v1alpha1.MachinePhase]string{
		v1alpha1.MachineJoined:       "server " + host.Namespace + "/" + host.Name + " is node " + name,
		v1alpha1.MachineProvisioning: "Metal3 is installing",
		v1alpha1.MachineProvisioned:  "server " + host.Namespace + "/" + host.Name + " boots",
		v1alpha1.MachineReleasing:    "Metal3 cleans the disks", v1alpha1.MachineFailed: "no progress for 1h0m0s: the image cannot be downloaded",
	}[phase]
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: message}}
	done(v1alpha1.ConditionClaimed, 0)
	expected := metav1.NewTime(before(age).Add(19 * time.Minute))
	switch phase {
	case v1alpha1.MachineProvisioning:
		host.Status.Provisioning.State = bmov1alpha1.StateProvisioning
		machine.Status.Progress = &v1alpha1.MachineProgress{Step: 3, Steps: 5, Description: "writing image", ExpectedReadyTime: &expected,
			StartTime: before(age), LastProgressTime: before(2 * time.Minute)}
	case v1alpha1.MachineReleasing:
		machine.DeletionTimestamp = ptr.To(before(3 * time.Minute))
	case v1alpha1.MachineProvisioned:
		done(v1alpha1.ConditionProvisioned, 4*time.Minute)
		machine.Status.Progress = &v1alpha1.MachineProgress{Step: 4, Steps: 5, Description: "booting", ExpectedReadyTime: &expected,
			StartTime: before(age), LastProgressTime: before(time.Minute)}
	case v1alpha1.MachineJoined:
		machine.Status.NodeName = name
		done(v1alpha1.ConditionProvisioned, 15*time.Minute)
		done(v1alpha1.ConditionJoined, 18*time.Minute)
	}
	s.Management.Machines = append(s.Management.Machines, machine)
}

// addPod adds a pod that waits. All pods except the last four belong to one job.
func addPod(s *view.Snapshot, number int) {
	name := fmt.Sprintf("training-%d", number)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
		CreationTimestamp: before(time.Duration(20-number) * time.Minute)}}
	requests := env.Resources("nvidia.com/gpu", "8")
	switch {
	case number < 8:
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "training", UID: "job",
			Controller: ptr.To(true)}}
	case number == 9:
		requests = env.Resources("cpu", "200")
	case number == 10:
		requests = env.Resources("amd.com/gpu", "1")
	}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable}}
	s.Tenant.Pods = append(s.Tenant.Pods, pod)
}

// fillCapacity writes the capacities that the manager would write.
func fillCapacity(s *view.Snapshot) {
	for _, capacity := range view.New(s).Capacity() {
		for i := range s.Management.NodeTypes {
			if nodeType := &s.Management.NodeTypes[i]; nodeType.Name == capacity.NodeType {
				nodeType.Status.Capacity = capacity.Capacity
			}
		}
	}
}
