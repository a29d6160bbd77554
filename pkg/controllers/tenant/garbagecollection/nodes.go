// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// nodePeriod is how often a Node that has not registered with Karpenter is reconciled, in case an event was lost.
const nodePeriod = 5 * time.Minute

// NodeController deletes Nodes whose NodeClaim and Machine are both gone. Karpenter deletes a Node before its NodeClaim
// only if the Node had registered. It leaves other Nodes to a cloud controller manager, which bare metal does not have.
type NodeController struct {
	clusters tenant.Clusters
}

func NewNodeController(clusters tenant.Clusters) *NodeController {
	return &NodeController{clusters: clusters}
}

// Reconcile deletes the Node if it is not ready and neither its NodeClaim nor its Machine exists.
func (c *NodeController) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	// 1. A ready Node has a running kubelet. When the kubelet stops, the change of the Node is an event.
	if !nodeOfNodeClaim(node) || isReady(node) || !node.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	_, _, name, _ := v1alpha1.ParseProviderID(node.Spec.ProviderID)
	// 2. If the cache has an object that is gone already, its deletion event is still to come.
	owned, err := c.hasOwner(ctx, c.clusters.Tenant.Client, c.clusters.Management.Client, node, name)
	if err == nil && !owned {
		// 3. The caches may have the Node before its NodeClaim and its Machine.
		owned, err = c.hasOwner(ctx, c.clusters.Tenant.Live, c.clusters.Management.Live, node, name)
	}
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case owned:
		return reconcile.Result{RequeueAfter: nodePeriod}, nil
	}
	// 4. Both are gone. The preconditions keep a Node that has changed since.
	err = c.clusters.Tenant.Client.Delete(ctx, node, client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("deleting node %s, whose nodeclaim and machine %s are gone, %w", node.Name, name, err)
	}
	log.FromContext(ctx).Info("deleted node whose nodeclaim and machine are gone", "node", node.Name, "providerID", node.Spec.ProviderID)
	return reconcile.Result{}, nil
}

// nodeOfNodeClaim reports whether a Node was created for a NodeClaim. Otherwise it is the Node of a stand-alone
// Machine, which may be in a namespace that the provider cannot read.
func nodeOfNodeClaim(node *corev1.Node) bool {
	_, _, _, ours := v1alpha1.ParseProviderID(node.Spec.ProviderID)
	return ours && (hasUnregisteredTaint(node) || node.Labels[karpv1.NodeRegisteredLabelKey] != "")
}

func hasUnregisteredTaint(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&karpv1.UnregisteredNoExecuteTaint) })
}

func isReady(node *corev1.Node) bool {
	return nodeutils.GetCondition(node, corev1.NodeReady).Status == corev1.ConditionTrue
}

// hasOwner reports whether the NodeClaim or the Machine of a Node exists. The Node's provider ID contains the name of
// both. An object with another provider ID has another server. An object without one may turn out to be the Node's.
func (c *NodeController) hasOwner(
	ctx context.Context, tenantReader, managementReader client.Reader, node *corev1.Node, name string,
) (bool, error) {
	mayBe := func(providerID string) bool { return providerID == "" || providerID == node.Spec.ProviderID }
	nodeClaim := &karpv1.NodeClaim{}
	found, err := kube.Find(ctx, tenantReader, client.ObjectKey{Name: name}, nodeClaim)
	if err != nil || found && mayBe(nodeClaim.Status.ProviderID) {
		return err == nil, err
	}
	machine := &v1alpha1.Machine{}
	found, err = kube.Find(ctx, managementReader, c.clusters.MachineKey(name), machine)
	return found && mayBe(machine.Status.ProviderID), err
}

func (c *NodeController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("node.garbagecollection").
		// Only the ready condition matters among the kubelet's writes.
		For(&corev1.Node{}, builder.WithPredicates(kube.Only(kube.Creations|kube.Updates), predicate.NewPredicateFuncs(kube.Of(nodeOfNodeClaim)),
			kube.Changed(func(node *corev1.Node) [2]bool { return [2]bool{nodeOfNodeClaim(node), isReady(node)} }))).
		Watches(&karpv1.NodeClaim{}, kube.Enqueue(func(ctx context.Context, nodeClaim *karpv1.NodeClaim) []reconcile.Request {
			return c.nodesWith(ctx, nodeClaim.Status.ProviderID)
		}), builder.WithPredicates(kube.Only(kube.Deletions))).
		// A Machine with another provider ID has another server now.
		WatchesRawSource(c.clusters.WatchMachines(func(ctx context.Context, machine *v1alpha1.Machine) []reconcile.Request {
			return c.nodesWith(ctx, machine.Status.ProviderID)
		}, kube.Only(kube.Updates|kube.Deletions), predicate.NewPredicateFuncs(kube.Of(c.clusters.Owns)),
			kube.Changed(func(machine *v1alpha1.Machine) string { return machine.Status.ProviderID }))).
		WithOptions(controller.Options{MaxConcurrentReconciles: kube.Concurrency}).
		Complete(reconcile.AsReconciler(c.clusters.Tenant.Client, c))
}

