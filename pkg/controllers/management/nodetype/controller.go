// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodetype adds NodeTypes to the inventory, and writes the capacity that the inventory counts into their status.
package nodetype

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory/feed"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// batchPeriod is how long changes of hosts are collected at least before a status is written. Otherwise a thousand
// hosts that change at once would cause a thousand writes.
const batchPeriod = 100 * time.Millisecond

// Controller adds NodeTypes to the inventory, and writes their status.
type Controller struct {
	client    client.Client
	inventory *inventory.Inventory
	recorder  events.EventRecorder
	clock     clock.PassiveClock
	disk      resource.Quantity
	// pace and told are used by Reconcile alone, which has one worker. told has the last event's small nodes, by type.
	pace  pace
	told  map[string]string
	nodes nodes
}

// NewController returns a controller. client may read from a cache. disk is the planned disk if its size is unknown.
func NewController(client client.Client, inventory *inventory.Inventory, recorder events.EventRecorder,
	clock clock.PassiveClock, disk resource.Quantity) *Controller {
	return &Controller{client: client, inventory: inventory, recorder: recorder, clock: clock, disk: disk,
		pace: newPace(), told: map[string]string{}}
}

func (c *Controller) Register(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Machine{}, JoinedField, JoinedAs); err != nil {
		return fmt.Errorf("indexing Machines by %s, %w", JoinedField, err)
	}
	// No predicate on NodeTypes: if the cache was stale when the status was compared, the event of the written status
	// leads to another comparison. It costs no write.
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodetype").
		For(&v1alpha1.NodeType{}).
		Watches(&v1alpha1.NodeProvider{}, kube.Enqueue(c.ofProvider), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.TenantCluster{}, kube.Enqueue(c.ofNamespace), builder.WithPredicates(kube.Only(kube.Creations|kube.Deletions))).
		Watches(&v1alpha1.Machine{}, kube.Enqueue(c.nodes.ofMachine), builder.WithPredicates(predicate.Or(
			kube.Changed((*v1alpha1.Machine).HasJoined), kube.Changed((*v1alpha1.Machine).NodeSize)))).
		WatchesRawSource(source.Func(c.start)).
		Complete(c)
}

// ofProvider maps a provider to its types.
func (c *Controller) ofProvider(ctx context.Context, provider client.Object) []reconcile.Request {
	return kube.RequestsWhere(ctx, c.client, &v1alpha1.NodeTypeList{}, kube.Of(func(nodeType *v1alpha1.NodeType) bool {
		return nodeType.Spec.ProviderRef.Name == provider.GetName()
	}))
}

// ofNamespace maps a TenantCluster to the types whose servers are in its namespace: they must not be used.
func (c *Controller) ofNamespace(ctx context.Context, tenant client.Object) []reconcile.Request {
	providers := &v1alpha1.NodeProviderList{}
	if err := c.client.List(ctx, providers, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing the NodeProviders of a namespace", "namespace", tenant.GetNamespace())
	}
	var requests []reconcile.Request
	for i := range providers.Items {
		if providers.Items[i].Spec.Metal3.ClusterRef.Namespace == tenant.GetNamespace() {
			requests = append(requests, c.ofProvider(ctx, &providers.Items[i])...)
		}
	}
	return requests
}

// JoinedField indexes joined Machines by the name of their NodeType.
const JoinedField = "joined"

// JoinedAs returns the values of JoinedField for a Machine.
func JoinedAs(object client.Object) []string {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok || !machine.HasJoined() {
		return nil
	}
	return []string{machine.Status.NodeTypeRef.Name}
}

// start resumes before the first Reconcile. Then it enqueues a type whenever its hosts change.
func (c *Controller) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if err := c.Resume(ctx); err != nil {
		return err
	}
	c.inventory.OnChange(func(names []string) {
		for _, name := range names {
			queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, batchPeriod)
		}
	})
	return nil
}

// Resume adds all types to the inventory, and waits until the inventory has all hosts: an earlier status would claim
// that there are no servers. New claims continue the numbers of an earlier process. Resume marks types whose
// status that process did not write after its last claim.
func (c *Controller) Resume(ctx context.Context) error {
	nodeTypes, machines := &v1alpha1.NodeTypeList{}, &v1alpha1.MachineList{}
	if err := c.client.List(ctx, nodeTypes); err != nil {
		return fmt.Errorf("listing NodeTypes, %w", err)
	}
	if err := c.client.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Machines for the numbers of their claims, %w", err)
	}
	for i := range nodeTypes.Items {
		if _, err := feed.AddType(ctx, c.client, c.inventory, &nodeTypes.Items[i]); err != nil {
			return err
		}
	}
	if err := c.inventory.WaitForHosts(ctx); err != nil {
		return fmt.Errorf("waiting for the BareMetalHosts, %w", err)
	}
	for i := range nodeTypes.Items {
		c.inventory.ResumeClaims(types.NamespacedName{}, "", nodeTypes.Items[i].Status.CountedUntil)
	}
	for i := range machines.Items {
		if status := &machines.Items[i].Status; status.HostRef != nil && status.NodeTypeRef != nil {
			host := types.NamespacedName{Namespace: status.HostRef.Namespace, Name: status.HostRef.Name}
			c.inventory.ResumeClaims(host, status.NodeTypeRef.Name, status.ClaimNumber)
		}
	}
	c.inventory.MarkTypesSynced() // from now on there are decisions
	return nil
}

