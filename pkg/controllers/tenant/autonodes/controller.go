// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autonodes writes the NodePools and MetalNodeClasses of a tenant from the autoNodes of its TenantCluster. It
// reverts edits of these objects in the tenant cluster, and deletes the objects whose entry is gone.
package autonodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/nodeprofiles"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// problemPeriod is how often a pool that could not be written is tried again: the cause may be a missing label of a
	// server, and no watch reports that.
	problemPeriod = 30 * time.Second
	// resync is how often everything is compared without an event.
	resync = 10 * time.Minute
)

// Catalog is implemented by *instancetypes.Catalog.
type Catalog interface {
	// Advertises reports whether some NodeType has a label with that key.
	Advertises(key string) bool
	// Exists reports whether there is a NodeType of that name.
	Exists(name string) bool
	// Offered returns the node labels of each NodeType of a NodeProvider.
	Offered(provider string) []matching.Offered
}

// Servers is implemented by *cloudprovider.Management.
type Servers interface {
	// Synced returns an error until the catalog has every NodeType.
	Synced() error
}

// Controller writes the NodePools and MetalNodeClasses of one tenant from its TenantCluster.
type Controller struct {
	clock    clock.Clock
	clusters tenant.Clusters
	catalog  Catalog
	servers  Servers
}

func NewController(clk clock.Clock, clusters tenant.Clusters, catalog Catalog, servers Servers) *Controller {
	return &Controller{clock: clk, clusters: clusters, catalog: catalog, servers: servers}
}

// Reconcile compares everything. There is one request, for the tenant.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := c.servers.Synced(); err != nil {
		return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
	}
	// Read live: a stale TenantCluster could delete pools, and with them servers.
	cluster := &v1alpha1.TenantCluster{}
	found, err := kube.Find(ctx, c.clusters.Management.Live, c.clusters.TenantCluster, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found {
		// The TenantCluster may have been moved, or lost and about to be restored, so the pools stay. Without it no
		// server is claimed for them anyway.
		log.FromContext(ctx).Info("the TenantCluster does not exist: pools are left as they are", "TenantCluster", c.clusters.TenantCluster)
		return reconcile.Result{RequeueAfter: resync}, nil
	}
	if usedBefore(cluster) {
		return reconcile.Result{RequeueAfter: problemPeriod}, nil
	}
	// Read live, too: the name of a pool depends on the existing NodePools.
	existing := &karpv1.NodePoolList{}
	if err := c.clusters.Tenant.Live.List(ctx, existing); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NodePools, %w", err)
	}
	pools := poolsOf(cluster, c.catalog, nodePoolsOf(OwnerLabel(c.clusters.TenantCluster), existing.Items...))
	for i := range pools {
		profile := v1alpha1.NodeProfileOf(pools[i].nodePool.Labels)
		_, problem, err := nodeprofiles.Resolve(cluster, profile, c.clusters.FindNodeProfile(ctx))
		if err != nil {
			return reconcile.Result{}, err
		}
		pools[i].Problem = cmp.Or(pools[i].Problem, problem)
	}
	release, err := c.release(ctx, cluster, pools, existing.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	outcome := c.apply(ctx, pools, release)
	outcome.errs = append(outcome.errs, c.prune(ctx, pools, release))
	if err := c.writeStatus(ctx, cluster, outcome); err != nil {
		outcome.errs = append(outcome.errs, err)
	}
	if err := errors.Join(outcome.errs...); err != nil {
		return reconcile.Result{}, err
	}
	if outcome.conflict {
		return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
	}
	if len(outcome.problems) > 0 || release.refusal != "" {
		return reconcile.Result{RequeueAfter: problemPeriod}, nil
	}
	return reconcile.Result{RequeueAfter: resync}, nil
}

// apply writes every pool that can be written. A pool with a problem keeps its objects, and does not affect others.
func (c *Controller) apply(ctx context.Context, pools []pool, release release) outcome {
	result := outcome{release: release}
	for i := range pools {
		p := &pools[i]
		if p.Problem != "" {
			result.problems = append(result.problems, p.Where+": "+p.Problem)
			continue
		}
		if release.held.Has(p.NodePool) {
			continue
		}
		wide, err := c.narrow(ctx, p)
		if wide != "" {
			result.notes = append(result.notes, p.Where+": "+wide)
		}
		if err == nil {
			err = c.put(ctx, p)
		}
		result.record(p, err)
	}
	result.notes = append(renamed(pools), result.notes...)
	return result
}

