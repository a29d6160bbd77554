// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims syncs ResourceClaims and ResourceClaimTemplates between a tenant and the host.
//
// CopyController copies the tenant's objects to the host. Finalizers hold both. The origin's finalizer is written
// before the copy is created, and removed once the copy is gone: no copy loses its origin, and no claim leaves the
// tenant while a pod on the host uses it. The copy has its own finalizer from the start, so its deletion is noticed.
//
// GeneratedController shows the tenant the claims that the host's resourceclaim controller generates from templates,
// for the host's copies of the tenant's pods, under the names that the tenant's pods expect. If the tenant has its own
// resourceclaim controller, that controller has already generated a claim for the pod, and only the status is mirrored.
// Otherwise GeneratedController also creates the claim in the tenant, owned by the pod. It does the same when a syncer
// overwrites the name in the pod's status with the host's, and then deletes the claim that the tenant's controller has
// generated.
package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// kind holds the differences between claims and templates.
type kind[T client.Object] struct {
	schema.GroupVersionKind
	controllerName string
	object         func() T
	list           func() client.ObjectList
	sync           func(*v1alpha1.Sync) v1alpha1.ClaimSync
	spec           func(T) *resourcev1.ResourceClaimSpec
	// metadata returns the labels and annotations to copy.
	metadata func(T) []map[string]string
	// forHost returns a copy for the host, without metadata.
	forHost func(object T, tenant string) T
	// mirrorStatus writes the status of the copy into the tenant's object. It is nil if the kind has no status.
	mirrorStatus func(ctx context.Context, clusters tenant.Clusters, s policy.Settings, copied, object T) error
}

// CopyController maintains the copies on the host of one kind of a tenant's objects.
type CopyController[T client.Object] struct {
	kind     kind[T]
	clusters tenant.Clusters
	recorder events.Recorder
	// created maps keys of objects to names of their copies, for new copies that the cache does not show yet.
	created sync.Map
	// counting is held while copies are counted and one is added.
	counting sync.Mutex
	clock    clock.PassiveClock
	// expectations track the tenant's objects.
	expectations kube.Expectations
}

// pair is an object of the tenant and the object on the host under its name.
type pair[T client.Object] struct {
	object T
	// name on the host, empty if nameError is set.
	name      string
	nameError error
	// copied is the object with that name on the host, if exists is true. owned is true if it is the copy of exactly
	// this object.
	copied        T
	exists, owned bool
}

