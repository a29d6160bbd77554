// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claimstatus

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// PodKind is the kind of pods.
var PodKind = corev1.SchemeGroupVersion.WithKind("Pod")

// HostPod returns the metadata of a pod of the host, from the cache, or nil if it does not know the pod. Nothing else of
// the host's pods is kept in memory.
func HostPod(ctx context.Context, planes tenant.Planes, name string) (*metav1.PartialObjectMetadata, error) {
	pod := PodMetadata()
	if err := planes.Management.Client.Get(ctx, client.ObjectKey{Namespace: planes.TenantCluster.Namespace, Name: name}, pod); tenant.IsGone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading pod %s/%s on the host, %w", planes.TenantCluster.Namespace, name, err)
	}
	return pod, nil
}

// PodMetadata is what watches of the host's pods are made with.
func PodMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(PodKind)
	return pod
}

// Mirror writes the status of a claim on the host into the tenant's claim, if it says anything new. Both must be known to
// belong together. The tenant's claim has the new status and version after it.
func Mirror(ctx context.Context, planes tenant.Planes, s settings.Settings, host, claim *resourcev1.ResourceClaim) error {
	var failed error
	view := View{
		Namespace: claim.Namespace, Nodes: s.Sync.FromHost.Nodes.Enabled,
		ClassConfig: !s.Policy.Hides(v1alpha1.DeviceClassConfig), Salt: string(s.UID),
		Pod: func(name string, uid types.UID) (types.NamespacedName, types.UID, bool) {
			pod, err := HostPod(ctx, planes, name)
			if err != nil {
				failed = err
			}
			if pod == nil || pod.UID != uid {
				return types.NamespacedName{}, "", false
			}
			origin, ok := vcluster.OriginOf(pod, PodKind, planes.TenantCluster.Name)
			return origin.NamespacedName, origin.UID, ok
		},
	}
	wanted := view.ForTenant(&host.Status)
	if failed != nil {
		return failed
	}
	next, changed := Next(&claim.Status, &wanted, !claim.DeletionTimestamp.IsZero())
	if !changed {
		return nil
	}
	updated := claim.DeepCopy()
	updated.Status = *next
	if err := planes.Tenant.Client.Status().Update(ctx, updated); err != nil {
		return fmt.Errorf("writing the status of ResourceClaim %s in the tenant, %w", client.ObjectKeyFromObject(claim), err)
	}
	updated.DeepCopyInto(claim)
	return nil
}