// prune deletes our objects that are in no pool any more. NodePools come first: MetalNodeClasses wait for NodeClaims.
func (c *Controller) prune(ctx context.Context, pools []pool, release release) error {
	kept := release.held.Union(sets.New(lo.Map(pools, func(pool pool, _ int) string { return pool.NodePool })...))
	ours := client.MatchingLabels{v1alpha1.TenantPoolLabelKey: OwnerLabel(c.clusters.TenantCluster)}
	nodePools, nodeClasses := &karpv1.NodePoolList{}, &v1alpha1.MetalNodeClassList{}
	if err := c.clusters.Tenant.Client.List(ctx, nodePools, ours); err != nil {
		return fmt.Errorf("listing NodePools, %w", err)
	}
	if err := c.clusters.Tenant.Client.List(ctx, nodeClasses, ours); err != nil {
		return fmt.Errorf("listing MetalNodeClasses, %w", err)
	}
	var objects []client.Object
	for i := range nodePools.Items {
		objects = append(objects, &nodePools.Items[i])
	}
	for i := range nodeClasses.Items {
		objects = append(objects, &nodeClasses.Items[i])
	}
	var errs []error
	for _, object := range objects {
		if !kept.Has(object.GetName()) && object.GetDeletionTimestamp().IsZero() {
			errs = append(errs, c.remove(ctx, object))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	// The status of NodePools changes all the time. Edits change the generation, or the label that marks our objects.
	edits := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	enqueue, onSpec := c.clusters.Enqueue(), predicate.GenerationChangedPredicate{}
	return controllerruntime.NewControllerManagedBy(m).
		Named("tenant.autonodes").
		Watches(&karpv1.NodePool{}, enqueue, edits).
		Watches(&v1alpha1.MetalNodeClass{}, enqueue, edits).
		WatchesRawSource(c.clusters.WatchTenantCluster(enqueue, predicate.Or(onSpec, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(c.clusters.Watch(&v1alpha1.NodeType{}, enqueue, onSpec)).
		WatchesRawSource(c.clusters.Watch(&v1alpha1.NodeProfile{}, enqueue, onSpec)).
		Complete(c)
}

// outcome is the result of one reconcile.
type outcome struct {
	release release
	// problems are pools that are not valid, or that need a NodeType that does not exist yet.
	problems []string
	// pending are pools that wait for the deletion of an object of their name.
	pending []string
	// notes are remarks about pools that were written.
	notes []string
	// conflict: another client has written first.
	conflict bool
	// errs are failed API calls, which are retried.
	errs []error
}

// record adds the result of a write. If the tenant's API server rejects the content, the author must correct it.
func (o *outcome) record(p *pool, err error) {
	switch {
	case err == nil:
	case errors.Is(err, errBeingDeleted):
		o.pending = append(o.pending, fmt.Sprintf("%s: %v", p.Where, err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		o.problems = append(o.problems, fmt.Sprintf("%s: %v", p.Where, err))
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		o.conflict = true
	default:
		o.errs = append(o.errs, fmt.Errorf("%s, %w", p.Where, err))
	}
}

// renamed lists the pools that have another name in the tenant.
func renamed(pools []pool) []string {
	return lo.FilterMap(pools, func(p pool, _ int) (string, bool) {
		return fmt.Sprintf("%s is NodePool %s", p.Where, p.NodePool), p.Problem == "" && p.NodePool != p.Name()
	})
}

// writeStatus writes the condition PoolsSynced, if it has changed.
func (c *Controller) writeStatus(ctx context.Context, cluster *v1alpha1.TenantCluster, o outcome) error {
	if cluster.Spec.PrivateNodes == nil && o.release.refusal == "" && o.release.confirmed == "" &&
		meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionPoolsSynced) == nil {
		return nil // The tenant manages its own pools.
	}
	before := cluster.DeepCopy()
	condition := o.condition(!cluster.DeletionTimestamp.IsZero())
	condition.ObservedGeneration, condition.LastTransitionTime = cluster.Generation, metav1.NewTime(c.clock.Now())
	if !conditions.Set(&cluster.Status.Conditions, condition) {
		return nil
	}
	return client.IgnoreNotFound(kube.PatchStatus(ctx, c.clusters.Management.Client, before, cluster))
}

// condition summarizes the outcome. deleting: the TenantCluster is being deleted.
func (o *outcome) condition(deleting bool) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionPoolsSynced, Status: metav1.ConditionFalse}
	switch {
	case o.release.refusal != "":
		condition.Reason = v1alpha1.ReasonReleasesServers
		condition.Message = strings.Join(append([]string{o.release.refusal}, o.problems...), "; ")
	case o.release.confirmed != "":
		condition.Reason, condition.Message = v1alpha1.ReasonConfirmed, o.release.confirmed
	case len(o.problems) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonInvalidPools, strings.Join(o.problems, "; ")
	case len(o.pending) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonReplacingPools, strings.Join(o.pending, "; ")
	case deleting:
		condition.Reason, condition.Message = v1alpha1.ReasonTenantDeleting, "the TenantCluster is being deleted, and its pools with it"
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonSynced
		condition.Message = strings.Join(append([]string{"the tenant has the pools that privateNodes.autoNodes call for"}, o.notes...), "; ")
	}
	condition.Message = conditions.Truncate(condition.Message, conditions.MaxMessage)
	return condition
}

// errBeingDeleted: an object of the same name is being deleted. Its deletion leads to the next reconcile.
var errBeingDeleted = errors.New("is being deleted, and is created again once it is gone")

// put creates or updates the objects of a pool: the class first, because the NodePool refers to it.
func (c *Controller) put(ctx context.Context, p *pool) error {
	class := &v1alpha1.MetalNodeClass{}
	// A class that is being deleted waits for its NodeClaims. The NodePool is still updated.
	pending := c.write(ctx, p.nodeClass, class, func() {
		setLabels(class, p.nodeClass)
		class.Spec = p.nodeClass.Spec
		class.Annotations = lo.Assign(lo.OmitByKeys(class.Annotations, []string{v1alpha1.NarrowedAnnotationKey}), p.nodeClass.Annotations)
	})
	if pending != nil && !errors.Is(pending, errBeingDeleted) {
		return pending
	}
	nodePool := &karpv1.NodePool{}
	recreate := false
	if err := c.write(ctx, p.nodePool, nodePool, func() {
		// Karpenter cannot turn a static pool into a dynamic one. The next reconcile creates the pool again.
		if recreate = (nodePool.Spec.Replicas == nil) != (p.nodePool.Spec.Replicas == nil); !recreate {
			setLabels(nodePool, p.nodePool)
			nodePool.Spec = p.nodePool.Spec
		}
	}); err != nil {
		return err
	}
	if !recreate {
		return pending
	}
	if err := c.remove(ctx, nodePool); err != nil {
		return err
	}
	return fmt.Errorf("NodePool %s %w", nodePool.Name, errBeingDeleted)
}

// write creates the wanted object, or calls change on the existing one and writes it if its JSON has changed. It
// compares JSON because the struct of a duration keeps how it was written. The error is errBeingDeleted while the
// existing object is being deleted.
func (c *Controller) write(ctx context.Context, wanted, existing client.Object, change func()) error {
	key := client.ObjectKeyFromObject(wanted)
	found, err := kube.Find(ctx, c.clusters.Tenant.Client, key, existing)
	if err != nil {
		return err
	}
	if !found {
		if err := c.clusters.Tenant.Client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating %s %s, %w", kindOf(wanted), key.Name, err)
		}
		return nil
	}
	if !existing.GetDeletionTimestamp().IsZero() {
		return fmt.Errorf("%s %s %w", kindOf(wanted), key.Name, errBeingDeleted)
	}
	before := existing.DeepCopyObject().(client.Object)
	change()
	if changes, err := client.MergeFrom(before).Data(existing); err != nil || string(changes) == "{}" {
		return err
	}
	if class, is := before.(*v1alpha1.MetalNodeClass); is {
		class.Spec.Properties = class.Spec.Properties.InBothSpellings()
	}
	log.FromContext(ctx).Info("Restoring an object of the TenantCluster", "kind", kindOf(wanted), "name", key.Name)
	if err := c.clusters.Tenant.Client.Patch(ctx, existing,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("updating %s %s, %w", kindOf(wanted), key.Name, err)
	}
	return nil
}

// remove deletes the object with this UID, not a later object of the same name.
func (c *Controller) remove(ctx context.Context, object client.Object) error {
	return kube.Delete(ctx, c.clusters.Tenant.Client, object, "deleting")
}

// setLabels copies the labels for the owner of an object and for its NodeProfile from the wanted object.
func setLabels(existing, wanted client.Object) {
	for _, key := range append(v1alpha1.Spellings(v1alpha1.NodeProfileLabelKey), v1alpha1.TenantPoolLabelKey) {
		if value := wanted.GetLabels()[key]; value != "" {
			kube.SetLabel(existing, key, value)
		} else {
			delete(existing.GetLabels(), key)
		}
	}
}

func kindOf(object client.Object) string {
	if _, ok := object.(*karpv1.NodePool); ok {
		return "NodePool"
	}
	return nodeClassKind
}
