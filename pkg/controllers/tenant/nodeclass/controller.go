// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclass validates MetalNodeClasses, and finalizes deleted ones that no NodeClaim refers to.
package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/autonodes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// validationPeriod is how often a class is validated without an event.
const validationPeriod = 10 * time.Minute

// Controller validates the tenant's MetalNodeClasses.
type Controller struct {
	clock    clock.Clock
	clusters tenant.Clusters
	recorder events.Recorder
}

func NewController(clk clock.Clock, clusters tenant.Clusters, recorder events.Recorder) *Controller {
	return &Controller{clock: clk, clusters: clusters, recorder: recorder}
}

// Reconcile validates one class, or finalizes it.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.MetalNodeClass) (reconcile.Result, error) {
	if !nodeClass.DeletionTimestamp.IsZero() {
		return c.finalize(ctx, nodeClass)
	}
	if !controllerutil.ContainsFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer) {
		if err := kube.Patch(ctx, c.clusters.Tenant.Client, nodeClass, "adding the finalizer to", func() {
			controllerutil.AddFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer)
		}); err != nil {
			return notWritten(err)
		}
	}
	stored := nodeClass.DeepCopy()
	invalid, err := c.validate(ctx, nodeClass)
	if err != nil {
		// The status stays: the class may well be valid.
		return reconcile.Result{}, fmt.Errorf("validating MetalNodeClass %s, %w", nodeClass.Name, err)
	}
	validated := nodeClass.StatusConditions(status.WithClock(c.clock))
	if invalid == nil {
		validated.SetTrue(v1alpha1.ConditionValidationSucceeded)
	} else {
		// The message may quote a value as long as a property.
		validated.SetFalse(v1alpha1.ConditionValidationSucceeded, invalid.reason, conditions.Truncate(invalid.message, conditions.MaxMessage))
	}
	// Karpenter's own Ready would only tell that the validation has failed.
	ready := conditions.Sum(conditions.Find(nodeClass.Status.Conditions, v1alpha1.ConditionValidationSucceeded))
	conditions.SetReady(&nodeClass.Status.Conditions, ready, nodeClass.Generation, metav1.NewTime(c.clock.Now()))
	nodeClass.Status.ObservedGeneration = nodeClass.Generation
	if !equality.Semantic.DeepEqual(stored, nodeClass) {
		if err := kube.PatchStatus(ctx, c.clusters.Tenant.Client, stored, nodeClass); err != nil {
			return notWritten(err)
		}
	}
	return reconcile.Result{RequeueAfter: validationPeriod}, nil
}

// notWritten returns the result of a failed write. A class that is gone needs no write.
func notWritten(err error) (reconcile.Result, error) {
	return kube.RetryConflict(client.IgnoreNotFound(err))
}

// validate reads the objects that the class refers to, and returns why it is not ready, or nil.
func (c *Controller) validate(ctx context.Context, nodeClass *v1alpha1.MetalNodeClass) (*invalid, error) {
	if invalid := validateSpec(nodeClass, autonodes.OwnerLabel(c.clusters.TenantCluster)); invalid != nil {
		return invalid, nil
	}
	types := &v1alpha1.NodeTypeList{}
	if err := c.clusters.Management.Client.List(ctx, types, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeTypes, %w", err)
	}
	if invalid, err := c.validateTenant(ctx, nodeClass, types.Items); invalid != nil || err != nil || nodeClass.Spec.ProviderRef == nil {
		return invalid, err
	}
	name := nodeClass.Spec.ProviderRef.Name
	found, err := kube.Find(ctx, c.clusters.Management.Client, client.ObjectKey{Name: name}, &v1alpha1.NodeProvider{})
	if err != nil {
		return nil, err
	}
	if !found {
		return providerNotFound(name), nil
	}
	return validateTypes(name, types.Items), nil
}

