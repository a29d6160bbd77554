// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantcluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// identify decides whether the cluster that the provider reports is the tenant's. The first reported cluster is, unless
// it belongs to another TenantCluster. It reconciles one TenantCluster at a time, so that no two get the same.
func (c *Controller) identify(ctx context.Context, tenant *v1alpha1.TenantCluster) (ctrl.Result, error) {
	observed := tenant.Status.ObservedClusterUID
	before := tenant.DeepCopy()
	condition := metav1.Condition{Type: v1alpha1.ConditionClusterIdentified, Status: metav1.ConditionFalse,
		ObservedGeneration: tenant.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now())}
	result := ctrl.Result{}
	if observed == "" {
		return result, c.writeStatus(ctx, before, tenant)
	}
	if observed != tenant.Status.ClusterUID {
		taken, err := c.isTaken(ctx, tenant, observed)
		switch {
		case err != nil:
			return ctrl.Result{}, err
		case taken:
			condition.Reason, condition.Message = v1alpha1.ReasonClusterTaken, clusterTaken(observed)
			result.RequeueAfter = waitPeriod // the other TenantCluster may be deleted
		case tenant.Status.ClusterUID == "" || tenant.Confirms(v1alpha1.ConfirmAcceptClusterAnnotationKey, tenant.ClusterToken()):
			tenant.Status.ClusterUID = observed
		default:
			condition.Reason, condition.Message = v1alpha1.ReasonAnotherCluster, anotherCluster(tenant)
		}
	}
	if observed == tenant.Status.ClusterUID {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonIdentified
		condition.Message = "the kubeconfig of the provider leads to the tenant's cluster"
	}
	changed := conditions.Set(&tenant.Status.Conditions, condition)
	if err := c.writeStatus(ctx, before, tenant); err != nil {
		return ctrl.Result{}, err
	}
	if changed {
		log.FromContext(ctx).Info("identity of the tenant's cluster", "reason", condition.Reason, "observed", observed,
			"clusterUID", tenant.Status.ClusterUID)
	}
	// If the annotation stayed, it would accept this cluster again after another one was accepted.
	if observed == tenant.Status.ClusterUID && tenant.Confirmation(v1alpha1.ConfirmAcceptClusterAnnotationKey) != "" {
		return result, c.removeConfirmation(ctx, tenant, v1alpha1.ConfirmAcceptClusterAnnotationKey)
	}
	// The provider has recorded the confirmation. If it stayed, it would confirm the next release of as many servers.
	// Only a confirmation for any number is meant to do that.
	if tenant.Confirmation(v1alpha1.ConfirmDeleteMachinesAnnotationKey) != "" && !tenant.ConfirmsAnyDeletion() &&
		conditions.Find(tenant.Status.Conditions, v1alpha1.ConditionPoolsSynced).Reason == v1alpha1.ReasonConfirmed {
		return result, c.removeConfirmation(ctx, tenant, v1alpha1.ConfirmDeleteMachinesAnnotationKey)
	}
	return result, nil
}

func (c *Controller) removeConfirmation(ctx context.Context, tenant *v1alpha1.TenantCluster, key string) error {
	return client.IgnoreNotFound(kube.Patch(ctx, c.client, tenant, "removing the annotation of", func() { tenant.RemoveConfirmation(key) }))
}

// isTaken reports whether a cluster belongs to another TenantCluster. It reads live: a cache may lack the last one.
func (c *Controller) isTaken(ctx context.Context, tenant *v1alpha1.TenantCluster, uid string) (bool, error) {
	all := &v1alpha1.TenantClusterList{}
	if err := c.live.List(ctx, all); err != nil {
		return false, fmt.Errorf("listing TenantClusters, %w", err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.UID != tenant.UID && other.Status.ClusterUID == uid {
			log.FromContext(ctx).Info("the cluster is that of another TenantCluster", "other", client.ObjectKeyFromObject(other), "clusterUID", uid)
			return true, nil
		}
	}
	return false, nil
}

func anotherCluster(tenant *v1alpha1.TenantCluster) string {
	return fmt.Sprintf("the kubeconfig of the provider leads to another cluster than the tenant's: its namespace kube-system has the UID %s, "+
		"and that of the tenant's has %s. The provider writes nothing. Correct the kubeconfig. If the tenant's cluster was made anew, "+
		"accept it: %s", tenant.Status.ObservedClusterUID, tenant.Status.ClusterUID,
		tenant.ConfirmCommand(v1alpha1.ConfirmAcceptClusterAnnotationKey, tenant.ClusterToken()))
}

func clusterTaken(uid string) string {
	return fmt.Sprintf("the kubeconfig of the provider leads to the cluster of another TenantCluster: its namespace kube-system has "+
		"the UID %s. The provider writes nothing. Correct the kubeconfig, or delete one of the two; both are in: "+
		"kubectl get tenantclusters -A -o wide", uid)
}

// announce returns a handler that writes an event for each change in why a provider writes or deletes nothing, what a
// deletion waits for, or what needs a confirmation.
func (c *Controller) announce() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) {
			before, was := e.ObjectOld.(*v1alpha1.TenantCluster)
			after, is := e.ObjectNew.(*v1alpha1.TenantCluster)
			if !was || !is {
				return
			}
			c.silentIn(after) // most renewals lead to no work, and this one has come now
			announced := append(after.Blocked(), conditions.Find(after.Status.Conditions, v1alpha1.ConditionServersReturned))
			if synced := conditions.Find(after.Status.Conditions, v1alpha1.ConditionPoolsSynced); synced.Reason == v1alpha1.ReasonReleasesServers {
				announced = append(announced, synced)
			}
			for _, now := range announced {
				if old := conditions.Find(before.Status.Conditions, now.Type); old.Status != now.Status || old.Reason != now.Reason {
					c.recorder.Eventf(after, nil, v1alpha1.EventType(now.Reason), now.Reason, now.Reason, "%s",
						conditions.Truncate(now.Message, conditions.MaxEventNote))
				}
			}
		},
	}
}
