// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// planned is the same fleet with a NodePool that makes nodes, three servers more that are free, the node of server-07 and its pod, which a
// Job has made, and a pod that waits.
func planned() *view.Snapshot {
	s := fleet()
	class := v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	class.StatusConditions().SetTrue(v1alpha1.ConditionValidationSucceeded)
	pool := karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: class.Name}
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
	s.Tenant.NodeClasses, s.Tenant.NodePools = []v1alpha1.MetalNodeClass{class}, []karpv1.NodePool{pool}
	quota := int64(9)
	s.Management.TenantClusters[0].Spec.Quota = &v1alpha1.Quota{Servers: &quota}
	free := s.Management.Hosts[slices.IndexFunc(s.Management.Hosts, func(host bmov1alpha1.BareMetalHost) bool {
		return host.Name == "server-16"
	})]
	for _, server := range []struct{ name, rack string }{{"server-20", "r1"}, {"server-21", "r1"}, {"server-22", "r2"}} {
		host := *free.DeepCopy()
		host.Name, host.UID, host.Labels = server.name, types.UID(server.name), map[string]string{"type": "h100-8x", "rack": server.rack}
		s.Management.Hosts = append(s.Management.Hosts, host)
	}
	const node = "default-x7f2k"
	id, gpus := v1alpha1.ProviderID("metal3-system", "server-07", node), env.Resources("cpu", "96", "nvidia.com/gpu", "8", "pods", "110")
	labels := map[string]string{
		karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "h100-8x", corev1.LabelTopologyZone: "global", "rack": "r2",
		corev1.LabelHostname: node, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
	}
	claim := &s.Tenant.NodeClaims[0]
	claim.Labels, claim.Spec.NodeClassRef, claim.Status.ProviderID = labels, pool.Spec.Template.Spec.NodeClassRef, id
	claim.Status.Allocatable, claim.Status.Capacity = gpus, gpus
	registered := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}}
	registered.Spec.ProviderID, registered.Status.Allocatable, registered.Status.Capacity = id, gpus, gpus
	s.Tenant.Nodes = []corev1.Node{registered}
	for i := range s.Management.Machines {
		if machine := &s.Management.Machines[i]; machine.Name == node {
			machine.Status.ProviderID, machine.Labels = id, map[string]string{karpv1.NodePoolLabelKey: "default",
				v1alpha1.NodeClaimLabelKey: node}
		}
	}
	for i := range s.Tenant.Pods {
		pod := &s.Tenant.Pods[i]
		pod.UID = types.UID(pod.Name)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "training", UID: "training",
			Controller: ptr.To(true)}}
		if pod.Spec.NodeName == "" {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable}}
		}
	}
	return s
}

// TestGoldenWhatIf prints predictions of that fleet.
func TestGoldenWhatIf(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments string
		code      int
	}{
		"what-if":         {arguments: "what-if -f workload.yaml", code: exitWrong},
		"what-if-yaml":    {arguments: "what-if -f workload.yaml --replicas 1 -o yaml"},
		"what-if-drain":   {arguments: "what-if drain server-07"},
		"what-if-without": {arguments: "what-if without rack=r2"},
		"what-if-rollout": {arguments: "what-if rollout h100-8x --os-image noble-2"},
		"what-if-add":     {arguments: "what-if add 2 h100-8x -f workload.yaml", code: exitWrong},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := strings.Replace(tc.arguments, "workload.yaml", "testdata/workload.yaml", 1)
			out, problems, code := executeOn(t, planned(), strings.Fields(arguments)...)
			if code != tc.code {
				t.Errorf("kubectl metal3 %s: exit code %d, want %d", tc.arguments, code, tc.code)
			}
			golden(t, name, "$ kubectl metal3 "+tc.arguments+"\n"+out+problems)
		})
	}
}