// Reconcile updates the inventory from a NodeType, and the NodeType's status from the inventory. It takes the name and
// not the object, because it must notice when a NodeType is gone.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	nodeType := &v1alpha1.NodeType{}
	if found, err := kube.Find(ctx, c.client, request.NamespacedName, nodeType); err != nil {
		return reconcile.Result{}, err
	} else if !found {
		// 1. It was deleted. Machines keep their servers.
		c.inventory.DeleteType(request.Name)
		c.pace.forget(request.Name)
		c.nodes.byType.Delete(request.Name)
		delete(c.told, request.Name)
		return reconcile.Result{}, nil
	}

	// 2. It is new or has changed, or its provider has.
	invalid, err := feed.AddType(ctx, c.client, c.inventory, nodeType)
	if err != nil {
		return reconcile.Result{}, err
	}

	// 3. Its status follows, in its turn.
	summary, _ := c.inventory.Summary(nodeType.Name)
	urgency := urgencyOf(nodeType, summary, invalid)
	if wait := c.pace.waits(nodeType.Name, urgency, c.clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	before := nodeType.DeepCopy()
	if invalid == nil {
		nodeType.Status.Resources = effectiveResources(nodeType, summary)
	}
	nodes, err := c.nodes.get(ctx, c.client, nodeType)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.publishSmaller(nodeType, conditions.List(nodes.Smaller, inventory.MaxNamed))
	if nodeType.Status.FoundAccelerators = nil; nodeType.Spec.NamesNothing() {
		nodeType.Status.FoundAccelerators = summary.Accelerators
	}
	if differs(before.Status.Provisioning, nodes.Provisioning) {
		nodeType.Status.Provisioning = nodes.Provisioning
	}
	nodeType.Status = status(nodeType, summary, c.disk, invalid, c.clock.Now())
	if equality.Semantic.DeepEqual(before.Status, nodeType.Status) && summary.LastClaim <= before.Status.CountedUntil {
		c.pace.leave(nodeType.Name)
		return reconcile.Result{}, nil
	}
	tenants := &v1alpha1.TenantClusterList{}
	if err := c.client.List(ctx, tenants, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing TenantClusters, whose providers watch NodeTypes, %w", err)
	}
	watches := int64(max(1, len(tenants.Items)))
	// The factor 2 is for managedFields, which the cache does not have and which can be as much again.
	c.pace.book(nodeType.Name, urgency, 2*watches*size(nodeType), c.clock.Now())
	if wait := c.pace.waits(nodeType.Name, urgency, c.clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	nodeType.Status.CountedUntil = max(before.Status.CountedUntil, summary.Claims)
	// This is not a patch: a patch from a status of zeros to a status of other zeros would leave out counts that the
	// schema requires. The resource version in the object makes the update fail if the object is stale.
	if err := c.client.Status().Update(ctx, nodeType); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: batchPeriod}, nil // the cache has not caught up yet
		}
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("writing the status of NodeType %s, %w", nodeType.Name, err))
	}
	c.pace.wrote(nodeType.Name, urgency, watches*size(nodeType), c.clock.Now())
	c.publish(before, nodeType)
	c.publishLowered(before, nodeType, summary)
	return reconcile.Result{}, nil
}

// size returns the size of a NodeType in a watch, in bytes.
func size(nodeType *v1alpha1.NodeType) int64 {
	text, _ := json.Marshal(nodeType) // it was decoded from JSON
	return int64(len(text))
}

// differs reports whether a new estimate is worth a write: it is the first one, or differs by a tenth or more.
func differs(before, now *v1alpha1.ProvisioningEstimate) bool {
	if before == nil || now == nil {
		return now != nil
	}
	return 10*max(before.TypicalSeconds-now.TypicalSeconds, now.TypicalSeconds-before.TypicalSeconds) >= max(before.TypicalSeconds, 1)
}

