// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Question is what to predict. Change may be nil.
type Question struct {
	// Change edits the fleet before the pods are created.
	Change Change
	// Pods are the pods to create.
	Pods []corev1.Pod
	// Topology is --topology-labels of the programs.
	Topology topology.Mapping
}

// Change edits a snapshot. The notes tell people what it did.
type Change func(*view.Snapshot) (notes []string, err error)

// Prediction is the predicted fleet.
type Prediction struct {
	// Time is the time of the snapshot. All predicted times count from it.
	Time metav1.Time `json:"time"`
	// Notes say what was changed and what was left out.
	Notes []string `json:"notes,omitempty"`
	// Servers are the servers that would be taken, in order.
	Servers []Server `json:"servers"`
	// Pods are the pods that would get a node, by namespace and name. Running pods that stay are not among them.
	Pods []Pod `json:"pods"`
	// Unfit are the pods that would stay without a node.
	Unfit []Unfit `json:"unfit"`
	// Capacity is the capacity of each NodeType, before and after.
	Capacity []Capacity `json:"capacity"`
	// Quotas are the remaining quotas of the TenantClusters that have one.
	Quotas []Quota `json:"quotas,omitempty"`
	// Assumes are the settings of the programs that the prediction assumes.
	Assumes []string `json:"assumes"`

	after *view.Snapshot
}

// After is the predicted fleet.
func (p *Prediction) After() *view.Snapshot { return p.after }

// Server is a server that would be taken.
type Server struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Rack      string `json:"rack,omitempty"`
	Zone      string `json:"zone,omitempty"`
	NodeType  string `json:"nodeType"`
	NodePool  string `json:"nodePool"`
	Cost      int64  `json:"cost"`
	// TypicalSeconds is the usual time until it is a node; 0 until a server of the type has joined.
	TypicalSeconds int64 `json:"typicalSeconds,omitempty"`
	// Pods are the pods that the server is taken for, as namespace/name.
	Pods []string `json:"pods"`
}

// Pod is a pod that would get a node.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Node is an existing node, or the server that becomes one.
	Node string `json:"node"`
	// New: the server is taken for this pod.
	New bool `json:"new,omitempty"`
	// Runs is when the pod runs; nil if unknown. On a ready node it is the time of the snapshot.
	Runs *metav1.Time `json:"runs,omitempty"`
	// Waiting: the pod waits already.
	Waiting bool `json:"waiting,omitempty"`
}

// Unfit is a pod that would stay without a node.
type Unfit struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason and Message belong to the event that the provider would write on the pod.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// Why is the tree of explain.
	Why view.Cause `json:"why"`
	// Waiting: the pod waits already.
	Waiting bool `json:"waiting,omitempty"`
}

// Capacity is the capacity of a NodeType.
type Capacity struct {
	NodeType string `json:"nodeType"`
	Total    int32  `json:"total"`
	// Before and After are the numbers of available servers.
	Before int32 `json:"before"`
	After  int32 `json:"after"`
	// Allowed are the TenantClusters that may have the available servers, as namespace/name.
	Allowed []string `json:"allowed"`
}

// Quota is the rest of a TenantCluster's quota. Servers and GPUs are nil without a limit; GPUs also if the number in
// use is unknown.
type Quota struct {
	Tenant  string `json:"tenant"`
	Servers *int64 `json:"servers,omitempty"`
	GPUs    *int64 `json:"gpus,omitempty"`
	// NodeTypes is the rest for each type that the quota limits.
	NodeTypes map[string]int64 `json:"nodeTypes,omitempty"`
}

// Placement is the pods on a node that exists, or is on its way.
type Placement struct {
	Node string
	// Runs is when the pods run; nil if unknown.
	Runs *metav1.Time
	Pods []string
}

// OnNodes returns the pods that no server is taken for, by node.
func (p *Prediction) OnNodes() []Placement {
	byNode := map[string]*Placement{}
	for _, pod := range p.Pods {
		if pod.New {
			continue
		}
		if byNode[pod.Node] == nil {
			byNode[pod.Node] = &Placement{Node: pod.Node, Runs: pod.Runs}
		}
		byNode[pod.Node].Pods = append(byNode[pod.Node].Pods, pod.Namespace+"/"+pod.Name)
	}
	var all []Placement
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		all = append(all, *byNode[node])
	}
	return all
}

// Alike are pods that would not fit for the same reason. Causes are the causes for the first pod.
type Alike struct {
	Reason string
	Pods   []string
	Causes []view.Cause
}