// validateTenant returns why the TenantCluster does not allow the properties of a class, or nil. The manager would give no server
// to a Machine with them.
func (c *Controller) validateTenant(
	ctx context.Context, nodeClass *v1alpha1.MetalNodeClass, types []v1alpha1.NodeType,
) (*invalid, error) {
	tenantCluster, providers := &v1alpha1.TenantCluster{}, &v1alpha1.NodeProviderList{}
	found, err := kube.Find(ctx, c.clusters.Management.Client, c.clusters.TenantCluster, tenantCluster)
	if err != nil || !found || len(nodeClass.Spec.Properties) == 0 {
		return nil, err
	}
	if err := c.clusters.Management.Client.List(ctx, providers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeProviders, %w", err)
	}
	faults := properties.CheckTenant(
		properties.OfClass(nodeClass), tenantCluster, lo.ToSlicePtr(types), lo.ToSlicePtr(providers.Items))
	if len(faults) > 0 {
		return &invalid{ReasonInvalidProperties, errors.Join(faults...).Error()}, nil
	}
	return nil, nil
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	onSpec := predicate.GenerationChangedPredicate{}
	return controllerruntime.NewControllerManagedBy(m).
		Named("metalnodeclass").
		For(&v1alpha1.MetalNodeClass{}, builder.WithPredicates(onSpec)).
		Watches(&karpv1.NodeClaim{}, kube.Enqueue(classOf), builder.WithPredicates(kube.Only(kube.Deletions))).
		WatchesRawSource(c.clusters.Watch(&v1alpha1.NodeProvider{}, kube.Enqueue(c.allClasses), onSpec)).
		WatchesRawSource(c.clusters.WatchTenantCluster(kube.Enqueue(c.allClasses), onSpec)).
		// The status of NodeTypes changes with every claim, and does not matter here.
		WatchesRawSource(c.clusters.Watch(&v1alpha1.NodeType{}, kube.Enqueue(c.allClasses), onSpec)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

const classKind = "MetalNodeClass"

// refersTo reports whether a NodeClaim refers to the class of that name.
func refersTo(nodeClaim *karpv1.NodeClaim, class string) bool {
	ref := nodeClaim.Spec.NodeClassRef
	return ref != nil && ref.Group == v1alpha1.Group && ref.Kind == classKind && ref.Name == class
}

// classOf maps a NodeClaim to its class.
func classOf(_ context.Context, nodeClaim *karpv1.NodeClaim) []reconcile.Request {
	if nodeClaim.Spec.NodeClassRef == nil || !refersTo(nodeClaim, nodeClaim.Spec.NodeClassRef.Name) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: nodeClaim.Spec.NodeClassRef.Name}}}
}

// allClasses returns a request for every class of the tenant. There are few of them.
func (c *Controller) allClasses(ctx context.Context, _ client.Object) []reconcile.Request {
	return kube.Requests(ctx, c.clusters.Tenant.Client, &v1alpha1.MetalNodeClassList{})
}

const (
	// ReasonInUse: the class is being deleted and still has NodeClaims. An event on the class.
	ReasonInUse = "InUse"
	// terminationPeriod is how often a class that waits for its NodeClaims is reconciled, in case an event was lost.
	terminationPeriod = time.Minute
	// namedClaims bounds how many NodeClaims the event names.
	namedClaims = 5
)

// finalize removes the finalizer of a class once no NodeClaim refers to it.
func (c *Controller) finalize(ctx context.Context, nodeClass *v1alpha1.MetalNodeClass) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer) {
		return reconcile.Result{}, nil
	}
	// The cache may not have a NodeClaim that was just created.
	nodeClaims := &karpv1.NodeClaimList{}
	if err := c.clusters.Tenant.Live.List(ctx, nodeClaims); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the nodeclaims of MetalNodeClass %s, %w", nodeClass.Name, err)
	}
	var names []string
	for i := range nodeClaims.Items {
		if refersTo(&nodeClaims.Items[i], nodeClass.Name) {
			names = append(names, nodeClaims.Items[i].Name)
		}
	}
	if len(names) > 0 {
		c.recorder.Publish(inUseEvent(nodeClass, names))
		return reconcile.Result{RequeueAfter: terminationPeriod}, nil
	}
	return notWritten(kube.Patch(ctx, c.clusters.Tenant.Client, nodeClass, "removing the finalizer of", func() {
		controllerutil.RemoveFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer)
	}))
}