// Reconcile brings one object of the tenant, and its copy, a step further. It decides only from what it reads, so after
// a crash between two writes the next run continues.
func (c *CopyController[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	requeue, err := c.reconcile(ctx, request.NamespacedName)
	if errors.Is(err, errNoCopy) {
		return reconcile.Result{RequeueAfter: roomRetry}, nil
	}
	if requeue && err == nil {
		return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
	}
	return kube.RetryConflict(err)
}

// reconcile reports true if it must be called again shortly, because a cache is behind this process's writes.
func (c *CopyController[T]) reconcile(ctx context.Context, key client.ObjectKey) (bool, error) {
	var p pair[T]
	var found bool
	var err error
	if p.object, found, err = c.get(ctx, c.clusters.Tenant.Client, key, "in the tenant"); err != nil {
		return false, err
	}
	if p.name, p.nameError = names.HostNameShort(key.Name, key.Namespace, c.clusters.TenantCluster.Name); p.nameError == nil {
		if p.copied, p.exists, err = c.get(ctx, c.clusters.Management.Client, c.hostKey(p.name), "on the host"); err != nil {
			return false, err
		}
	}
	if err := c.deleteLongNamed(ctx, key); err != nil {
		return false, err
	}
	if !found {
		c.expectations.Forget(key)
		c.created.Delete(key)
	} else if !c.expectations.Satisfied(p.object, c.clock.Now()) {
		return true, nil
	}
	// 1. The tenant's object is gone, maybe by force. Its copy must not stay.
	if !found {
		if !p.exists {
			return false, nil
		}
		return false, c.deleteOrphan(ctx, key, p.copied)
	}
	p.owned = p.exists && c.owns(p.copied, p.object)
	hasFinalizer := controllerutil.ContainsFinalizer(p.object, v1alpha1.DRASyncFinalizer)
	// 2. The host generates its own claim for this pod, which GeneratedController handles.
	if podOwner(p.object) != nil && !hasFinalizer {
		return false, nil
	}
	s, err := policy.Read(ctx, c.clusters.Management.Client, c.clusters.TenantCluster)
	if err != nil {
		return false, err
	}
	switch {
	// 3. It is being deleted in the tenant.
	case !p.object.GetDeletionTimestamp().IsZero():
		if !hasFinalizer {
			return false, nil
		}
		return c.finalize(ctx, s, p)
	// 4. Its copy is being deleted on the host.
	case p.owned && !p.copied.GetDeletionTimestamp().IsZero():
		return false, c.deleteInTenant(ctx, p.object)
	// 5. The sync is off: synced objects stay, and nothing is added.
	case !c.kind.sync(&s.Sync).Enabled:
		return false, nil
	case p.nameError != nil:
		c.notInSync(p.object, ReasonInvalidName, p.nameError.Error())
		return false, nil
	}
	return c.sync(ctx, s, p)
}

// sync creates or updates the copy of an object that should be in sync.
func (c *CopyController[T]) sync(ctx context.Context, s policy.Settings, p pair[T]) (bool, error) {
	// 6. Nothing is synced while a class is not allowed.
	if allowed, err := c.allowed(ctx, s, p.object, p.owned); err != nil || !allowed {
		return false, err
	}
	key := client.ObjectKeyFromObject(p.object)
	switch {
	// 7. There is no copy yet.
	case !p.exists:
		// The host's cache lags behind the last run: creating the copy again would fail, and cost a request.
		if _, created := c.created.LoadAndDelete(key); created {
			return true, nil
		}
		return false, c.create(ctx, s, p.object, p.name)
	// 8. The name belongs to another object, or to an earlier object with this name.
	case !p.owned:
		return false, c.resolveConflict(ctx, p.object, p.copied)
	// 9. There is a copy.
	default:
		c.created.Delete(key)
		if err := c.addFinalizer(ctx, p.object); err != nil {
			return false, err
		}
		return false, c.update(ctx, s, p.object, p.copied)
	}
}

// owns reports whether this controller made the copy from exactly this object.
func (c *CopyController[T]) owns(copied, object T) bool {
	return names.IsCopyOf(copied, object, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name) && c.isCopy(copied)
}

// isCopy reports whether this controller created an object of the host. If deleted, it may have no finalizer.
func (c *CopyController[T]) isCopy(copied T) bool {
	return controllerutil.ContainsFinalizer(copied, v1alpha1.DRASyncFinalizer) || !copied.GetDeletionTimestamp().IsZero()
}

func (c *CopyController[T]) hostKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.clusters.TenantCluster.Namespace, Name: name}
}

// get returns an object, and reports whether it exists.
func (c *CopyController[T]) get(ctx context.Context, reader client.Reader, key client.ObjectKey, where string) (T, bool, error) {
	object := c.kind.object()
	found, err := kube.Find(ctx, reader, key, object)
	if err != nil {
		err = fmt.Errorf("%s, %w", where, err)
	}
	return object, found, err
}

// patch calls kube.Patch, and ignores an object that is gone.
func patch(ctx context.Context, c client.Client, object client.Object, doing string, change func()) error {
	return client.IgnoreNotFound(kube.Patch(ctx, c, object, doing, change))
}