// publish writes an event for an error that must be corrected.
func (c *Controller) publish(before, after *v1alpha1.NodeType) {
	told := sets.New[string]() // an invalid type has the same message in several conditions
	for _, condition := range after.Status.Conditions {
		old := meta.FindStatusCondition(before.Status.Conditions, condition.Type)
		if v1alpha1.IsWarning(condition.Reason) && condition.Status != metav1.ConditionTrue &&
			!told.Has(condition.Message) && (old == nil || old.Reason != condition.Reason || old.Message != condition.Message) {
			told.Insert(condition.Message)
			c.recorder.Eventf(after, nil, corev1.EventTypeWarning, condition.Reason, "Sync", "%s", condition.Message)
		}
	}
}

// publishLowered writes an event for each resource that the spec leaves out, if a server has less than all earlier
// servers. The labels of that server may be wrong.
func (c *Controller) publishLowered(before, after *v1alpha1.NodeType, summary inventory.Summary) {
	for _, name := range after.Spec.LeftOut() {
		least, found := summary.Least[name]
		was, known := before.Status.Resources[name]
		if found && known && least.Quantity.Cmp(was) < 0 {
			c.recorder.Eventf(after, nil, corev1.EventTypeWarning, v1alpha1.ReasonResourcesLowered, "Sync",
				"%s is %s instead of %s, because server %s has no more and resources leaves it out: name %s in resources, or correct the "+
					"labels of the server", name, least.Quantity.String(), was.String(), least.Server, name)
		}
	}
}

// publishSmaller writes an event for operators if the nodes that are smaller than the type allows have changed.
func (c *Controller) publishSmaller(nodeType *v1alpha1.NodeType, smaller string) {
	if smaller != "" && smaller != c.told[nodeType.Name] {
		c.recorder.Eventf(nodeType, nil, corev1.EventTypeWarning, v1alpha1.ReasonNodesSmaller, "Sync", "%s",
			conditions.Truncate("nodes have less than the type says, as their tenants report: "+smaller+": look at the servers, "+
				"or correct resources. Pods of others are planned with what the type says", conditions.MaxEventNote))
	}
	c.told[nodeType.Name] = smaller
}

// effectiveResources returns the resources of the spec, completed with the resources that Metal3 has found. A resource
// that Metal3 found before stays if no server shows it any more: nodes of the type may run.
func effectiveResources(nodeType *v1alpha1.NodeType, summary inventory.Summary) corev1.ResourceList {
	now := nodeType.DeepCopy()
	for name, least := range summary.Least {
		if now.Status.Resources == nil {
			now.Status.Resources = corev1.ResourceList{}
		}
		now.Status.Resources[name] = least.Quantity
	}
	return now.EffectiveResources()
}

// status computes the status of a NodeType.
func status(nodeType *v1alpha1.NodeType, summary inventory.Summary, disk resource.Quantity, invalid *inventory.InvalidType,
	now time.Time) v1alpha1.NodeTypeStatus {
	status := *nodeType.Status.DeepCopy()
	status.ObservedGeneration, status.Cost = nodeType.Generation, nodeType.EffectiveCost()
	status.Accelerators = capacity.Accelerators(&nodeType.Spec.HardwareProfile)
	status.Capacity = v1alpha1.Capacity{}
	if invalid == nil {
		status.Capacity, status.Zones, status.Domains = summary.Capacity, summary.Zones, summary.Domains
		status.Requirements = summary.Requirements
		status.EphemeralStorage = capacity.EphemeralStorage(&nodeType.Spec.HardwareProfile, summary.SmallestDisk, disk)
	} else {
		// Zones and requirements stay: without them the type would have changed for tenants, and they would replace
		// running nodes. None of its servers can be claimed.
		for i := range status.Zones {
			status.Zones[i].Capacity = v1alpha1.Capacity{}
		}
		for i := range status.Domains {
			status.Domains[i].Capacity = v1alpha1.Capacity{}
		}
	}

	all := []metav1.Condition{synced(summary), hasCapacity(nodeType, summary), hardwareFits(nodeType, summary)}
	if invalid != nil {
		for i, state := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionUnknown} {
			all[i].Status, all[i].Reason, all[i].Message = state, invalid.Reason, invalid.Message
		}
	}
	for _, condition := range all {
		condition.ObservedGeneration = nodeType.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	// It is no error of the type if no server is free, or if some are smaller than they should be.
	conditions.SetReady(&status.Conditions, conditions.Sum(all[0]), nodeType.Generation, metav1.NewTime(now))
	return status
}

func synced(summary inventory.Summary) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionSynced, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonSynced, Message: "cost and capacity are up to date",
	}
	if summary.DomainCount > inventory.MaxDomains {
		condition.Message += fmt.Sprintf("; its servers are in %d topology domains, more than the %d that are counted one by one: "+
			"claims that ask for one may find it full, so name fewer labels in --topology-labels", summary.DomainCount, inventory.MaxDomains)
	}
	return condition
}

