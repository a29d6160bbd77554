// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Verdict is the verdict on a state.
type Verdict string

const (
	// Good: as it should be.
	Good Verdict = "OK"
	// Waiting: on its way.
	Waiting Verdict = "Waiting"
	// Wrong: it stays like this until a person changes something, or another user gives a server back.
	Wrong Verdict = "Wrong"
	// Note: a neutral fact.
	Note Verdict = ""
)

// Cause is a fact, with the facts that it follows from.
type Cause struct {
	Text    string  `json:"text"`
	Verdict Verdict `json:"verdict,omitempty"`
	// Remedy is what to do: a command or a sentence.
	Remedy string  `json:"remedy,omitempty"`
	Causes []Cause `json:"causes,omitempty"`
}

// Explainable are the kinds that Explain accepts, as the command line names them.
var Explainable = []string{"pod", "podgroup", "job", "jobset", "nodeclaim", "machine", "host", "nodetype"}

const (
	// maxServers is how many servers or NodeClaims with the same problem are listed.
	maxServers = 20
	// nodePatience is how long the drivers and the network of a node may take to start.
	nodePatience = 10 * time.Minute
	// maxNamed is how many NodeTypes that do not fit for the same reason are named.
	maxNamed = 8
)

// Explain returns the tree from an object to the causes of its state. The name of a pod, a Machine or a host may have
// its namespace and a slash in front; without a namespace, only one object may have the name. The error names what
// was not found.
func (f *Fleet) Explain(kind, name string) (Cause, error) {
	switch kind {
	case "pod", "nodeclaim", "podgroup", "job", "jobset":
		if f.snapshot.Tenant == nil {
			return Cause{}, fmt.Errorf("a %s is in a tenant cluster: name its kubeconfig with --tenant-kubeconfig", kind)
		}
		return f.explainInTenants(kind, name)
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

// errNotFound is wrapped by errors about objects that do not exist.
var errNotFound = errors.New("was not found")

// explainInTenants explains an object that one of the tenant clusters has.
func (f *Fleet) explainInTenants(kind, name string) (Cause, error) {
	var found Cause
	var tenants []string
	var missing error
	for _, focused := range f.perTenant {
		cause, err := focused.explainInTenant(kind, name)
		switch {
		case err == nil:
			found, tenants = cause, append(tenants, focused.tenantName())
		case !errors.Is(err, errNotFound):
			return Cause{}, err
		default:
			missing = err
		}
	}
	switch len(tenants) {
	case 0:
		return Cause{}, missing
	case 1:
		return found, nil
	}
	return Cause{}, fmt.Errorf("there are %d of the name %q, in the clusters of %s: name one of them only", len(tenants), name,
		strings.Join(tenants, ", "))
}

func (f *Fleet) explainInTenant(kind, name string) (Cause, error) {
	if IsGroup(kind) {
		return f.explainGroup(kind, name)
	}
	if kind == "nodeclaim" {
		claim := nodeClaim(f.snapshot.Tenant, name)
		if claim == nil {
			return Cause{}, fmt.Errorf("NodeClaim %q %w in the tenant cluster", name, errNotFound)
		}
		return f.explainNodeClaim(claim), nil
	}
	pod, err := find(kind, name, f.snapshot.Tenant.Pods)
	if err != nil {
		return Cause{}, err
	}
	return f.explainPod(pod), nil
}

// Host returns the host with a name, which may have its namespace in front.
func (f *Fleet) Host(name string) (*bmov1alpha1.BareMetalHost, error) {
	return find("host", name, f.snapshot.Management.Hosts)
}

// Machine returns the Machine with a name, which may have its namespace in front.
func (f *Fleet) Machine(name string) (*v1alpha1.Machine, error) {
	return find("machine", name, f.snapshot.Management.Machines)
}

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
		return nil, fmt.Errorf("%s %q %w", kind, name, errNotFound)
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

// serverCause describes a server in one line.
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
		cause.Remedy = inventory.NoTypeRemedy
	case server.reason == inventory.ReasonClaimed:
		cause.Verdict = Note
	case server.reason.Passes():
		cause.Verdict = Waiting
	}
	return cause
}

