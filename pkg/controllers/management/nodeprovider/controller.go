// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeprovider writes NodeTypes from the templates of NodeProviders.
package nodeprovider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// catchUp is how long to wait for the last write to reach the cache.
const catchUp = 100 * time.Millisecond

// Controller writes the NodeTypes of each NodeProvider.
type Controller struct {
	client    client.Client
	live      client.Reader
	inventory *inventory.Inventory
	recorder  events.EventRecorder
	clock     clock.PassiveClock
}

// NewController returns a controller. The client may read from a cache; live reads from the API server.
func NewController(client client.Client, live client.Reader, inventory *inventory.Inventory, recorder events.EventRecorder,
	clock clock.PassiveClock) *Controller {
	return &Controller{client: client, live: live, inventory: inventory, recorder: recorder, clock: clock}
}

func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeprovider").
		For(&v1alpha1.NodeProvider{}).
		Watches(&v1alpha1.NodeType{}, kube.Enqueue(c.providersOf)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), c))
}

// providersOf returns the providers that own a NodeType or its servers, or that wait to replace it.
func (c *Controller) providersOf(ctx context.Context, nodeType *v1alpha1.NodeType) []reconcile.Request {
	return kube.RequestsWhere(ctx, c.client, &v1alpha1.NodeProviderList{}, kube.Of(func(provider *v1alpha1.NodeProvider) bool {
		return nodeType.Spec.ProviderRef.Name == provider.Name || metav1.IsControlledBy(nodeType, provider) || lists(provider, nodeType.Name)
	}))
}

// Reconcile creates, updates and deletes the NodeTypes of a provider, and writes its status.
func (c *Controller) Reconcile(ctx context.Context, provider *v1alpha1.NodeProvider) (reconcile.Result, error) {
	// 1. A provider that is being deleted takes its NodeTypes with it, by their owner references.
	if !provider.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	nodeTypes := &v1alpha1.NodeTypeList{}
	// Their statuses change with each claim, and have the counts of all domains: do not copy them only to compare.
	if err := c.client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NodeTypes, %w", err)
	}

	// 2. NodeTypes that the provider no longer names are deleted. Machines that use one keep their servers.
	existing := make(map[string]*v1alpha1.NodeType, len(nodeTypes.Items))
	var failures []error
	for i := range nodeTypes.Items {
		nodeType := &nodeTypes.Items[i]
		existing[nodeType.Name] = nodeType
		if metav1.IsControlledBy(nodeType, provider) && !lists(provider, nodeType.Name) && nodeType.DeletionTimestamp.IsZero() {
			failures = append(failures, c.remove(ctx, provider, nodeType))
		}
	}

	// 3. The others are created or updated, but never taken from another owner.
	var rejections []rejection
	owned := int32(0)
	for i := range provider.Spec.Metal3.NodeTypes {
		rejection, err := c.apply(ctx, provider, &provider.Spec.Metal3.NodeTypes[i], existing)
		failures = append(failures, err)
		if rejection != nil {
			rejections = append(rejections, *rejection)
		}
		if err == nil && (rejection == nil || rejection.owned) {
			owned++
		}
	}
	if err := errors.Join(failures...); err != nil {
		return reconcile.Result{}, err
	}

	// 4. Its status follows. It also depends on where servers are: the statuses of its NodeTypes change with that. A
	// cache that has not caught up with the last status is no error.
	if err := c.writeStatus(ctx, provider, owned, rejections); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: catchUp}, nil
		}
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// apply creates or updates the NodeType of one template. A rejection is the user's to correct; an error can be retried.
func (c *Controller) apply(ctx context.Context, provider *v1alpha1.NodeProvider, from *v1alpha1.NodeTypeTemplate,
	existing map[string]*v1alpha1.NodeType) (*rejection, error) {
	wanted := v1alpha1.NodeTypeSpec{
		ProviderRef:     v1alpha1.NameReference{Name: provider.Name},
		HardwareProfile: *from.HardwareProfile.DeepCopy(),
	}
	if selector := from.HostSelector(provider, from.Name); selector != nil {
		wanted.BareMetalHosts = &v1alpha1.HostSelection{Selector: selector.DeepCopy()}
	}
	current, found := existing[from.Name]
	switch {
	case !found:
		nodeType := &v1alpha1.NodeType{
			ObjectMeta: metav1.ObjectMeta{
				Name:            from.Name,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(provider, v1alpha1.GroupVersion.WithKind("NodeProvider"))},
			},
			Spec: wanted,
		}
		setMetadata(nodeType, from.Metadata)
		if err := c.client.Create(ctx, nodeType); err != nil {
			return rejected(from.Name, false, fmt.Errorf("creating NodeType %s, %w", from.Name, err))
		}
		c.recorder.Eventf(provider, nodeType, corev1.EventTypeNormal, "NodeTypeCreated", "Sync", "Created NodeType %s.", from.Name)
	case !metav1.IsControlledBy(current, provider):
		return conflict(provider, current), nil
	case !current.DeletionTimestamp.IsZero():
		return nil, fmt.Errorf("waiting for the old NodeType %s to be deleted", from.Name)
	default:
		updated := &v1alpha1.NodeType{ObjectMeta: *current.ObjectMeta.DeepCopy(), Spec: wanted}
		setMetadata(updated, from.Metadata)
		if equality.Semantic.DeepEqual(current.ObjectMeta, updated.ObjectMeta) && equality.Semantic.DeepEqual(current.Spec, updated.Spec) {
			break
		}
		updated.Status = *current.Status.DeepCopy()
		if err := c.client.Update(ctx, updated); err != nil {
			return rejected(from.Name, true, fmt.Errorf("updating NodeType %s, %w", from.Name, err))
		}
	}
	return invalidSelector(provider, from), nil
}

