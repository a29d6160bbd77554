// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection keeps a tenant's users from changing objects that the platform writes for the tenant: its
// generated NodePools and MetalNodeClasses, and its DeviceClasses while they are in sync. It uses
// ValidatingAdmissionPolicies in the tenant's own API server. Unlike a webhook, policies need no certificate and no
// endpoint that the tenant's API server can reach, cannot be down, and affect only the objects that they name.
//
// The tenant's administrator, who may write policies, can delete them. The provider restores them.
package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// resync is how often everything is compared without an event.
const resync = 10 * time.Minute

// Controller writes policies into the tenant.
type Controller struct {
	name     string
	clusters tenant.Clusters
	trusted  []string
	// classes selects the controller of DeviceClasses.
	classes bool
}

// NewPoolController returns the controller that protects generated pools. The provider's own user and the trusted users
// may write them.
func NewPoolController(clusters tenant.Clusters, trusted []string) *Controller {
	return &Controller{name: "tenant.protection.pools", clusters: clusters, trusted: trusted}
}

// NewDeviceClassController returns the controller that protects DeviceClasses while they are in sync, and warns of
// claims for other classes. It must be started after the sync.
func NewDeviceClassController(clusters tenant.Clusters, trusted []string) *Controller {
	return &Controller{name: "tenant.protection.deviceclasses", clusters: clusters, trusted: trusted, classes: true}
}

// Reconcile compares everything. There is one request, for the tenant.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	user, err := self(ctx, c.clusters.Tenant.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	users := append(slices.Clone(c.trusted), user)
	if c.classes {
		return c.reconcileClasses(ctx, users)
	}
	return c.reconcilePools(ctx, users)
}

// reconcilePools writes the policies for generated pools, and for the requirements of other pools.
func (c *Controller) reconcilePools(ctx context.Context, users []string) (reconcile.Result, error) {
	key, cluster, nodeTypes := c.clusters.TenantCluster, &v1alpha1.TenantCluster{}, &v1alpha1.NodeTypeList{}
	policies := []policy{poolsPolicy(key, users)}
	found, err := kube.Find(ctx, c.clusters.Management.Client, key, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	if found { // without it the allowed types are unknown
		if err := c.clusters.Management.Client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
			return reconcile.Result{}, fmt.Errorf("listing NodeTypes, %w", err)
		}
		there := serversFor(cluster, nodeTypes.Items)
		policies = append(policies, allowedTypesPolicy(key, users, there), requirementsPolicy(key, users, there))
	}
	if err := c.lookForTokensPolicy(ctx); err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	for _, policy := range policies {
		errs = append(errs, put(ctx, c.clusters.Tenant.Client, policy))
	}
	return written(errs...)
}

// TokensPolicy restricts the Secrets that the provider itself may write. The chart installs the policy, not the
// provider, because it restricts the provider's own token.
const TokensPolicy = "karpenter-metal3-tokens"

// lookForTokensPolicy logs an error if the policy is not in force. The provider works without it.
func (c *Controller) lookForTokensPolicy(ctx context.Context) error {
	for kind, object := range map[string]client.Object{
		"ValidatingAdmissionPolicy":        &admissionregistrationv1.ValidatingAdmissionPolicy{},
		"ValidatingAdmissionPolicyBinding": &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	} {
		found, err := kube.Find(ctx, c.clusters.Tenant.Client, client.ObjectKey{Name: TokensPolicy}, object)
		if err != nil {
			return err
		}
		if !found {
			log.FromContext(ctx).Error(nil, "An admission policy is missing in the tenant cluster: without it, who has the provider's token can "+
				"have that of any account of kube-system. Upgrade the release of the tenant's chart there", "kind", kind, "name", TokensPolicy)
		}
	}
	return nil
}

// reconcileClasses protects DeviceClasses while they are in sync, and not otherwise.
func (c *Controller) reconcileClasses(ctx context.Context, users []string) (reconcile.Result, error) {
	cluster := &v1alpha1.TenantCluster{}
	if _, err := kube.Find(ctx, c.clusters.Management.Client, c.clusters.TenantCluster, cluster); err != nil {
		return reconcile.Result{}, err
	}
	if !cluster.Spec.Sync.FromHost.DeviceClasses.Enabled {
		return written(remove(ctx, c.clusters.Tenant.Client, DeviceClassesPolicy), remove(ctx, c.clusters.Tenant.Client, ResourceClaimsPolicy))
	}
	classes := &resourcev1.DeviceClassList{}
	if err := c.clusters.Tenant.Client.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing DeviceClasses, %w", err)
	}
	names := lo.Map(classes.Items, func(class resourcev1.DeviceClass, _ int) string { return class.Name })
	slices.Sort(names)
	return written(put(ctx, c.clusters.Tenant.Client, deviceClassesPolicy(users)),
		put(ctx, c.clusters.Tenant.Client, resourceClaimsPolicy(names)))
}