// MachineOn returns the Machine that has the host, nil if none has.
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
		cause.Remedy = managerRemedy
	}
	if ready.Reason == v1alpha1.ReasonHostLost || ready.Reason == v1alpha1.ReasonHostDeleting {
		cause.Remedy = deletion(machine)
	}
	if described.Progress != "" {
		cause.Causes = append(cause.Causes, f.progressCause(machine, described))
	}
	if described.Phase == v1alpha1.MachinePending || described.Phase == v1alpha1.MachineFailed && machine.Status.HostRef == nil {
		cause.Causes = append(cause.Causes, f.candidates(machine)...)
	}
	if given := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionGivenUp); given.Status == metav1.ConditionTrue {
		cause.Causes = append(cause.Causes, Cause{Text: "it was given up: " + given.Message, Verdict: Wrong, Remedy: deletion(machine)})
	}
	if described.Drifted != "" {
		drifted := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionDrifted)
		cause.Causes = append(cause.Causes, Cause{Text: "it is drifted: " + drifted.Message})
	}
	if says, host := f.metal3Says(machine); says != "" {
		cause.Causes = append(cause.Causes, Cause{Text: says, Verdict: Wrong, Remedy: inventory.ReasonError.Remedy(host)})
	}
	return cause
}

// metal3Says quotes Metal3's error about the server of a Machine, empty if there is none. Only readers of the
// BareMetalHost see the error: no other object has it.
func (f *Fleet) metal3Says(machine *v1alpha1.Machine) (string, *bmov1alpha1.BareMetalHost) {
	if reference, has := machine.Host(); has && machine.Status.HostRef != nil {
		host := f.hosts[types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}]
		if host != nil && host.Status.ErrorMessage != "" {
			return "Metal3 says of its server: " + quoted(host.Status.ErrorMessage), host
		}
	}
	return "", nil
}

func deletion(machine *v1alpha1.Machine) string {
	return shell.Command("kubectl delete machines.karpenter.metal3.io -n %s %s", machine.Namespace, machine.Name)
}

// remedy returns what to do about a Machine that gets no further: the remedy in its explanation, or else the command
// that explains it.
func (f *Fleet) remedy(machine *v1alpha1.Machine) string {
	cause := f.explainMachine(machine)
	for _, because := range append([]Cause{cause}, cause.Causes...) {
		if because.Verdict == Wrong && because.Remedy != "" {
			return because.Remedy
		}
	}
	return shell.Command("kubectl metal3 explain machine %s", nameOf(machine))
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
		text += ": it takes longer than usual: it was expected "
	default:
		text += ": its node is expected "
	}
	return Cause{Text: text + until(f.Now(), described.Expected.Time), Verdict: Waiting}
}

// ago formats the time between two moments.
func ago(now, then time.Time) string { return now.Sub(then).Round(time.Second).String() }

// candidates explains why each considered type gives the Machine no server.
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
	var answers []typeAnswer
	for _, candidate := range no.Considered {
		answers = append(answers, typeAnswer{candidate.NodeType, candidate.String(), candidate.Fits()})
	}
	causes := f.typeCauses(answers)
	slices.SortStableFunc(causes, func(a, b Cause) int { return len(b.Causes) - len(a.Causes) })
	return causes
}

// typeAnswer is why a NodeType gives no server. If the type fits, the reason is in its servers.
type typeAnswer struct {
	nodeType, clause string
	fits             bool
}

// typeCauses explains NodeTypes. It lists types that do not fit for the same reason in one line.
func (f *Fleet) typeCauses(answers []typeAnswer) []Cause {
	alike := map[string][]string{}
	for _, answer := range answers {
		if !answer.fits {
			alike[answer.clause] = append(alike[answer.clause], answer.nodeType)
		}
	}
	var causes []Cause
	for _, answer := range answers {
		cause, names := Cause{Text: "NodeType " + answer.nodeType + ": " + answer.clause, Verdict: Wrong}, alike[answer.clause]
		switch {
		case answer.fits:
			cause.Causes = f.out(answer.nodeType)
		case answer.nodeType != names[0]:
			continue
		default:
			cause.Text = "NodeType " + conditions.List(names, maxNamed) + ": " + answer.clause
		}
		causes = append(causes, cause)
	}
	return causes
}

