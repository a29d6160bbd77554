// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Verdict is how things stand.
type Verdict string

const (
	// Good: as it should be.
	Good Verdict = "OK"
	// Waiting: on its way.
	Waiting Verdict = "Waiting"
	// Wrong: it stays like this until a person changes something, or another gives a server back.
	Wrong Verdict = "Wrong"
	// Note: a fact that is neither.
	Note Verdict = ""
)

// Cause is a fact, with those that it follows from.
type Cause struct {
	Text    string  `json:"text"`
	Verdict Verdict `json:"verdict,omitempty"`
	// Remedy is what to do about it: a command, or a sentence.
	Remedy string  `json:"remedy,omitempty"`
	Causes []Cause `json:"causes,omitempty"`
}

// Explainable are the kinds that Explain knows, as the command line names them.
var Explainable = []string{"pod", "podgroup", "job", "jobset", "nodeclaim", "machine", "host", "nodetype"}

// maxServers is how many servers of a type are listed one by one.
const maxServers = 20

// Explain returns the tree from an object to the causes of its state. The name of a pod, a Machine or a host may have its namespace
// in front, and a slash; without one it must be the only one of its name. The error names what was not found.
func (f *Fleet) Explain(kind, name string) (Cause, error) {
	switch kind {
	case "pod", "nodeclaim", "podgroup", "job", "jobset":
		if f.snapshot.Tenant == nil {
			return Cause{}, fmt.Errorf("a %s is in a tenant cluster: name its kubeconfig with --tenant-kubeconfig", kind)
		}
		if IsGroup(kind) {
			return f.explainGroup(kind, name)
		}
		if kind == "nodeclaim" {
			claim := nodeClaim(f.snapshot.Tenant, name)
			if claim == nil {
				return Cause{}, fmt.Errorf("NodeClaim %q was not found in the tenant cluster", name)
			}
			return f.explainNodeClaim(claim), nil
		}
		pod, err := find(kind, name, f.snapshot.Tenant.Pods)
		if err != nil {
			return Cause{}, err
		}
		return f.explainPod(pod), nil
	case "machine":
		machine, err := f.Machine(name)
		if err != nil {
			return Cause{}, err
		}
		return f.explainMachine(machine), nil
	case "host":
		host, err := f.Host(name)
		if err != nil {
			return Cause{}, err
		}
		return f.explainHost(host), nil
	case "nodetype":
		nodeType := f.nodeTypes[name]
		if nodeType == nil {
			return Cause{}, fmt.Errorf("NodeType %q was not found", name)
		}
		return f.explainType(nodeType), nil
	}
	return Cause{}, fmt.Errorf("%q cannot be explained: name one of %s", kind, strings.Join(Explainable, ", "))
}

// Host returns the host of that name, which may have its namespace in front.
func (f *Fleet) Host(name string) (*bmov1alpha1.BareMetalHost, error) {
	return find("host", name, f.snapshot.Management.Hosts)
}

// Machine returns the Machine of that name, which may have its namespace in front.
func (f *Fleet) Machine(name string) (*v1alpha1.Machine, error) {
	return find("machine", name, f.snapshot.Management.Machines)
}