// remove deletes a NodeType that the provider does not name. It reads the provider live: the name may be in use by now.
func (c *Controller) remove(ctx context.Context, provider *v1alpha1.NodeProvider, nodeType *v1alpha1.NodeType) error {
	current := &v1alpha1.NodeProvider{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(provider), current); err != nil {
		return fmt.Errorf("reading NodeProvider %s before deleting NodeType %s, %w", provider.Name, nodeType.Name, err)
	}
	if current.UID != provider.UID || lists(current, nodeType.Name) {
		return nil // the watch will deliver the current provider
	}
	exactly := client.Preconditions{UID: &nodeType.UID, ResourceVersion: &nodeType.ResourceVersion}
	if err := c.client.Delete(ctx, nodeType, exactly); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeType %s, %w", nodeType.Name, err)
	}
	c.recorder.Eventf(provider, nodeType, corev1.EventTypeNormal, "NodeTypeDeleted", "Sync",
		"Deleted NodeType %s, which is not among the nodeTypes any more.", nodeType.Name)
	return nil
}

// writeStatus writes the status if it has changed.
func (c *Controller) writeStatus(ctx context.Context, provider *v1alpha1.NodeProvider, owned int32, rejections []rejection) error {
	before := provider.DeepCopy()
	provider.Status.NodeTypes = owned
	synced := synced(provider, rejections, c.clock.Now())
	conditions.Set(&provider.Status.Conditions, synced)
	shared := c.separate(provider)
	conditions.SetReady(&provider.Status.Conditions, conditions.Sum(synced), provider.Generation, synced.LastTransitionTime)
	provider.Status.ObservedGeneration = provider.Generation
	if equality.Semantic.DeepEqual(before.Status, provider.Status) {
		return nil
	}
	// The resource version in the object makes the update fail if it is stale.
	if err := c.client.Status().Update(ctx, provider); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("writing the status of NodeProvider %s, %w", provider.Name, err)
	}
	for _, kind := range []string{v1alpha1.ConditionSynced, v1alpha1.ConditionFabricsSeparate} {
		now, old := conditions.Find(provider.Status.Conditions, kind), conditions.Find(before.Status.Conditions, kind)
		if now.Status != metav1.ConditionFalse || old.Message == now.Message {
			continue
		}
		note := now.Message
		if kind == v1alpha1.ConditionFabricsSeparate { // only operators get the names
			note += ". They are " + conditions.List(shared, maxShared)
		}
		c.recorder.Eventf(provider, nil, v1alpha1.EventType(now.Reason), now.Reason, "Sync", "%s",
			conditions.Truncate(note, conditions.MaxEventNote))
	}
	return nil
}