// out explains why the servers of a type cannot be claimed. Servers that come back by themselves are first. It names
// the servers that need somebody; for the others it says how many there are, and who has them.
func (f *Fleet) out(nodeType string) []Cause {
	var claimed []Server
	passing, wrong := map[string]int{}, map[string][]Cause{}
	for _, server := range f.servers {
		if !slices.Contains(server.Types, nodeType) || server.State == State(inventory.StateAvailable) {
			continue
		}
		reason := cmp.Or(string(server.reason), string(server.State))
		switch cause := f.serverCause(server); {
		case cause.Verdict == Wrong:
			wrong[reason] = append(wrong[reason], cause)
		case server.Machine != "" || server.reason == inventory.ReasonClaimed:
			claimed = append(claimed, server)
		default:
			passing[reason]++
		}
	}
	var all []Cause
	if len(passing) > 0 {
		all = append(all, Cause{Text: "servers that come back by themselves: " + strings.Join(Counted(passing), ", "), Verdict: Waiting})
	}
	for _, reason := range slices.Sorted(maps.Keys(wrong)) {
		causes := wrong[reason]
		if len(causes) == 1 {
			all = append(all, causes[0])
			continue
		}
		all = append(all, Cause{Text: fmt.Sprintf("%d servers: %s", len(causes), reason), Verdict: Wrong, Causes: few(causes, "servers")})
	}
	if len(claimed) > 0 {
		all = append(all, claimedCause(claimed))
	}
	rank := map[Verdict]int{Waiting: 0, Wrong: 1, Note: 2}
	slices.SortStableFunc(all, func(a, b Cause) int { return rank[a.Verdict] - rank[b.Verdict] })
	return all
}

// few cuts a list of causes to a readable length, and says how many things it left out.
func few(causes []Cause, things string) []Cause {
	if len(causes) <= maxServers {
		return causes
	}
	return append(causes[:maxServers:maxServers], Cause{Text: fmt.Sprintf("and %d more %s", len(causes)-maxServers, things)})
}

// claimedCause says who has servers, and the states of servers that are not nodes.
func claimedCause(servers []Server) Cause {
	owners, cause := map[string]map[State]int{}, Cause{}
	for _, server := range servers {
		owner := cmp.Or(server.Tenant, "Machines of no TenantCluster")
		if server.Machine == "" {
			owner = "others"
		}
		if owners[owner] == nil {
			owners[owner] = map[State]int{}
		}
		owners[owner][server.State]++
		if server.State == State(v1alpha1.MachineReleasing) {
			cause.Verdict = Waiting
		}
	}
	var parts []string
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		states, count := owners[owner], 0
		for _, number := range states {
			count += number
		}
		part := fmt.Sprintf("%d by %s", count, owner)
		if owner != "others" && states[State(v1alpha1.MachineJoined)] < count {
			part += " (" + strings.Join(Counted(states), ", ") + ")"
		}
		parts = append(parts, part)
	}
	cause.Text = fmt.Sprintf("%d claimed: %s", len(servers), strings.Join(parts, ", "))
	return cause
}

// Counted lists each key with its count, as "Joined 3", in the order of the keys.
func Counted[K ~string, N int | int32](counts map[K]N) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
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
	cause := Cause{Text: "NodeClaim " + claim.Name + f.ofTenant, Verdict: Waiting}
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
	tenant := f.tenant
	if tenant != nil {
		cause = withCause(cause, f.stopped(tenant)...)
	}
	launched := conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeLaunched)
	if launched.Status != metav1.ConditionTrue && launched.Message != "" {
		cause.Causes = append(cause.Causes, Cause{Text: "it is not launched: " + quoted(launched.Reason+": "+launched.Message),
			Verdict: Wrong})
		cause.Verdict = Wrong
	}
	if waits := f.uninitialized(claim); waits.Text != "" {
		cause = withCause(cause, waits)
	}
	if tenant == nil {
		return withCause(cause, unknownTenant)
	}
	machine := f.machines[types.NamespacedName{Namespace: tenant.Namespace, Name: claim.Name}]
	if machine == nil {
		return withCause(cause, Cause{Text: fmt.Sprintf("it has no Machine in namespace %s", tenant.Namespace), Verdict: Wrong,
			Remedy: "see what the provider says: " + shell.Command("kubectl describe nodeclaim %s", claim.Name) + ", in the tenant cluster"})
	}
	return withCause(cause, f.explainMachine(machine))
}