// NewClaimController constructs the controller of ResourceClaims.
func NewClaimController(clusters tenant.Clusters, clk clock.PassiveClock,
	recorder events.Recorder) *CopyController[*resourcev1.ResourceClaim] {
	return &CopyController[*resourcev1.ResourceClaim]{clusters: clusters, clock: clk, recorder: recorder,
		kind: kind[*resourcev1.ResourceClaim]{
			GroupVersionKind: names.ClaimKind,
			controllerName:   "dra.resourceclaims",
			object:           func() *resourcev1.ResourceClaim { return &resourcev1.ResourceClaim{} },
			list:             func() client.ObjectList { return &resourcev1.ResourceClaimList{} },
			sync:             func(sync *v1alpha1.Sync) v1alpha1.ClaimSync { return sync.ToHost.ResourceClaims },
			spec:             func(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaimSpec { return &claim.Spec },
			metadata: func(claim *resourcev1.ResourceClaim) []map[string]string {
				return []map[string]string{claim.Labels, claim.Annotations}
			},
			forHost: func(claim *resourcev1.ResourceClaim, _ string) *resourcev1.ResourceClaim {
				return &resourcev1.ResourceClaim{Spec: policy.ForHost(&claim.Spec)}
			},
			mirrorStatus: mirrorStatus,
		}}
}

// NewTemplateController constructs the controller of ResourceClaimTemplates.
func NewTemplateController(clusters tenant.Clusters, clk clock.PassiveClock,
	recorder events.Recorder) *CopyController[*resourcev1.ResourceClaimTemplate] {
	return &CopyController[*resourcev1.ResourceClaimTemplate]{clusters: clusters, clock: clk, recorder: recorder,
		kind: kind[*resourcev1.ResourceClaimTemplate]{
			GroupVersionKind: names.TemplateKind,
			controllerName:   "dra.resourceclaimtemplates",
			object:           func() *resourcev1.ResourceClaimTemplate { return &resourcev1.ResourceClaimTemplate{} },
			list:             func() client.ObjectList { return &resourcev1.ResourceClaimTemplateList{} },
			sync:             func(sync *v1alpha1.Sync) v1alpha1.ClaimSync { return sync.ToHost.ResourceClaimTemplates },
			metadata: func(template *resourcev1.ResourceClaimTemplate) []map[string]string {
				return []map[string]string{template.Labels, template.Annotations, template.Spec.Labels, template.Spec.Annotations}
			},
			spec: func(template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaimSpec {
				return &template.Spec.Spec
			},
			forHost: func(template *resourcev1.ResourceClaimTemplate, tenant string) *resourcev1.ResourceClaimTemplate {
				// The host's claims get only these labels and annotations of the tenant.
				own := names.OwnMetadata(template.Spec.Labels, template.Spec.Annotations, tenant)
				return &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: own.Labels, Annotations: own.Annotations},
					Spec:       policy.ForHost(&template.Spec.Spec),
				}}
			},
		}}
}

// allowed reports whether the tenant may ask for all classes of an object. If not, it publishes an event.
func (c *CopyController[T]) allowed(ctx context.Context, s policy.Settings, object T, synced bool) (bool, error) {
	if s.SelectorError != nil {
		c.notInSync(object, ReasonInvalidSelector, "the selector for device classes does not parse, ask the platform's administrator")
		return false, nil
	}
	class, err := s.NotAllowed(ctx, c.clusters.Management.Client, c.kind.spec(object))
	if class != "" {
		c.notAllowed(object, s.Policy.WhyNot(class), synced)
	}
	return err == nil && class == "", err
}

func (c *CopyController[T]) addFinalizer(ctx context.Context, object T) error {
	if controllerutil.ContainsFinalizer(object, v1alpha1.DRASyncFinalizer) {
		return nil
	}
	err := patch(ctx, c.clusters.Tenant.Client, object, "adding the finalizer in the tenant to", func() {
		controllerutil.AddFinalizer(object, v1alpha1.DRASyncFinalizer)
	})
	if err == nil {
		c.expectations.Expect(object, c.clock.Now())
	}
	return err
}