// maxShared is how many domains a message names.
const maxShared = 5

// separate sets the condition about domains whose fabric must not be shared, once a domain was shared. It returns the
// shared domains, with the namespaces that share them.
func (c *Controller) separate(provider *v1alpha1.NodeProvider) (shared []string) {
	if !c.inventory.Synced() {
		return nil
	}
	var domains []string
	for _, domain := range c.inventory.SharedDomains(provider.Spec.Metal3.ClusterRef.Namespace, provider.Spec.Metal3.ExclusiveTopology()) {
		domains = append(domains, domain.String())
		shared = append(shared, fmt.Sprintf("%s %s: %s", domain.Key, domain.Value, strings.Join(domain.Tenants, ", ")))
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionFabricsSeparate, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFabricsSeparate,
		Message:            "no domain whose fabric must not be shared has servers of several namespaces",
		ObservedGeneration: provider.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	if len(shared) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonFabricShared
		condition.Message = conditions.List(domains, maxShared) + ": nobody gets another server there before all but one have given theirs back"
	} else if meta.FindStatusCondition(provider.Status.Conditions, condition.Type) == nil {
		return nil
	}
	conditions.Set(&provider.Status.Conditions, condition)
	return shared
}

func lists(provider *v1alpha1.NodeProvider, name string) bool {
	return slices.ContainsFunc(provider.Spec.Metal3.NodeTypes, func(template v1alpha1.NodeTypeTemplate) bool { return template.Name == name })
}

// rejection is why a NodeType could not be written like its template.
type rejection struct {
	reason, message string
	// owned: the NodeType exists all the same.
	owned bool
}

// conflict returns the rejection for a NodeType of that name that is not the provider's.
func conflict(provider *v1alpha1.NodeProvider, nodeType *v1alpha1.NodeType) *rejection {
	owner := "has no owner"
	if controller := metav1.GetControllerOf(nodeType); controller != nil {
		owner = fmt.Sprintf("belongs to %s %s", controller.Kind, controller.Name)
		if controller.Name == provider.Name {
			owner += fmt.Sprintf(" with another UID (%s)", controller.UID)
		}
	}
	return &rejection{
		reason: v1alpha1.ReasonNameConflict,
		message: fmt.Sprintf("NodeType %s %s and is not taken over by NodeProvider %s: rename the type in one of the two, or delete it there",
			nodeType.Name, owner, provider.Name),
	}
}

// invalidSelector returns the rejection for a NodeType that selects no hosts. The NodeType is written all the same.
func invalidSelector(provider *v1alpha1.NodeProvider, from *v1alpha1.NodeTypeTemplate) *rejection {
	if _, err := capacity.Selector(from.HostSelector(provider, from.Name)); err != nil {
		return &rejection{
			reason:  v1alpha1.ReasonInvalidSelector,
			message: fmt.Sprintf("NodeType %s selects no servers: %v: correct it", from.Name, err),
			owned:   true,
		}
	}
	return nil
}

// rejected returns a rejection if the API server will never accept the NodeType, or else the error.
func rejected(name string, owned bool, err error) (*rejection, error) {
	if !apierrors.IsInvalid(err) {
		return nil, err
	}
	return &rejection{
		reason:  v1alpha1.ReasonInvalidSpec,
		message: fmt.Sprintf("NodeType %s is not valid and was not written: %v", name, err),
		owned:   owned,
	}, nil
}

// synced returns the condition for the rejections. Its reason is the reason of the first rejection.
func synced(provider *v1alpha1.NodeProvider, rejections []rejection, now time.Time) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionSynced,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonSynced,
		Message:            "every NodeType is as the spec says",
		ObservedGeneration: provider.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if len(rejections) > 0 {
		messages := lo.Map(rejections, func(rejection rejection, _ int) string { return rejection.message })
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, rejections[0].reason, strings.Join(messages, "; ")
	}
	return condition
}
