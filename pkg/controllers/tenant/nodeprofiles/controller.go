// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeprofiles puts NodeProfiles onto the Nodes of a tenant, and removes former parts of a profile.
package nodeprofiles

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/nodeprofiles"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// reasonNotApplied: the node cannot have its NodeProfile. An event on the Node.
const reasonNotApplied = "NodeProfileNotApplied"

// Controller puts NodeProfiles onto Nodes.
type Controller struct {
	clusters tenant.Clusters
	recorder events.Recorder
}

func NewController(clusters tenant.Clusters, recorder events.Recorder) *Controller {
	return &Controller{clusters: clusters, recorder: recorder}
}

// Reconcile writes all changes of one Node, and the record of the profile, in one write.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	machine, err := c.machineOf(ctx, node)
	if err != nil || machine == nil {
		return reconcile.Result{}, err
	}
	// 1. Core has yet to register the Node: it overwrites labels, taints and record with the NodeClaim's.
	if machine.Labels[v1alpha1.NodeClaimLabelKey] != "" && node.Labels[karpv1.NodeRegisteredLabelKey] == "" {
		return reconcile.Result{}, nil
	}
	// 2. Its pool is gone, so its profile is not known. The Node is about to go, too.
	explicit, base, known, err := c.poolOf(ctx, machine)
	if err != nil || !known {
		return reconcile.Result{}, err
	}
	if machine.Spec.ProfileRef != nil {
		explicit = machine.Spec.ProfileRef.Name
	}
	resolve, err := c.clusters.NodeProfiles(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	profile, problem, err := resolve(explicit)
	if err != nil {
		return reconcile.Result{}, err
	}
	stored := node.DeepCopy()
	recorded, found := node.Annotations[v1alpha1.NodeProfileAppliedAnnotationKey]
	if !found {
		recorded = machine.Annotations[v1alpha1.NodeProfileAppliedAnnotationKey] // a Node without a NodeClaim has it
	}
	applied := nodeprofiles.Read(recorded)
	if problem == "" {
		applied = profile.Apply(node, applied, base)
	} else {
		// The Node keeps what it has: without its taints it would get pods that must not run there.
		c.recorder.Publish(tenant.Warning(node, reasonNotApplied, "labels, annotations and taints stay as they are: "+problem))
	}
	// Write an empty record, too: without it, the record of the Machine would count again.
	if text := applied.Started(node).String(); text != recorded {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.NodeProfileAppliedAnnotationKey, text)
	}
	if equality.Semantic.DeepEqual(stored, node) {
		return reconcile.Result{}, nil
	}
	log.FromContext(ctx).Info("putting a NodeProfile onto a node", "node", node.Name, "profile", applied.Profile)
	changed := node.DeepCopy()
	stored.DeepCopyInto(node)
	return kube.RetryConflict(client.IgnoreNotFound(
		kube.Patch(ctx, c.clusters.Tenant.Client, node, "putting a NodeProfile onto", func() { changed.DeepCopyInto(node) })))
}

// machineOf returns the Machine of a Node, or nil if no Machine has joined as this Node.
func (c *Controller) machineOf(ctx context.Context, node *corev1.Node) (*v1alpha1.Machine, error) {
	_, _, name, ours := v1alpha1.ParseProviderID(node.Spec.ProviderID)
	if !ours || !node.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	machine := &v1alpha1.Machine{}
	found, err := kube.Find(ctx, c.clusters.Management.Client, c.clusters.MachineKey(name), machine)
	if err != nil || !found || !c.clusters.Owns(machine) || machine.Status.ProviderID != node.Spec.ProviderID ||
		machine.ReportedNode().Name != node.Name {
		return nil, err
	}
	return machine, nil
}

// poolOf returns the profile of a Machine's pool, and the pool's labels, annotations and taints. known is false if it
// is gone. A Machine without a pool has its own. The Machine names the pool: a kubelet can change its Node's label.
func (c *Controller) poolOf(ctx context.Context, machine *v1alpha1.Machine) (profile string, base nodeprofiles.Base, known bool,
	err error) {
	name := machine.Labels[karpv1.NodePoolLabelKey]
	if name == "" {
		return "", nodeprofiles.Base{Labels: machine.Spec.Labels, Taints: machine.Spec.Taints}, true, nil
	}
	nodePool := &karpv1.NodePool{}
	found, err := kube.Find(ctx, c.clusters.Tenant.Client, client.ObjectKey{Name: name}, nodePool)
	template := nodePool.Spec.Template
	return v1alpha1.NodeProfileOf(nodePool.Labels), nodeprofiles.Base{
		Labels: template.Labels, Annotations: template.Annotations, Taints: template.Spec.Taints,
	}, found, err
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("node.profile").
		For(&corev1.Node{}, builder.WithPredicates(kube.Only(kube.Creations|kube.Updates), kube.Changed(relevant))).
		Watches(&karpv1.NodePool{}, kube.Enqueue(c.all), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(c.clusters.WatchMachines(func(_ context.Context, machine *v1alpha1.Machine) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: machine.ReportedNode().Name}}}
		}, kube.Only(kube.Creations|kube.Updates), kube.Changed(func(machine *v1alpha1.Machine) [2]string {
			return [2]string{ptr.Deref(machine.Spec.ProfileRef, v1alpha1.NameReference{}).Name, machine.ReportedNode().Name}
		}))).
		WatchesRawSource(c.clusters.WatchTenantCluster(kube.Enqueue(c.all), predicate.GenerationChangedPredicate{})).
		WatchesRawSource(c.clusters.Watch(&v1alpha1.NodeProfile{}, kube.Enqueue(c.all), predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(reconcile.AsReconciler(c.clusters.Tenant.Client, c))
}

// all returns requests for all Nodes. Profiles rarely change, and a Node that is up to date costs no write.
func (c *Controller) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return kube.Requests(ctx, c.clusters.Tenant.Client, &corev1.NodeList{})
}

// relevant returns the parts of a Node that decide whether it is reconciled again.
func relevant(node *corev1.Node) (parts struct {
	Labels, Annotations map[string]string
	Spec                corev1.NodeSpec
	Ready               corev1.ConditionStatus
}) {
	parts.Labels, parts.Annotations, parts.Spec = node.Labels, node.Annotations, node.Spec
	parts.Ready = nodeutils.GetCondition(node, corev1.NodeReady).Status
	return parts
}