// find returns the object of that name.
func find[T any, P interface {
	*T
	metav1.Object
}](kind, name string, objects []T) (P, error) {
	namespace, bare, qualified := strings.Cut(name, "/")
	if !qualified {
		namespace, bare = "", name
	}
	var found P
	var namespaces []string
	for i := range objects {
		if object := P(&objects[i]); object.GetName() == bare && (namespace == "" || object.GetNamespace() == namespace) {
			found, namespaces = object, append(namespaces, object.GetNamespace())
		}
	}
	switch len(namespaces) {
	case 0:
		return nil, fmt.Errorf("%s %q was not found", kind, name)
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("there are %d of the name %q, in the namespaces %s: name it as NAMESPACE/%s", len(namespaces), name,
		strings.Join(namespaces, ", "), bare)
}

// explainHost says what a server does and, if it cannot be claimed, why and what to do.
func (f *Fleet) explainHost(host *bmov1alpha1.BareMetalHost) Cause {
	known, _ := f.inventory.Server(keyOf(host))
	cause := f.serverCause(f.server(host))
	if len(known.Types) > 0 {
		cause.Causes = append(cause.Causes, Cause{Text: "it matches NodeType " + strings.Join(known.Types, ", ")})
	}
	for _, name := range known.Types {
		if state := known.States[name]; state.Lacks != "" {
			cause.Causes = append(cause.Causes, Cause{Text: "it " + tooSmall(name, state), Verdict: Wrong,
				Remedy: "correct the resources of NodeType " + name + ", or the labels of the host"})
		}
	}
	if machine := f.MachineOn(host); machine != nil {
		cause.Causes = append(cause.Causes, f.explainMachine(machine))
	}
	return cause
}

// serverCause is one line about a server.
func (f *Fleet) serverCause(server Server) Cause {
	where := "zone " + server.Zone
	if server.Rack != "" {
		where = "rack " + server.Rack + ", " + where
	}
	text := fmt.Sprintf("server %s/%s (%s) ", server.Namespace, server.Name, where)
	host := f.hosts[types.NamespacedName{Namespace: server.Namespace, Name: server.Name}]
	switch machine := f.MachineOn(host); {
	case machine != nil:
		text += fmt.Sprintf("is %s, as Machine %s", server.State, server.Machine)
		if server.Tenant != "" {
			text += " of TenantCluster " + server.Tenant
		}
		return Cause{Text: text, Verdict: f.machineVerdict(machine)}
	case server.reason == "":
		return Cause{Text: text + "can be claimed", Verdict: Good}
	}
	cause := Cause{Text: text + server.Why, Verdict: Wrong, Remedy: server.reason.Remedy(host)}
	switch {
	case server.reason == noType:
		cause.Remedy = "give it the labels that the selector of a NodeType asks for: " +
			"kubectl get nodetypes.karpenter.metal3.io -o yaml"
	case server.reason == inventory.ReasonClaimed:
		cause.Verdict = Note
	case server.reason.Passes():
		cause.Verdict = Waiting
	}
	return cause
}

// MachineOn is the Machine that has the host, nil if none has.
func (f *Fleet) MachineOn(host *bmov1alpha1.BareMetalHost) *v1alpha1.Machine {
	machine, consumer := f.machineOf[host.UID], host.Spec.ConsumerRef
	if machine == nil || consumer == nil || consumer.Name != machine.Name || consumer.Namespace != machine.Namespace {
		return nil
	}
	return machine
}

func (f *Fleet) machineVerdict(machine *v1alpha1.Machine) Verdict {
	switch cmp.Or(machine.Status.Phase, v1alpha1.MachinePending) {
	case v1alpha1.MachineFailed, v1alpha1.MachinePending:
		return Wrong
	case v1alpha1.MachineJoined:
		return Good
	case v1alpha1.MachineProvisioned:
		if machine.Spec.TenantClusterRef == nil {
			return Good
		}
	}
	return Waiting
}

func (f *Fleet) explainMachine(machine *v1alpha1.Machine) Cause {
	described := f.describe(machine)
	ready := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady)
	cause := Cause{
		Text: fmt.Sprintf("Machine %s/%s is %s: %s", machine.Namespace, machine.Name, described.Phase, cmp.Or(ready.Message,
			"the manager has not said anything about it")),
		Verdict: f.machineVerdict(machine),
	}
	if ready.Message == "" {
		cause.Remedy = "see that the manager runs: kubectl get pods -A -l app.kubernetes.io/component=manager"
	}
	if described.Progress != "" {
		cause.Causes = append(cause.Causes, f.progressCause(machine, described))
	}
	if described.Phase == v1alpha1.MachinePending || described.Phase == v1alpha1.MachineFailed && machine.Status.HostRef == nil {
		cause.Causes = append(cause.Causes, f.candidates(machine)...)
	}
	if given := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionGivenUp); given.Status == metav1.ConditionTrue {
		cause.Causes = append(cause.Causes, Cause{Text: "it was given up: " + given.Message, Verdict: Wrong})
	}
	if described.Drifted != "" {
		drifted := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionDrifted)
		cause.Causes = append(cause.Causes, Cause{Text: "it is drifted: " + drifted.Message})
	}
	if host, has := machine.Host(); has && machine.Status.HostRef != nil {
		if claimed := f.hosts[types.NamespacedName{Namespace: host.Namespace, Name: host.Name}]; claimed != nil &&
			claimed.Status.ErrorMessage != "" {
			cause.Causes = append(cause.Causes, Cause{Text: "Metal3 says of its server: " + quoted(claimed.Status.ErrorMessage), Verdict: Wrong,
				Remedy: inventory.ReasonError.Remedy(claimed)})
		}
	}
	return cause
}