// uninitialized says what the node of a NodeClaim lacks. Karpenter waits for it without a limit, and the NodeClaim
// keeps its server. The text is empty if there is no node yet, or the node is initialized.
func (f *Fleet) uninitialized(claim *karpv1.NodeClaim) Cause {
	registered := conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeRegistered)
	waits := conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeInitialized)
	if registered.Status != metav1.ConditionTrue || waits.Status == metav1.ConditionTrue || waits.Message == "" ||
		!claim.DeletionTimestamp.IsZero() {
		return Cause{}
	}
	since := registered.LastTransitionTime.Time
	cause := Cause{Text: fmt.Sprintf("its node registered %s ago, is not initialized, and holds its server: %s", ago(f.Now(), since),
		quoted(waits.Reason+": "+waits.Message)), Verdict: Waiting}
	if since.Add(nodePatience).Before(f.Now()) {
		cause.Verdict = Wrong
		cause.Remedy = shell.Command("kubectl describe nodeclaim %s", claim.Name) + ", in the tenant cluster"
	}
	advertised := conditions.Find(claim.Status.Conditions, v1alpha1.ConditionResourcesAdvertised)
	if advertised.Status == metav1.ConditionFalse {
		cause = withCause(cause, Cause{Text: quoted(advertised.Message), Verdict: Wrong})
	}
	return cause
}

// claimCauses explains NodeClaims. It lists each NodeClaim that needs somebody. It only counts the others, unless
// there is only one.
func (f *Fleet) claimCauses(claims []*karpv1.NodeClaim) []Cause {
	byVerdict := map[Verdict][]Cause{}
	var first, last *metav1.Time
	for _, claim := range claims {
		cause := f.explainNodeClaim(claim)
		byVerdict[cause.Verdict] = append(byVerdict[cause.Verdict], cause)
		if expected := f.expected(claim.Name); expected != nil && cause.Verdict == Waiting {
			if first == nil || expected.Before(first) {
				first = expected
			}
			if last == nil || last.Before(expected) {
				last = expected
			}
		}
	}
	if coming := byVerdict[Waiting]; len(coming) > 1 {
		text := fmt.Sprintf("%d NodeClaims are on their way", len(coming))
		if first != nil {
			text += fmt.Sprintf(": the first is expected %s, the last %s", until(f.Now(), first.Time), until(f.Now(), last.Time))
		}
		byVerdict[Waiting] = []Cause{{Text: text, Verdict: Waiting}}
	}
	if ready := byVerdict[Good]; len(ready) > 1 {
		byVerdict[Good] = []Cause{{Text: fmt.Sprintf("%d NodeClaims are nodes", len(ready)), Verdict: Good}}
	}
	return slices.Concat(few(byVerdict[Wrong], "NodeClaims"), byVerdict[Waiting], byVerdict[Good])
}

// until says when something is expected.
func until(now, then time.Time) string {
	if then.Before(now) {
		return ago(now, then) + " ago"
	}
	return "in " + ago(then, now)
}

// unknownTenant is why nothing can be said about an object in a tenant cluster.
var unknownTenant = Cause{
	Text:    "which TenantCluster this cluster is cannot be told: none has its identity in status.clusterUID",
	Verdict: Wrong, Remedy: "see that the provider runs, and has the kubeconfig of this cluster",
}

// withCause adds causes. A cause that is not Good becomes Wrong if one of them is Wrong.
func withCause(cause Cause, all ...Cause) Cause {
	cause.Causes = append(cause.Causes, all...)
	for _, because := range all {
		if cause.Verdict != Good && because.Verdict == Wrong {
			cause.Verdict = Wrong
		}
	}
	return cause
}

func (f *Fleet) explainPod(pod *corev1.Pod) Cause {
	cause := Cause{Text: fmt.Sprintf("pod %s%s is %s", nameOf(pod), f.ofTenant, cmp.Or(pod.Status.Phase, corev1.PodPending))}
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
	tenant := f.tenant
	if tenant == nil {
		cause.Verdict = Wrong
		return withCause(cause, unknownTenant)
	}
	cause.Verdict = Waiting
	stopped := f.stopped(tenant)
	cause = withCause(cause, stopped...)
	plan := f.planOf(pod)
	if plan.Node != "" {
		return withCause(cause, Cause{Text: plan.text(), Verdict: Waiting})
	}
	pools := f.poolsCause(pod)
	cause = withCause(cause, pools)
	candidates := f.candidatesFor(pod, tenant)
	types, fitting := f.typesCause(pod, candidates)
	message := f.quotaReached(candidates, tenant)
	switch {
	case message != "":
		cause = withCause(cause, Cause{Text: message, Verdict: Wrong})
	case plan.Reason != "" && plan.Reason != explain.ReasonNoServerAvailable && plan.Reason != explain.ReasonNoNodeTypeFits:
		cause = withCause(cause, Cause{Text: "Karpenter's scheduler plans no node for it: " + quoted(plan.Reason+": "+plan.Why), Verdict: Wrong})
	case types.Verdict == Good && len(stopped) == 0:
		types.Text += ": whether Karpenter takes it, the events of the pod say"
	}
	if types.Verdict == Good {
		types.Verdict = Note
	}
	if pools.Verdict == Wrong && len(candidates) > 0 && candidates[0].Reason == explain.NoNodePool {
		return cause
	}
	// A reason in the plan means that Karpenter's scheduler has already considered the nodes on their way.
	if coming := f.coming(fitting); len(coming) > 0 && pools.Verdict == Good && plan.Reason == "" {
		types.Verdict = Waiting
		types.Causes = append(types.Causes, coming...)
	}
	return withCause(cause, types)
}