func (c *Controller) Register(ctx context.Context, m manager.Manager) error {
	served := admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy")
	if _, err := m.GetRESTMapper().RESTMapping(served.GroupKind(), served.Version); meta.IsNoMatchError(err) {
		log.FromContext(ctx).Info("The tenant does not serve ValidatingAdmissionPolicies, so its users can change generated objects; Kubernetes "+
			"1.30 or later is needed", "controller", c.name)
		return nil
	}
	enqueue := c.clusters.Enqueue()
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return slices.Contains(c.policies(), object.GetName()) || !c.classes && object.GetName() == TokensPolicy
	}), predicate.GenerationChangedPredicate{})
	started := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: c.clusters.TenantCluster})
		return nil
	})
	build := controllerruntime.NewControllerManagedBy(m).
		Named(c.name).
		WatchesRawSource(started).
		WatchesRawSource(c.clusters.WatchTenantCluster(enqueue, predicate.GenerationChangedPredicate{})).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, enqueue, ours).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, enqueue, ours).
		WithOptions(controller.Options{CacheSyncTimeout: kube.CacheSyncTimeout})
	if c.classes {
		build.WatchesRawSource(source.Kind(c.clusters.Tenant.Cache, client.Object(&resourcev1.DeviceClass{}), enqueue,
			kube.Only(kube.Creations|kube.Deletions)))
	} else {
		// The policies name NodeTypes and their labels. They do not depend on the capacities in a status.
		build.WatchesRawSource(c.clusters.Watch(&v1alpha1.NodeType{}, enqueue,
			kube.Changed(func(nodeType *v1alpha1.NodeType) []v1alpha1.NodeTypeRequirement { return nodeType.Status.Requirements })))
	}
	if err := build.Complete(c); err != nil {
		return fmt.Errorf("starting controller %s, %w", c.name, err)
	}
	return nil
}

// policies returns the names of the policies that the controller writes.
func (c *Controller) policies() []string {
	if c.classes {
		return []string{DeviceClassesPolicy, ResourceClaimsPolicy}
	}
	key := c.clusters.TenantCluster
	return []string{PoolsPolicy(key), AllowedTypesPolicy(key), RequirementsPolicy(key)}
}

// The policies are in no release of a chart. This label finds them when the provider is uninstalled.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "karpenter-metal3-provider"
)

// self returns the name of the client's user in its cluster.
func self(ctx context.Context, c client.Client) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("reading the user of the provider in the tenant, %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// put creates or updates a policy and its binding: the policy first, because a binding without a policy is an error.
func put(ctx context.Context, c client.Client, wanted policy) error {
	existing, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := ensure(ctx, c, wanted.name, existing, func() { existing.Spec = wanted.spec }); err != nil {
		return err
	}
	return ensure(ctx, c, wanted.name, binding, func() {
		binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: wanted.name, ValidationActions: wanted.actions}
	})
}

// ensure creates an object, or corrects the existing one, unless the object has been written since it was read.
func ensure(ctx context.Context, c client.Client, name string, object client.Object, change func()) error {
	object.SetName(name)
	done, err := controllerutil.CreateOrUpdate(ctx, c, object, func() error {
		kube.SetLabel(object, managedByLabel, managedBy)
		change()
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing %T %s, %w", object, name, err)
	}
	if done == controllerutil.OperationResultUpdated {
		log.FromContext(ctx).Info("Restored a policy of the tenant", "name", name)
	}
	return nil
}

// remove deletes a policy and its binding, the binding first.
func remove(ctx context.Context, c client.Client, name string) error {
	for _, object := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&admissionregistrationv1.ValidatingAdmissionPolicy{}} {
		found, err := kube.Find(ctx, c, client.ObjectKey{Name: name}, object)
		if err == nil && found {
			err = kube.Delete(ctx, c, object, "deleting")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// written returns the result of a Reconcile after these writes.
func written(errs ...error) (reconcile.Result, error) {
	if err := errors.Join(errs...); err != nil {
		return kube.RetryConflict(err)
	}
	return reconcile.Result{RequeueAfter: resync}, nil
}