func (f *Fleet) progressCause(machine *v1alpha1.Machine, described Machine) Cause {
	progress := machine.Status.Progress
	text := fmt.Sprintf("step %s since %s", described.Progress, ago(f.Now(), progress.LastProgressTime.Time))
	switch {
	case progress.Suspended:
		return Cause{Text: text + ": its deadline does not count, because no progress is possible now", Verdict: Wrong}
	case described.Expected == nil:
		return Cause{Text: text + ": no Machine of its type has joined yet, so there is no estimate", Verdict: Waiting}
	case described.Expected.Time.Before(f.Now()):
		return Cause{Text: fmt.Sprintf("%s: it takes longer than usual: it was expected %s ago", text, ago(f.Now(), described.Expected.Time)),
			Verdict: Waiting}
	}
	return Cause{Text: fmt.Sprintf("%s: its node is expected in %s", text, ago(described.Expected.Time, f.Now())), Verdict: Waiting}
}

// ago is a duration for people.
func ago(now, then time.Time) string { return now.Sub(then).Round(time.Second).String() }

// candidates is why each type that was considered gives the Machine no server.
func (f *Fleet) candidates(machine *v1alpha1.Machine) []Cause {
	request := inventory.RequestOf(machine, f.chargedTo(machine))
	_, err := f.inventory.Choose(request)
	var no *inventory.NoHostError
	switch {
	case err == nil:
		return []Cause{{Text: "a server that fits can be claimed now", Verdict: Waiting}}
	case !errors.As(err, &no):
		return []Cause{{Text: err.Error(), Verdict: Wrong}}
	case no.Detail != "":
		return []Cause{{Text: no.Detail, Verdict: Wrong}}
	}
	var causes []Cause
	for _, candidate := range no.Considered {
		cause := Cause{Text: "NodeType " + candidate.NodeType + ": " + candidate.String(), Verdict: Wrong}
		if candidate.Fits() {
			cause.Causes = f.out(candidate.NodeType)
		}
		causes = append(causes, cause)
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return len(b.Causes) - len(a.Causes) })
	return causes
}

// out are the servers of a type that cannot be claimed, those that come back by themselves first.
func (f *Fleet) out(nodeType string) []Cause {
	var all []Cause
	for _, server := range f.servers {
		if slices.Contains(server.Types, nodeType) && server.State != State(inventory.StateAvailable) {
			all = append(all, f.serverCause(server))
		}
	}
	rank := map[Verdict]int{Waiting: 0, Wrong: 1, Note: 2, Good: 3}
	slices.SortStableFunc(all, func(a, b Cause) int { return rank[a.Verdict] - rank[b.Verdict] })
	if len(all) > maxServers {
		all = append(all[:maxServers], Cause{Text: fmt.Sprintf("and %d more servers", len(all)-maxServers)})
	}
	return all
}