// Plan is the plan of Karpenter's scheduler for a pod that waits.
type Plan struct {
	// Node is the node that the pod is planned for, or the server that would become the node; empty without a plan.
	Node string
	// NodeType and NodePool are set for a server that would become a node.
	NodeType, NodePool string
	// Reason and Why say why the pod has no node: the reason and the message of the event that the provider or
	// Karpenter's scheduler would write.
	Reason, Why string
}

func (p Plan) text() string {
	if p.NodeType == "" {
		return "Karpenter's scheduler plans it for node " + p.Node
	}
	return fmt.Sprintf("Karpenter's scheduler plans a server of NodeType %s for it, by NodePool %s", p.NodeType, p.NodePool)
}

// PlanWith sets the plans of Karpenter's scheduler for the pods that wait. The snapshot must have only one tenant
// cluster.
func (f *Fleet) PlanWith(plans map[types.NamespacedName]Plan) {
	for _, focused := range f.perTenant {
		focused.plans = plans
	}
}

// planOf returns the plan of a pod. It is empty for pods that cannot be planned from a snapshot, which has no
// ResourceClaims, DeviceClasses or PodGroups.
func (f *Fleet) planOf(pod *corev1.Pod) Plan {
	if len(pod.Spec.ResourceClaims) > 0 || pod.Spec.SchedulingGroup != nil || f.onlyOfDevices(pod) != "" {
		return Plan{}
	}
	return f.plans[keyOf(pod)]
}

// notPlanned says why Karpenter creates no node for a pod, whatever servers there are. The text is empty if Karpenter
// would.
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
		return Cause{Text: fmt.Sprintf("the scheduler %q has nominated node %s for it, where a volume is made or other pods are evicted",
			scheduler, pod.Status.NominatedNodeName), Verdict: Waiting}
	}
	return Cause{}
}

// quotaReached says why a tenant's quota leaves no server of any type that suits a pod; empty if it leaves one. If
// some of these types have a free server, only they count.
func (f *Fleet) quotaReached(candidates []explain.Candidate, tenant *v1alpha1.TenantCluster) string {
	if tenant.Spec.Quota == nil {
		return ""
	}
	used := quota.Used(quota.Charged(tenant.Name, f.tenants[tenant.Namespace], f.snapshot.Management.Machines), "", nil)
	rest := quota.RestOf(tenant, used, func(nodeType string) int64 {
		if known := f.nodeTypes[nodeType]; known != nil {
			return known.Spec.CountAccelerators()
		}
		return 0
	})
	messages := map[bool][]string{} // by whether the type has a free server
	for _, candidate := range candidates {
		if candidate.Reason != matching.Fits && candidate.Reason != explain.NoneFree {
			continue
		}
		message := ""
		if err := rest.Check(candidate.NodeType); err != nil {
			message = err.Error()
		}
		free := candidate.Reason == matching.Fits
		messages[free] = append(messages[free], message)
	}
	deciding := messages[true]
	if len(deciding) == 0 {
		deciding = messages[false]
	}
	if slices.Contains(deciding, "") {
		return ""
	}
	return strings.Join(lo.Uniq(deciding), "; ")
}

// candidatesFor returns how each NodeType suits a pod.
func (f *Fleet) candidatesFor(pod *corev1.Pod, tenant *v1alpha1.TenantCluster) []explain.Candidate {
	return explain.Fleet{
		Tenant: tenant, NodeTypes: f.snapshot.Management.NodeTypes, NodePools: f.snapshot.Tenant.NodePools,
		NodeClasses: f.snapshot.Tenant.NodeClasses, ServerLabels: f.serverLabels(),
	}.Candidates(pod)
}