// create creates the copy, if the object may have one. It adds the finalizer first. Otherwise, if the process died
// after creating the copy, the tenant's object could be deleted without its copy.
func (c *CopyController[T]) create(ctx context.Context, s policy.Settings, object T, name string) (err error) {
	key := c.hostKey(name)
	copied := c.kind.forHost(object, c.clusters.TenantCluster.Name)
	metadata := names.HostMetadata(object, c.kind.GroupVersionKind, key, c.clusters.TenantCluster.Name, names.Metadata{})
	copied.SetNamespace(key.Namespace)
	copied.SetName(key.Name)
	copied.SetLabels(metadata.Labels)
	copied.SetAnnotations(metadata.Annotations)
	copied.SetFinalizers([]string{v1alpha1.DRASyncFinalizer})
	if err := c.admit(ctx, s, object, copied); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.created.Delete(client.ObjectKeyFromObject(object))
		}
	}()
	if err := c.addFinalizer(ctx, object); err != nil {
		return err
	}
	err = c.clusters.Management.Client.Create(ctx, copied)
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier run has created it, and the cache does not show it yet
	}
	// Only this event tells the tenant's user: the host's API server knows fewer fields than the tenant's, or an
	// admission policy or a quota rejects the copy.
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		c.notInSync(object, ReasonRefusedByHost, "the host rejects it: "+err.Error())
	}
	if err != nil {
		return fmt.Errorf("creating %s %s on the host, %w", c.kind.Kind, key, err)
	}
	if policy.WantsAdminAccess(c.kind.spec(object)) {
		c.warn(object, ReasonNoAdminAccess, "admin access has been left out: it is not available on the host")
	}
	if slices.ContainsFunc(c.kind.metadata(object), names.TooLarge) {
		c.warn(object, ReasonMetadataTooLarge, fmt.Sprintf("its labels or annotations have been left out: they have more than %d bytes together",
			names.MaxMetadata))
	}
	log.FromContext(ctx).Info("copied to the host", "kind", c.kind.Kind, "object", client.ObjectKeyFromObject(object), "copy", key)
	return nil
}

// update syncs what can change: labels and annotations to the host, the status to the tenant. Specs cannot change.
func (c *CopyController[T]) update(ctx context.Context, s policy.Settings, object, copied T) error {
	metadata := names.HostMetadata(object, c.kind.GroupVersionKind, client.ObjectKeyFromObject(copied), c.clusters.TenantCluster.Name,
		names.Metadata{Labels: copied.GetLabels(), Annotations: copied.GetAnnotations()})
	if !maps.Equal(metadata.Labels, copied.GetLabels()) || !maps.Equal(metadata.Annotations, copied.GetAnnotations()) {
		if err := patch(ctx, c.clusters.Management.Client, copied, "updating on the host", func() {
			copied.SetLabels(metadata.Labels)
			copied.SetAnnotations(metadata.Annotations)
		}); err != nil {
			return err
		}
	}
	return c.mirrorStatus(ctx, s, object, copied)
}

func (c *CopyController[T]) mirrorStatus(ctx context.Context, s policy.Settings, object, copied T) error {
	if c.kind.mirrorStatus == nil {
		return nil
	}
	before := object.GetResourceVersion()
	err := c.kind.mirrorStatus(ctx, c.clusters, s, copied, object)
	if err == nil && object.GetResourceVersion() != before {
		c.expectations.Expect(object, c.clock.Now())
	}
	return client.IgnoreNotFound(err)
}

// resolveConflict handles an object that has the name of the copy. It leaves objects of others alone. It deletes the
// copy of an earlier object with this name that is gone from the tenant.
func (c *CopyController[T]) resolveConflict(ctx context.Context, object, copied T) error {
	if origin, ok := names.OriginOf(copied, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name); ok && c.isCopy(copied) {
		return c.deleteOrphan(ctx, origin.NamespacedName, copied)
	}
	c.notInSync(object, ReasonNameTaken, fmt.Sprintf(
		"%s %s on the host is not its copy: have it removed there, or choose another name", c.kind.Kind, client.ObjectKeyFromObject(copied)))
	return nil
}