func (f *Fleet) explainType(nodeType *v1alpha1.NodeType) Cause {
	capacity := conditions.Find(nodeType.Status.Conditions, v1alpha1.ConditionHasCapacity)
	cause := Cause{Text: "NodeType " + nodeType.Name, Verdict: Good}
	if why := f.badTypes[nodeType.Name]; why != "" {
		return Cause{Text: "NodeType " + nodeType.Name + " has no servers: " + why, Verdict: Wrong}
	}
	summary, _ := f.inventory.Summary(nodeType.Name)
	cause.Text += ": " + summary.Counts().String()
	if nodeType.Spec.MaxCapacity != nil {
		cause.Text += fmt.Sprintf(", limited to %d", *nodeType.Spec.MaxCapacity)
	}
	if capacity.Status == metav1.ConditionFalse || summary.Capacity.Available == 0 {
		cause.Verdict = Wrong
	}
	for _, condition := range nodeType.Status.Conditions {
		if condition.Status == metav1.ConditionFalse && condition.Type != v1alpha1.ConditionHasCapacity &&
			condition.Type != v1alpha1.ConditionReady {
			cause.Verdict = Wrong
			cause.Causes = append(cause.Causes, Cause{Text: condition.Type + " is False: " + condition.Message, Verdict: Wrong})
		}
	}
	cause.Causes = append(cause.Causes, f.out(nodeType.Name)...)
	return cause
}

func (f *Fleet) explainNodeClaim(claim *karpv1.NodeClaim) Cause {
	cause := Cause{Text: "NodeClaim " + claim.Name, Verdict: Waiting}
	for _, condition := range claim.Status.Conditions {
		if condition.Type == "Ready" {
			cause.Text += " is Ready: " + string(condition.Status)
			if condition.Status == metav1.ConditionTrue {
				cause.Verdict = Good
			}
		}
	}
	if !claim.DeletionTimestamp.IsZero() {
		cause.Text += ", and is being deleted"
	}
	launched := conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeLaunched)
	if launched.Status != metav1.ConditionTrue && launched.Message != "" {
		cause.Causes = append(cause.Causes, Cause{Text: "it is not launched: " + quoted(launched.Reason+": "+launched.Message),
			Verdict: Wrong})
		cause.Verdict = Wrong
	}
	tenant := f.tenantCluster()
	if tenant == nil {
		return withCause(cause, unknownTenant)
	}
	for _, condition := range tenant.Blocked() {
		cause = withCause(cause, Cause{Text: fmt.Sprintf("its TenantCluster %s/%s is blocked: %s", tenant.Namespace, tenant.Name,
			quoted(condition.Message)), Verdict: Wrong})
	}
	machine := f.machines[types.NamespacedName{Namespace: tenant.Namespace, Name: claim.Name}]
	if machine == nil {
		return withCause(cause, Cause{Text: fmt.Sprintf("it has no Machine in namespace %s", tenant.Namespace), Verdict: Wrong,
			Remedy: "see what the provider says: kubectl describe nodeclaim " + claim.Name + ", in the tenant cluster"})
	}
	return withCause(cause, f.explainMachine(machine))
}

// unknownTenant is why nothing can be said of an object in a tenant cluster.
var unknownTenant = Cause{
	Text:    "which TenantCluster this cluster is cannot be told: none has its identity in status.clusterUID",
	Verdict: Wrong, Remedy: "see that the provider runs, and has the kubeconfig of this cluster",
}

// withCause adds a cause, and is as bad as that if it has not been good.
func withCause(cause, because Cause) Cause {
	cause.Causes = append(cause.Causes, because)
	if cause.Verdict != Good && because.Verdict == Wrong {
		cause.Verdict = Wrong
	}
	return cause
}