// serverLabels returns the labels that servers may have. A NodePool may leave all of them open, as nobody can tell
// which labels the provider knew at its start.
func (f *Fleet) serverLabels() sets.Set[string] {
	return instancetypes.ServerLabels(f.snapshot.Management.NodeTypes).Union(karpv1.WellKnownLabels)
}

// coming explains the NodeClaims of these types that are not nodes yet. They may be for other pods.
func (f *Fleet) coming(nodeTypes []string) []Cause {
	var claims []*karpv1.NodeClaim
	for i := range f.snapshot.Tenant.NodeClaims {
		claim := &f.snapshot.Tenant.NodeClaims[i]
		if claim.DeletionTimestamp.IsZero() && slices.Contains(nodeTypes, claim.Labels[corev1.LabelInstanceTypeStable]) &&
			conditions.Find(claim.Status.Conditions, karpv1.ConditionTypeInitialized).Status != metav1.ConditionTrue {
			claims = append(claims, claim)
		}
	}
	causes := f.claimCauses(claims)
	for i := range causes {
		causes[i].Text = "a node of a type that fits is on its way, for this pod or another: " + causes[i].Text
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

// poolsCause says which NodePools could have a node for the pod, and why the others could not.
func (f *Fleet) poolsCause(pod *corev1.Pod) Cause {
	pools := f.snapshot.Tenant.NodePools
	if len(pools) == 0 {
		return Cause{Text: "there is no NodePool", Verdict: Wrong, Remedy: "create one, or privateNodes.autoNodes in the TenantCluster"}
	}
	cause := Cause{Text: "no NodePool can have a node for it", Verdict: Wrong}
	serverLabels := f.serverLabels()
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

// onlyOfDevices returns a resource that a pod requests and no NodeType lists, if some NodeTypes have devices.
// Otherwise it is empty.
func (f *Fleet) onlyOfDevices(pod *corev1.Pod) corev1.ResourceName {
	nodeTypes := f.snapshot.Management.NodeTypes
	if !slices.ContainsFunc(nodeTypes, func(nodeType v1alpha1.NodeType) bool { return len(nodeType.Spec.Devices) > 0 }) {
		return ""
	}
	for _, name := range v1alpha1.Accelerators(resources.RequestsForPods(pod)) {
		if !slices.ContainsFunc(nodeTypes, func(nodeType v1alpha1.NodeType) bool {
			_, listed := nodeType.Spec.Resources[name]
			return listed
		}) {
			return name
		}
	}
	return ""
}

// typesCause says which NodeTypes could serve the pod now, and why the others do not. fitting are the NodeTypes that
// suit the pod: the first with a free server, or else all.
func (f *Fleet) typesCause(pod *corev1.Pod, candidates []explain.Candidate) (cause Cause, fitting []string) {
	if len(pod.Spec.ResourceClaims) > 0 {
		return Cause{Text: "it has resource claims, whose devices are not among the resources of NodeTypes: Karpenter says in the events of " +
			"the pod why it gets no node"}, nil
	}
	if name := f.onlyOfDevices(pod); name != "" {
		return Cause{Text: fmt.Sprintf("no NodeType lists %s among its resources, and NodeTypes declare devices, which a DeviceClass may serve "+
			"by that name: Karpenter says in the events of the pod why it gets no node", name)}, nil
	}
	switch {
	case len(candidates) == 0:
		return Cause{Text: "there are no NodeTypes", Verdict: Wrong}, nil
	case candidates[0].Reason == matching.Fits:
		return Cause{Text: "NodeType " + candidates[0].NodeType + " fits by its resources and labels, and has a free server", Verdict: Good},
			[]string{candidates[0].NodeType}
	case candidates[0].Reason == explain.NoneFree:
		cause = Cause{Text: "no server is available for it", Verdict: Wrong}
	default:
		cause = Cause{Text: "no NodeType fits", Verdict: Wrong}
	}
	var answers []typeAnswer
	for _, candidate := range candidates {
		fits := candidate.Reason == explain.NoneFree
		if fits {
			fitting = append(fitting, candidate.NodeType)
		}
		answers = append(answers, typeAnswer{candidate.NodeType, candidate.Clause, fits})
	}
	cause.Causes = f.typeCauses(answers)
	return cause, fitting
}