// UnfitAlike groups the pods that would not fit by their reason.
func (p *Prediction) UnfitAlike() []Alike {
	var all []Alike
	for _, unfit := range p.Unfit {
		reason := strings.TrimPrefix(unfit.Reason+": "+unfit.Message, ": ")
		index := slices.IndexFunc(all, func(known Alike) bool { return known.Reason == reason })
		if index < 0 {
			index, all = len(all), append(all, Alike{Reason: reason, Causes: unfit.Why.Causes})
		}
		all[index].Pods = append(all[index].Pods, unfit.Namespace+"/"+unfit.Name)
	}
	return all
}

// ErrNoTenant: there is no tenant cluster to plan pods in.
var ErrNoTenant = errors.New(
	"pods are in a tenant cluster: name its kubeconfig with --tenant-kubeconfig, or read a snapshot that has one")

// Predict answers a question about a snapshot. It does not change the snapshot.
func Predict(ctx context.Context, snapshot *view.Snapshot, question Question) (*Prediction, error) {
	if snapshot.Tenant == nil && len(question.Pods) > 0 {
		return nil, ErrNoTenant
	}
	changed := snapshot.DeepCopy()
	p := &Prediction{Time: snapshot.Time, Servers: []Server{}, Pods: []Pod{}, Unfit: []Unfit{}}
	if question.Change != nil {
		notes, err := question.Change(changed)
		if err != nil {
			return nil, err
		}
		p.Notes = notes
	}
	waiting := map[types.NamespacedName]bool{}
	if changed.Tenant != nil {
		for i := range snapshot.Tenant.Pods {
			if podutils.IsProvisionable(&snapshot.Tenant.Pods[i]) {
				waiting[client.ObjectKeyFromObject(&snapshot.Tenant.Pods[i])] = true
			}
		}
		if err := addPods(changed, question.Pods); err != nil {
			return nil, err
		}
	}
	w, ctx, err := newWorld(ctx, changed, question.Topology)
	if err != nil {
		return nil, err
	}
	p.Assumes = assumptions(snapshot, w, question.Topology)
	if w.core != nil {
		results, err := w.settle(ctx)
		if err != nil {
			return nil, err
		}
		if err := p.read(ctx, w, results, waiting); err != nil {
			return nil, err
		}
	} else {
		p.Notes = append(p.Notes, "no tenant cluster was read: which pods would move, and where to, is not shown")
		p.after = w.after()
	}
	after := view.New(p.after)
	p.Capacity, p.Quotas = capacities(view.New(snapshot), after, p.after), quotas(after)
	return p, nil
}

// Plans returns the plans of Karpenter's scheduler for the waiting pods of the tenant cluster.
func Plans(ctx context.Context, snapshot *view.Snapshot, mapping topology.Mapping) (map[types.NamespacedName]view.Plan, error) {
	prediction, err := Predict(ctx, snapshot, Question{Topology: mapping})
	if err != nil {
		return nil, err
	}
	servers := map[string]Server{}
	for _, server := range prediction.Servers {
		servers[server.Namespace+"/"+server.Name] = server
	}
	plans := map[types.NamespacedName]view.Plan{}
	for _, pod := range prediction.Pods {
		plan := view.Plan{Node: pod.Node}
		if pod.New {
			plan.NodeType, plan.NodePool = servers[pod.Node].NodeType, servers[pod.Node].NodePool
		}
		plans[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = plan
	}
	for _, unfit := range prediction.Unfit {
		plans[types.NamespacedName{Namespace: unfit.Namespace, Name: unfit.Name}] = view.Plan{Reason: unfit.Reason, Why: unfit.Message}
	}
	return plans, nil
}

// addPods adds pods as if the scheduler had found no node for them.
func addPods(snapshot *view.Snapshot, pods []corev1.Pod) error {
	known := map[types.NamespacedName]bool{}
	for i := range snapshot.Tenant.Pods {
		known[client.ObjectKeyFromObject(&snapshot.Tenant.Pods[i])] = true
	}
	for i := range pods {
		pod, key := pods[i].DeepCopy(), client.ObjectKeyFromObject(&pods[i])
		if known[key] {
			return fmt.Errorf("there is a pod %s already: give the workload another name", key)
		}
		known[key] = true
		pod.CreationTimestamp = snapshot.Time
		unschedule(pod)
		snapshot.Tenant.Pods = append(snapshot.Tenant.Pods, *pod)
	}
	return nil
}

// unschedule changes a pod as if the scheduler had found no node for it.
func unschedule(pod *corev1.Pod) {
	pod.Spec.NodeName = ""
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
	}}
}