// nodesWith returns the Nodes with a provider ID. If the list fails, each is reconciled after nodePeriod anyway.
func (c *NodeController) nodesWith(ctx context.Context, providerID string) []reconcile.Request {
	if providerID == "" {
		return nil
	}
	return kube.Requests(ctx, c.clusters.Tenant.Client, &corev1.NodeList{}, client.MatchingFields{tenant.NodeProviderIDField: providerID})
}

// leftoverPeriod is how often leftovers are searched for without the deletion of a Machine.
const leftoverPeriod = 10 * time.Minute

// LeftoverController deletes the join tokens of Machines that do not exist any more or have joined. The deletion of a
// Machine deletes its tokens, too. Leftovers are from a time when the provider was down, from an interrupted write, or
// from someone with its credentials.
type LeftoverController struct {
	clusters tenant.Clusters
}

func NewLeftoverController(clusters tenant.Clusters) *LeftoverController {
	return &LeftoverController{clusters: clusters}
}

// Reconcile checks all join tokens once. It reads only metadata, so that no secret gets into its memory.
func (c *LeftoverController) Reconcile(ctx context.Context) (reconciler.Result, error) {
	tokens := &metav1.PartialObjectMetadataList{}
	tokens.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := c.clusters.Tenant.Live.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem),
		client.HasLabels{v1alpha1.MachineUIDLabelKey}); err != nil {
		return reconciler.Result{}, fmt.Errorf("listing join tokens, %w", err)
	}
	for i := range tokens.Items {
		token := &tokens.Items[i]
		token.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if machine, uid, ok := c.machineOfToken(token); ok {
			if err := c.deleteIfLeftOver(ctx, token, machine, uid); err != nil {
				return reconciler.Result{}, err
			}
		}
	}
	return reconciler.Result{RequeueAfter: leftoverPeriod}, nil
}

// machineOfToken returns the Machine that a join token was made for. Tokens of Machines in other namespaces belong to
// other providers that share this cluster.
func (c *LeftoverController) machineOfToken(secret *metav1.PartialObjectMetadata) (name string, uid types.UID, ok bool) {
	namespace, name, found := strings.Cut(secret.Annotations[v1alpha1.MachineLabelKey], "/")
	uid = types.UID(secret.Labels[v1alpha1.MachineUIDLabelKey])
	ok = found && name != "" && uid != "" && namespace == c.clusters.TenantCluster.Namespace &&
		strings.HasPrefix(secret.Name, bootstrapapi.BootstrapTokenSecretPrefix)
	return name, uid, ok
}

// joins reports whether an existing Machine still needs its token.
func joins(machine *v1alpha1.Machine) bool {
	return machine.DeletionTimestamp.IsZero() && machine.ReportedNode().Name == ""
}

func (c *LeftoverController) deleteIfLeftOver(ctx context.Context, secret *metav1.PartialObjectMetadata, machine string, uid types.UID,
) error {
	for _, reader := range []client.Reader{c.clusters.Management.Client, c.clusters.Management.Live} {
		owner := &v1alpha1.Machine{}
		found, err := kube.Find(ctx, reader, c.clusters.MachineKey(machine), owner)
		if err != nil || found && owner.UID == uid && joins(owner) {
			return err
		}
	}
	if err := kube.Delete(ctx, c.clusters.Tenant.Client, secret, "Machine "+machine+" does not need it: deleting"); err != nil {
		return err
	}
	log.FromContext(ctx).Info("deleted token that its machine does not need", "secret", client.ObjectKeyFromObject(secret),
		"machine", machine)
	return nil
}

// Register maps all deletions of Machines to the same request.
func (c *LeftoverController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("machine.leftovers").
		WatchesRawSource(singleton.Source()).
		WatchesRawSource(c.clusters.WatchMachines(func(context.Context, *v1alpha1.Machine) []reconcile.Request {
			return []reconcile.Request{{}}
		}, kube.Only(kube.Deletions), predicate.NewPredicateFuncs(kube.Of(c.clusters.Owns)))).
		Complete(singleton.AsReconciler(c))
}