func inUseEvent(nodeClass *v1alpha1.MetalNodeClass, nodeClaims []string) events.Event {
	slices.Sort(nodeClaims)
	listed := conditions.List(nodeClaims, namedClaims)
	return events.Event{
		InvolvedObject: nodeClass,
		Type:           corev1.EventTypeNormal,
		Reason:         ReasonInUse,
		Message:        fmt.Sprintf("Waiting for NodeClaims to go before this class does: %s", listed),
		DedupeValues:   []string{string(nodeClass.UID), listed},
	}
}

// Reasons why a class is not ready.
const (
	// ReasonInvalidProperties: a property is not allowed in a class, or does not exist.
	ReasonInvalidProperties = "InvalidProperties"
	// ReasonInvalidKubeletArgs: no kubelet would start with the arguments.
	ReasonInvalidKubeletArgs = "InvalidKubeletArgs"
)

// invalid is why a class cannot be used.
type invalid struct {
	reason, message string
}

func providerNotFound(name string) *invalid {
	return &invalid{v1alpha1.ReasonProviderNotFound, fmt.Sprintf(
		"spec.providerRef names NodeProvider %q, which does not exist in the management cluster: create it, or name another", name)}
}

// validateSpec returns why the properties or the kubelet arguments of a class are not valid, or nil. owner is the value
// of the owner label on the tenant's generated classes.
func validateSpec(nodeClass *v1alpha1.MetalNodeClass, owner string) *invalid {
	for _, err := range properties.OfClass(nodeClass).Conflicts() {
		return &invalid{ReasonInvalidProperties, err.Error()}
	}
	for _, key := range slices.Sorted(maps.Keys(nodeClass.Spec.Properties)) {
		// The class of a pinned pool is for one Machine. The validation of the TenantCluster ensures that.
		if key == v1alpha1.PropertyServerName && nodeClass.Labels[v1alpha1.TenantPoolLabelKey] != owner {
			return &invalid{ReasonInvalidProperties, fmt.Sprintf(
				"spec.properties must not hold %s, which pins one Machine to one server: a class is for many Machines, so set it on the Machine", key)}
		}
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return &invalid{ReasonInvalidProperties, fmt.Sprintf(
				"spec.properties holds the key %q, which is not a name like %s: %s", key, v1alpha1.PropertyOSImage,
				strings.Join(errs, "; "))}
		}
	}
	// An older CRD in the tenant cluster may not limit it, and the management cluster would refuse each Machine.
	if err := properties.CheckLength(nodeClass.Spec.Properties); err != nil {
		return &invalid{ReasonInvalidProperties, "spec.properties: " + err.Error()}
	}
	if _, err := properties.Merge(properties.OfClass(nodeClass)).OSImage(); err != nil {
		return &invalid{ReasonInvalidProperties, err.Error()}
	}
	if err := bootstrap.CheckKubeletArgs(nodeClass.Spec.KubeletArgs.Strings()); err != nil {
		return &invalid{ReasonInvalidKubeletArgs, "spec.kubeletArgs: " + err.Error()}
	}
	return nil
}

// validateTypes returns why a class cannot use the types of its NodeProvider, or nil. A type without a free server, or
// without any, does not make the class invalid: Karpenter must know the type.
func validateTypes(provider string, types []v1alpha1.NodeType) *invalid {
	for i := range types {
		if types[i].Spec.ProviderRef.Name == provider && types[i].DeletionTimestamp.IsZero() {
			return nil
		}
	}
	return &invalid{v1alpha1.ReasonNoNodeTypes, fmt.Sprintf(
		"NodeProvider %q has no NodeTypes: list at least one in its spec.metal3.nodeTypes", provider)}
}