// read reads from the world what became of the pods.
func (p *Prediction) read(ctx context.Context, w *world, results scheduling.Results, waiting map[types.NamespacedName]bool) error {
	pending, leaving := map[types.NamespacedName]*corev1.Pod{}, w.leaving()
	for _, pod := range lo.ToSlicePtr(all[corev1.Pod](w.tenant)) {
		if podutils.IsProvisionable(pod) || leaving[pod.Spec.NodeName] && podutils.IsReschedulable(pod) {
			pending[client.ObjectKeyFromObject(pod)] = pod
		}
	}
	taken := map[string]*Server{}
	p.Servers = make([]Server, len(w.made))
	for i, claim := range w.made {
		p.Servers[i] = w.server(claim)
		taken[claim.Name] = &p.Servers[i]
	}
	failed := map[types.NamespacedName]error{}
	for pod, err := range results.PodErrors {
		failed[client.ObjectKeyFromObject(pod)] = err
	}
	for key, node := range w.plannedOn {
		if failed[key] != nil || pending[key] == nil {
			continue
		}
		delete(pending, key)
		placed := Pod{Namespace: key.Namespace, Name: key.Name, Node: node, Runs: w.runs(node), Waiting: waiting[key]}
		if server := taken[node]; server != nil {
			placed.Node, placed.New, placed.Runs = server.Namespace+"/"+server.Name, true, later(p.Time, server.TypicalSeconds)
			server.Pods = append(server.Pods, key.String())
		}
		p.Pods = append(p.Pods, placed)
	}
	slices.SortFunc(p.Pods, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), view.CompareNames(a.Name, b.Name))
	})
	for i := range p.Servers {
		slices.SortFunc(p.Servers[i].Pods, view.CompareNames)
	}
	p.after = w.after()
	fleet := view.New(p.after)
	for key, pod := range pending {
		why, err := w.why(ctx, pod)
		if err != nil {
			return err
		}
		tree, err := fleet.Explain("pod", key.String())
		if err != nil {
			return err
		}
		unfit := Unfit{
			Namespace: key.Namespace, Name: key.Name, Reason: why.Reason, Message: why.Message, Why: tree, Waiting: waiting[key],
		}
		if why.Reason != explain.ReasonNoServerAvailable && why.Reason != explain.ReasonNoNodeTypeFits {
			unfit.Why.Causes = nil // they are about NodeTypes, which are not the reason here
		}
		if unfit.Message == "" && failed[key] != nil {
			unfit.Reason, unfit.Message = "FailedScheduling", conditions.Truncate(failed[key].Error(), conditions.MaxEventNote)
		}
		p.Unfit = append(p.Unfit, unfit)
	}
	slices.SortFunc(p.Unfit, func(a, b Unfit) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), view.CompareNames(a.Name, b.Name))
	})
	return nil
}

// leaving returns the nodes that are being drained. Core plans for their pods as for waiting pods.
func (w *world) leaving() map[string]bool {
	nodes := map[string]bool{}
	for _, claim := range all[karpv1.NodeClaim](w.tenant) {
		if !claim.DeletionTimestamp.IsZero() && claim.Status.NodeName != "" {
			nodes[claim.Status.NodeName] = true
		}
	}
	return nodes
}

func (w *world) server(claim *karpv1.NodeClaim) Server {
	machine := w.management.find(&v1alpha1.Machine{}, w.machineKey(claim.Name)).(*v1alpha1.Machine)
	hostRef := machine.Status.HostRef
	key := client.ObjectKey{Namespace: hostRef.Namespace, Name: hostRef.Name}
	host := w.management.find(&bmov1alpha1.BareMetalHost{}, key).(*bmov1alpha1.BareMetalHost)
	return Server{
		Namespace: hostRef.Namespace, Name: hostRef.Name, Rack: host.Labels[v1alpha1.RackLabelKey],
		Zone:     machine.Status.NodeLabels[corev1.LabelTopologyZone],
		NodeType: machine.Status.NodeTypeRef.Name, NodePool: claim.Labels[karpv1.NodePoolLabelKey], Cost: *machine.Status.Cost,
		TypicalSeconds: w.typical(machine.Status.NodeTypeRef.Name), Pods: []string{},
	}
}