func (f *Fleet) explainPod(pod *corev1.Pod) Cause {
	cause := Cause{Text: fmt.Sprintf("pod %s/%s is %s", pod.Namespace, pod.Name, cmp.Or(pod.Status.Phase, corev1.PodPending))}
	switch {
	case pod.Spec.NodeName != "":
		return f.explainScheduledPod(pod, cause)
	case !pod.DeletionTimestamp.IsZero(), pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return cause
	}
	if because := notPlanned(pod); because.Text != "" {
		cause.Verdict = because.Verdict
		return withCause(cause, because)
	}
	tenant := f.tenantCluster()
	if tenant == nil {
		cause.Verdict = Wrong
		return withCause(cause, unknownTenant)
	}
	cause.Verdict = Waiting
	for _, condition := range tenant.Blocked() {
		cause = withCause(cause, Cause{Text: fmt.Sprintf("TenantCluster %s/%s is blocked: %s", tenant.Namespace, tenant.Name,
			quoted(condition.Message)), Verdict: Wrong})
	}
	pools := f.poolsCause(pod)
	cause = withCause(cause, pools)
	types, fitting := f.typesCause(pod, tenant)
	if err := f.quotaReached(tenant, fitting); err != nil {
		cause = withCause(cause, Cause{Text: err.Error(), Verdict: Wrong})
	}
	coming := f.coming(fitting)
	if len(coming) > 0 && pools.Verdict == Good {
		types.Verdict = Waiting
		types.Causes = append(types.Causes, coming...)
	}
	return withCause(cause, types)
}

// notPlanned is why Karpenter makes no node for a pod whatever servers there are, without a text if it would.
func notPlanned(pod *corev1.Pod) Cause {
	scheduler := cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	scheduled := slices.IndexFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodScheduled
	})
	switch {
	case len(pod.Spec.SchedulingGates) > 0:
		return Cause{Text: fmt.Sprintf("the scheduling gate %s holds it", pod.Spec.SchedulingGates[0].Name), Verdict: Wrong,
			Remedy: "what has set the gate removes it"}
	case scheduled < 0:
		return Cause{Text: fmt.Sprintf("no scheduler has looked at it: it names the scheduler %q", scheduler), Verdict: Wrong,
			Remedy: "see that a scheduler of this name runs, or correct spec.schedulerName"}
	case pod.Status.Conditions[scheduled].Reason != corev1.PodReasonUnschedulable:
		condition := pod.Status.Conditions[scheduled]
		return Cause{Text: fmt.Sprintf("the scheduler %q says %s: Karpenter waits until it says %s", scheduler,
			quoted(condition.Reason+": "+condition.Message), corev1.PodReasonUnschedulable), Verdict: Waiting}
	case podutils.IsPreempting(pod):
		return Cause{Text: fmt.Sprintf("the scheduler %q makes room for it on node %s", scheduler, pod.Status.NominatedNodeName),
			Verdict: Waiting}
	}
	return Cause{}
}

// quotaReached is why the quota of a tenant leaves no server of any of these types.
func (f *Fleet) quotaReached(tenant *v1alpha1.TenantCluster, nodeTypes []string) error {
	used := quota.Used(quota.Charged(tenant.Name, f.tenants[tenant.Namespace], f.snapshot.Management.Machines), "", nil)
	suspects := f.inventory.SuspectTypes(tenant.Namespace)
	var last error
	for _, name := range nodeTypes {
		if last = quota.Check(tenant, append(used, suspects...), name, f.accelerators); last == nil {
			return nil
		}
	}
	return quota.NameSuspects(last, len(suspects))
}

// accelerators of a server of a type.
func (f *Fleet) accelerators(nodeType string) (int64, error) {
	if known := f.nodeTypes[nodeType]; known != nil {
		return known.Spec.CountAccelerators(), nil
	}
	return 0, nil
}