func hasCapacity(nodeType *v1alpha1.NodeType, summary inventory.Summary) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionHasCapacity, Status: metav1.ConditionFalse}
	counts, selector := summary.Counts(), nodeType.Spec.HostSelector(nodeType, nodeType.Name)
	switch {
	case selector == nil:
		condition.Reason = v1alpha1.ReasonNoSelector
		condition.Message = "bareMetalHosts is left out: the type has no servers until it names a selector, or is named in the annotation " +
			v1alpha1.SelectAllHostsAnnotationKey
	case counts.Total == 0:
		condition.Reason = v1alpha1.ReasonNoHosts
		condition.Message = fmt.Sprintf("no BareMetalHost of NodeProvider %s matches %q: label the servers, or correct bareMetalHosts.selector",
			nodeType.Spec.ProviderRef.Name, metav1.FormatLabelSelector(selector))
	case unknown(nodeType):
		condition.Reason = v1alpha1.ReasonResourcesUnknown
		condition.Message = leavesOut(nodeType) + ", and Metal3 has inspected none of the servers yet: " + counts.String() +
			noAccelerators(nodeType)
	case counts.Available > 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAvailable
		condition.Message = fmt.Sprintf("%s, %d available", counts, counts.Available)
	default:
		condition.Reason, condition.Message = v1alpha1.ReasonExhausted, counts.String()
	}
	if limit := nodeType.Spec.MaxCapacity; limit != nil && summary.Used >= *limit {
		condition.Message += fmt.Sprintf("; maxCapacity %d is reached", *limit)
	}
	condition.Message += shared(summary)
	return condition
}

// shared describes how many servers of a type match other types, too.
func shared(summary inventory.Summary) string {
	servers := map[string]int32{}
	for i := range summary.Domains {
		for _, other := range summary.Domains[i].SharedWith {
			servers[other] += summary.Domains[i].Capacity.Total
		}
	}
	var others []string
	for _, other := range slices.Sorted(maps.Keys(servers)) {
		others = append(others, fmt.Sprintf("%d match NodeType %s too", servers[other], other))
	}
	if len(others) == 0 {
		return ""
	}
	return "; " + conditions.List(others, inventory.MaxNamed) +
		": each is counted in all its types and claimed as one of them"
}

// unknown reports whether the size of a type's servers is not known yet.
func unknown(nodeType *v1alpha1.NodeType) bool {
	for _, name := range nodeType.Spec.LeftOut() {
		if _, found := nodeType.Status.Resources[name]; !found {
			return true
		}
	}
	return false
}

func leavesOut(nodeType *v1alpha1.NodeType) string {
	names := lo.Map(nodeType.Spec.LeftOut(), func(name corev1.ResourceName, _ int) string { return string(name) })
	return "resources leaves out " + strings.Join(names, " and ")
}

// noAccelerators describes the accelerators that a type without any resources does not count.
func noAccelerators(nodeType *v1alpha1.NodeType) string {
	if !nodeType.Spec.NamesNothing() {
		return ""
	}
	return "; it " + capacity.NamesNoAccelerators(nodeType.Status.FoundAccelerators)
}

// inspected describes the inspected sizes of the resources that a type leaves out.
func inspected(nodeType *v1alpha1.NodeType, summary inventory.Summary) string {
	var found []string
	for _, name := range nodeType.Spec.LeftOut() {
		if least, known := summary.Least[name]; known {
			found = append(found, fmt.Sprintf("%s %s in %s", name, least.Quantity.String(), least.Server))
		}
	}
	return leavesOut(nodeType) + ", of which the least that Metal3 has found counts: " + strings.Join(found, ", ") + noAccelerators(nodeType)
}

// hardwareFits returns the condition that the servers have the resources of the type. Smaller ones are not claimed.
// Either their labels or the type may be wrong.
func hardwareFits(nodeType *v1alpha1.NodeType, summary inventory.Summary) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionHardwareFits}
	switch small := summary.Capacity.TooSmall; {
	case small > 0:
		verb := "have"
		if small == 1 {
			verb = "has"
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonHostsTooSmall
		condition.Message = fmt.Sprintf("%d of %d servers %s less than resources says and cannot be claimed as %s: %s: correct resources, or "+
			"the labels of the servers",
			small, summary.Capacity.Total, verb, nodeType.Name, inventory.Named(summary.TooSmall, int(small)))
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonBigEnough
		condition.Message = "no server is known to have less than resources says"
		switch {
		case unknown(nodeType):
			condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonResourcesUnknown
			condition.Message = leavesOut(nodeType) + ", and Metal3 has inspected no server"
		case len(summary.Least) > 0:
			condition.Message = inspected(nodeType, summary)
		}
	}
	return condition
}