func (w *world) typical(nodeType string) int64 {
	known, _ := w.management.find(&v1alpha1.NodeType{}, client.ObjectKey{Name: nodeType}).(*v1alpha1.NodeType)
	if known == nil || known.Status.Provisioning == nil {
		return 0
	}
	return known.Status.Provisioning.TypicalSeconds
}

func later(now metav1.Time, seconds int64) *metav1.Time {
	if seconds == 0 {
		return nil
	}
	then := metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
	return &then
}

// runs returns when pods run on a node that exists, or is on its way; nil if unknown.
func (w *world) runs(node string) *metav1.Time {
	machine, _ := w.management.find(&v1alpha1.Machine{}, w.machineKey(node)).(*v1alpha1.Machine)
	switch {
	case machine != nil && machine.IsOnItsWay() && machine.Status.Progress != nil:
		return machine.Status.Progress.ExpectedReadyTime
	case machine != nil && machine.IsOnItsWay():
		return nil
	}
	return &w.snapshot.Time
}

// capacities compares the NodeTypes before and after. snapshot is the snapshot after.
func capacities(before, after *view.Fleet, snapshot *view.Snapshot) []Capacity {
	was := map[string]int32{}
	for _, typeCapacity := range before.Capacity() {
		was[typeCapacity.NodeType] = typeCapacity.Available
	}
	var result []Capacity
	for _, typeCapacity := range after.Capacity() {
		capacity := Capacity{NodeType: typeCapacity.NodeType, Total: typeCapacity.Total, Before: was[typeCapacity.NodeType],
			After: typeCapacity.Available, Allowed: []string{}}
		index := slices.IndexFunc(snapshot.Management.NodeTypes,
			func(nodeType v1alpha1.NodeType) bool { return nodeType.Name == typeCapacity.NodeType })
		for i := range snapshot.Management.TenantClusters {
			tenant := &snapshot.Management.TenantClusters[i]
			if tenant.Allows(typeCapacity.NodeType, snapshot.Management.NodeTypes[index].MadeBy()) {
				capacity.Allowed = append(capacity.Allowed, tenant.Namespace+"/"+tenant.Name)
			}
		}
		slices.Sort(capacity.Allowed)
		result = append(result, capacity)
	}
	return result
}

func quotas(after *view.Fleet) []Quota {
	left := func(limit, used *int64) *int64 {
		if limit == nil || used == nil {
			return nil
		}
		rest := max(0, *limit-*used)
		return &rest
	}
	var result []Quota
	for _, tenant := range after.Tenants() {
		if tenant.Quota.Servers != nil || tenant.Quota.GPUs != nil || len(tenant.Quota.NodeTypes) > 0 {
			result = append(result, Quota{Tenant: tenant.Tenant, Servers: left(tenant.Quota.Servers, &tenant.Servers),
				GPUs: left(tenant.Quota.GPUs, tenant.Accelerators),
				NodeTypes: lo.MapValues(tenant.Quota.NodeTypes, func(limit v1alpha1.ServerCount, name string) int64 {
					return max(0, int64(limit)-int64(tenant.Types[name]))
				})})
		}
	}
	return result
}

// assumptions returns the settings of the manager and the provider that their API does not have.
func assumptions(before *view.Snapshot, w *world, mapping topology.Mapping) []string {
	assumes := []string{
		"the flags of the provider have their defaults: reserved capacity, and Karpenter's policies on preferences and minimum values",
		fmt.Sprintf("--topology-labels makes the labels %s of nodes", strings.Join(mapping.Keys(), ", ")),
		"pods are created at the same time; their volumes and resource claims are left out, and so are the nodes of static NodePools",
		"no node is consolidated meanwhile",
	}
	for i := range before.Management.NodeTypes {
		nodeType := &before.Management.NodeTypes[i]
		known, _ := w.management.find(nodeType, client.ObjectKeyFromObject(nodeType)).(*v1alpha1.NodeType)
		for _, written := range nodeType.Status.Requirements {
			if known != nil && !slices.ContainsFunc(known.Status.Requirements, func(requirement v1alpha1.NodeTypeRequirement) bool {
				return requirement.Key == written.Key
			}) {
				return append(assumes, fmt.Sprintf("NodeType %s has servers with the label %s, which is not among these: give --topology-labels "+
					"as the manager has it", nodeType.Name, written.Key))
			}
		}
	}
	return assumes
}