// coming are the NodeClaims of these types that are not nodes yet. They may be for other pods.
func (f *Fleet) coming(nodeTypes []string) []Cause {
	var causes []Cause
	for i := range f.snapshot.Tenant.NodeClaims {
		claim := &f.snapshot.Tenant.NodeClaims[i]
		if !claim.DeletionTimestamp.IsZero() || !slices.Contains(nodeTypes, claim.Labels[corev1.LabelInstanceTypeStable]) ||
			conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeInitialized).Status == metav1.ConditionTrue {
			continue
		}
		explained := f.explainNodeClaim(claim)
		explained.Text = "a node of a type that fits is on its way, for this pod or another: " + explained.Text
		causes = append(causes, explained)
	}
	return causes
}

func (f *Fleet) explainScheduledPod(pod *corev1.Pod, cause Cause) Cause {
	cause.Text += " on node " + pod.Spec.NodeName
	cause.Verdict = Good
	for i := range f.snapshot.Tenant.NodeClaims {
		if claim := &f.snapshot.Tenant.NodeClaims[i]; claim.Status.NodeName == pod.Spec.NodeName {
			cause.Causes = append(cause.Causes, f.explainNodeClaim(claim))
		}
	}
	return cause
}

// poolsCause is which NodePools could have a node for the pod, and why the others could not.
func (f *Fleet) poolsCause(pod *corev1.Pod) Cause {
	pools := f.snapshot.Tenant.NodePools
	if len(pools) == 0 {
		return Cause{Text: "there is no NodePool", Verdict: Wrong, Remedy: "create one, or privateNodes.autoNodes in the TenantCluster"}
	}
	cause := Cause{Text: "no NodePool can have a node for it", Verdict: Wrong}
	// Which labels the provider knew when it started cannot be told. A NodePool may leave open all that servers have.
	serverLabels := instancetypes.ServerLabels(f.snapshot.Management.NodeTypes).Union(karpv1.WellKnownLabels)
	for i := range pools {
		_, why := instancetypes.PoolFits(&pools[i], pod, serverLabels)
		if why == nil {
			cause.Text, cause.Verdict = "NodePool "+pools[i].Name+" can have a node for it", Good
			continue
		}
		cause.Causes = append(cause.Causes, Cause{Text: "NodePool " + pools[i].Name + ": " + why.Error(), Verdict: Wrong})
	}
	if cause.Verdict == Good {
		for i := range cause.Causes {
			cause.Causes[i].Verdict = Note
		}
	}
	return cause
}

// typesCause is which NodeTypes could serve the pod now, and why the others do not. Fitting are those that could if they had a free
// server.
func (f *Fleet) typesCause(pod *corev1.Pod, tenant *v1alpha1.TenantCluster) (cause Cause, fitting []string) {
	if len(pod.Spec.ResourceClaims) > 0 {
		return Cause{Text: "it has resource claims, whose devices are not among the resources of NodeTypes: Karpenter says in the events of " +
			"the pod why it gets no node"}, nil
	}
	mismatches, served := explain.Mismatches(pod, f.snapshot.Management.NodeTypes, tenant.Allows,
		explain.Kubelets(f.snapshot.Tenant.NodeClasses)...)
	switch {
	case served != "":
		return Cause{Text: "NodeType " + served + " fits and has a free server: Karpenter is working on it, or the events of the pod say why not",
			Verdict: Good}, []string{served}
	case len(mismatches) == 0:
		return Cause{Text: "there are no NodeTypes", Verdict: Wrong}, nil
	case mismatches[0].Reason == explain.NoneFree:
		cause = Cause{Text: "no server is available for it", Verdict: Wrong}
	default:
		cause = Cause{Text: "no NodeType fits", Verdict: Wrong}
	}
	for _, mismatch := range mismatches {
		because := Cause{Text: "NodeType " + mismatch.NodeType + ": " + mismatch.Clause, Verdict: Wrong}
		if mismatch.Reason == explain.NoneFree {
			fitting, because.Causes = append(fitting, mismatch.NodeType), f.out(mismatch.NodeType)
		}
		cause.Causes = append(cause.Causes, because)
	}
	return cause, fitting
}