// TestExplainAsksCore: Karpenter's scheduler decides about a pod that waits.
func TestExplainAsksCore(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*corev1.Pod)
		code   int
		want   string
	}{
		"planned": {"a server is free", func(*corev1.Pod) {}, 0,
			"… pod default/training-0 is Pending\n└─ … Karpenter's scheduler plans a server of NodeType h100-8x for it, by NodePool default\n"},
		"not planned": {"no node has the other pod, and only the scheduler looks at that", func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "rack",
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}}}}}
		}, exitWrong, "✗ pod default/training-0 is Pending\n├─ ✓ NodePool default can have a node for it\n├─ ✗ Karpenter's scheduler plans no " +
			"node for it: \"FailedScheduling: "},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := planned()
			for i := range snapshot.Tenant.Pods {
				if pod := &snapshot.Tenant.Pods[i]; pod.Name == "training-0" {
					pod.Spec.SchedulingGroup = nil
					tc.change(pod)
				}
			}
			out, problems, code := executeOn(t, snapshot, "explain", "pod", "training-0")
			if code != tc.code || !strings.HasPrefix(out, tc.want) {
				t.Errorf("%s: exit code %d, want %d, and the output is\n%s%s\nwant\n%s", tc.reason, code, tc.code, out, problems, tc.want)
			}
		})
	}
}

// TestWhatIfRefuses: one sentence each.
func TestWhatIfRefuses(t *testing.T) {
	noTenant := planned()
	noTenant.Tenant = nil
	another := planned()
	another.Tenant.UID = "another"
	for name, tc := range map[string]struct {
		arguments, want string
		fleet           *view.Snapshot
	}{
		"nothing":    {"what-if", "what-if needs a workload: name its file with -f, or ask drain, without or add", planned()},
		"no file":    {"what-if -f nowhere.yaml", "reading the workload, open nowhere.yaml: no such file or directory", planned()},
		"wrong kind": {"what-if -f testdata/what-if.golden", "reading the workload, testdata/what-if.golden: document 1 ", planned()},
		"replicas": {"what-if -f testdata/workload.yaml --replicas -3",
			"reading the workload, testdata/workload.yaml: --replicas is -3: it must be 1 to 100000", planned()},
		"replicas of": {"what-if drain server-07 --replicas 3", "--replicas is of a workload: name its file with -f", planned()},
		"no tenant": {"what-if -f testdata/workload.yaml", "pods are in a tenant cluster: name its kubeconfig with --tenant-kubeconfig",
			noTenant},
		"which tenant": {"what-if -f testdata/workload.yaml", "which TenantCluster this cluster is cannot be told", another},
		"topology":     {"what-if drain server-07 --topology-labels a/b/c", `--topology-labels has "a/b/c"`, planned()},
		"host":         {"what-if drain server-99", `host "server-99" was not found`, planned()},
		"selector":     {"what-if without rack=r1=r2", `"rack=r1=r2" does not select labels: write KEY=VALUE, as in rack=r2`, planned()},
		"rack":         {"what-if without rack=r9", `no BareMetalHost has labels that "rack=r9" selects`, planned()},
		"number":       {"what-if add h100-8x 2", `"h100-8x" is not a number of servers: write it first, as in what-if add 2 h100-8x`, planned()},
		"none":         {"what-if add 0 h100-8x", "0 servers cannot be added: it must be 1 to 10000", planned()},
		"image":        {"what-if rollout h100-8x", "rollout needs the name of an OSImage: give it with --os-image", planned()},
		"no workload":  {"what-if rollout h100-8x --os-image a -f w.yaml", "rollout plans no workload: leave -f out", planned()},
		"rollout of":   {"what-if rollout h200 --os-image noble-2", `NodeType "h200" was not found`, planned()},
		"type":         {"what-if add 1 h200", `NodeType "h200" was not found`, planned()},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems, code := executeOn(t, tc.fleet, strings.Fields(tc.arguments)...)
			if code != exitError || !strings.HasPrefix(problems, "error: "+tc.want) || strings.Count(problems, "\n") != 1 {
				t.Errorf("exit code %d, printed %q, want a sentence that begins with %q", code, problems, tc.want)
			}
		})
	}
}