// finalize deletes the copy of an object that is being deleted in the tenant, and removes the object's finalizer once
// the copy is gone. The host keeps a claim while a pod uses it, and so does the tenant.
func (c *CopyController[T]) finalize(ctx context.Context, s policy.Settings, p pair[T]) (bool, error) {
	if p.owned {
		if err := c.deleteCopy(ctx, p.copied); err != nil {
			return false, err
		}
		return false, c.mirrorStatus(ctx, s, p.object, p.copied)
	}
	if p.name != "" {
		live, found, err := c.get(ctx, c.clusters.Management.Live, c.hostKey(p.name), "on the host")
		if err != nil {
			return false, err
		}
		if found && c.owns(live, p.object) {
			return true, nil // the cache is behind
		}
	}
	return false, patch(ctx, c.clusters.Tenant.Client, p.object, "removing the finalizer in the tenant of", func() {
		controllerutil.RemoveFinalizer(p.object, v1alpha1.DRASyncFinalizer)
	})
}

// deleteCopy deletes a copy in two steps. Between them the copy stays until no pod on the host needs it.
func (c *CopyController[T]) deleteCopy(ctx context.Context, copied T) error {
	if !copied.GetDeletionTimestamp().IsZero() {
		if !controllerutil.ContainsFinalizer(copied, v1alpha1.DRASyncFinalizer) {
			return nil
		}
		return patch(ctx, c.clusters.Management.Client, copied, "removing the finalizer on the host of", func() {
			controllerutil.RemoveFinalizer(copied, v1alpha1.DRASyncFinalizer)
		})
	}
	if err := kube.Delete(ctx, c.clusters.Management.Client, copied, "deleting on the host"); err != nil {
		return err
	}
	log.FromContext(ctx).Info("deleted on the host", "kind", c.kind.Kind, "copy", client.ObjectKeyFromObject(copied))
	return nil
}

// deleteOrphan deletes the copy of an object that is gone from the tenant. It checks by a live read, and deletes only
// copies that this controller has created.
func (c *CopyController[T]) deleteOrphan(ctx context.Context, key client.ObjectKey, copied T) error {
	origin, ok := names.OriginOf(copied, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name)
	if !ok || origin.NamespacedName != key || !c.isCopy(copied) {
		return nil
	}
	live, found, err := c.get(ctx, c.clusters.Tenant.Live, key, "in the tenant")
	if err != nil {
		return err
	}
	if found && live.GetUID() == origin.UID {
		return nil
	}
	return c.deleteCopy(ctx, copied)
}

// deleteLongNamed deletes a copy that was made before copies had short names. None of vCluster's pods refers to it.
func (c *CopyController[T]) deleteLongNamed(ctx context.Context, key client.ObjectKey) error {
	name, err := names.HostName(key.Name, key.Namespace, c.clusters.TenantCluster.Name)
	if err != nil {
		return nil
	}
	copied, found, err := c.get(ctx, c.clusters.Management.Client, c.hostKey(name), "on the host")
	if err != nil || !found {
		return err
	}
	_, ok := names.OriginOfLongNamed(copied, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name)
	if !ok || !c.isCopy(copied) {
		return nil
	}
	return c.deleteCopy(ctx, copied)
}

// deleteInTenant deletes the tenant's object when its copy is being deleted on the host. The finalizers do the rest.
func (c *CopyController[T]) deleteInTenant(ctx context.Context, object T) error {
	if err := c.addFinalizer(ctx, object); err != nil {
		return err
	}
	if err := kube.Delete(ctx, c.clusters.Tenant.Client, object, "deleting in the tenant"); err != nil {
		return err
	}
	c.warn(object, ReasonDeletedOnHost, "it was deleted on the host, and is therefore deleted here")
	return nil
}
