// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// podClaimAnnotation is Kubernetes' annotation on claims generated from templates. It names the pod's entry.
const podClaimAnnotation = "resource.kubernetes.io/pod-claim-name"

// GeneratedController shows the tenant the claims that the host has generated for its pods.
type GeneratedController struct {
	clusters tenant.Clusters
	recorder events.Recorder
}

// NewGeneratedController constructs a controller of generated claims.
func NewGeneratedController(clusters tenant.Clusters, recorder events.Recorder) *GeneratedController {
	return &GeneratedController{clusters: clusters, recorder: recorder}
}

// Reconcile mirrors one claim of the host.
func (c *GeneratedController) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	err := c.reconcile(injection.WithControllerName(ctx, c.Name()), request.NamespacedName)
	if apierrors.IsAlreadyExists(err) { // the cache does not show it yet
		return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
	}
	return kube.RetryConflict(client.IgnoreNotFound(err))
}

func (c *GeneratedController) reconcile(ctx context.Context, key client.ObjectKey) error {
	host := &resourcev1.ResourceClaim{}
	if found, err := kube.Find(ctx, c.clusters.Management.Client, key, host); err != nil {
		return fmt.Errorf("on the host, %w", err)
	} else if !found {
		return c.deleteMirrors(ctx, key)
	}
	s, err := policy.Read(ctx, c.clusters.Management.Client, c.clusters.TenantCluster)
	if err != nil || s.SelectorError != nil || !s.Sync.ToHost.ResourceClaimTemplates.Enabled {
		return err
	}
	pod, podClaim, err := c.tenantPod(ctx, host)
	if err != nil || pod == nil {
		return err
	}
	mirrors, err := c.mirrors(ctx, key.Name)
	if err != nil {
		return err
	}
	byTenant, err := c.generatedByTenant(ctx, pod, podClaim)
	if err != nil {
		return err
	}
	name := expectedName(pod, podClaim, host.Name, mirrors, byTenant)
	claim, err := c.tenantClaim(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name})
	if err != nil {
		return err
	}
	if class, err := s.NotAllowed(ctx, c.clusters.Management.Client, &host.Spec); err != nil {
		return err
	} else if class != "" {
		var object client.Object = pod
		if claim != nil {
			object = claim
		}
		c.recorder.Publish(generatedOrphaned(object, podClaim.Name, s.Policy.WhyNot(class)))
		return nil
	}
	if claim == nil {
		// No mirror is needed if the claim or the pod is being deleted.
		if !host.DeletionTimestamp.IsZero() || !pod.DeletionTimestamp.IsZero() {
			return nil
		}
		claim = mirrorOf(host, pod, podClaim.Name, name)
		if err := c.clusters.Tenant.Client.Create(ctx, claim); err != nil {
			return fmt.Errorf("creating ResourceClaim %s in the tenant, %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	if !metav1.IsControlledBy(claim, pod) {
		c.recorder.Publish(generatedNameTaken(pod, podClaim.Name, name))
		return nil
	}
	if err := mirrorStatus(ctx, c.clusters, s, host, claim); err != nil {
		return err
	}
	return c.deleteOthers(ctx, claim, mirrors, byTenant)
}

func (c *GeneratedController) tenantClaim(ctx context.Context, key client.ObjectKey) (*resourcev1.ResourceClaim, error) {
	claim := &resourcev1.ResourceClaim{}
	if found, err := kube.Find(ctx, c.clusters.Tenant.Client, key, claim); err != nil || !found {
		return nil, err
	}
	return claim, nil
}

// tenantPod returns the tenant's pod that the host has generated a claim for, and the entry of the pod for this claim;
// nil if the pod is not the tenant's or not known yet. Only the host decides which pod that is: its claim names its
// owner, and its pod names its origin. In the tenant, only the pod with that UID counts.
func (c *GeneratedController) tenantPod(
	ctx context.Context, host *resourcev1.ResourceClaim,
) (*corev1.Pod, *corev1.PodResourceClaim, error) {
	owner := podOwner(host)
	if owner == nil {
		return nil, nil, nil
	}
	hostPod, err := hostPod(ctx, c.clusters, owner.Name)
	if err != nil || hostPod == nil || hostPod.UID != owner.UID {
		return nil, nil, err
	}
	origin, ok := names.OriginOf(hostPod, names.PodKind, c.clusters.TenantCluster.Name)
	if !ok {
		return nil, nil, nil
	}
	pod := &corev1.Pod{}
	if found, err := kube.Find(ctx, c.clusters.Tenant.Client, origin.NamespacedName, pod); err != nil || !found {
		return nil, nil, err
	}
	name := host.Annotations[podClaimAnnotation]
	index := slices.IndexFunc(pod.Spec.ResourceClaims, func(claim corev1.PodResourceClaim) bool {
		return claim.Name == name && claim.ResourceClaimTemplateName != nil
	})
	if pod.UID != origin.UID || index < 0 {
		return nil, nil, nil
	}
	return pod, &pod.Spec.ResourceClaims[index], nil
}

// expectedName returns the name that the pod expects of the claim: the name in the pod's status, or of the claim that
// the tenant has generated and not recorded yet, or the host's name, for a pod whose status is copied from the host.
//
// Once the tenant has a claim with the host's name, that claim stays. vCluster writes the host's name into the pod's
// status whenever the tenant's resourceclaim controller has written its own name there. If the claim changed each time,
// that controller would see no claim with the host's name, and write its own again, for ever.
func expectedName(pod *corev1.Pod, podClaim *corev1.PodResourceClaim, hostName string,
	mirrors, byTenant []resourcev1.ResourceClaim) string {
	if slices.ContainsFunc(mirrors, func(claim resourcev1.ResourceClaim) bool {
		return claim.Name == hostName && resourceclaim.IsForPod(pod, &claim, false) == nil
	}) {
		return hostName
	}
	if name, _, err := resourceclaim.Name(pod, podClaim); err == nil && name != nil {
		return *name
	}
	if len(byTenant) > 0 {
		return byTenant[0].Name
	}
	return hostName
}

// generatedByTenant returns the claims that the tenant's own resourceclaim controller generated for a claim of the pod.
func (c *GeneratedController) generatedByTenant(
	ctx context.Context, pod *corev1.Pod, podClaim *corev1.PodResourceClaim,
) ([]resourcev1.ResourceClaim, error) {
	claims := &resourcev1.ResourceClaimList{}
	if err := c.clusters.Tenant.Client.List(ctx, claims, client.InNamespace(pod.Namespace),
		client.MatchingFields{fieldPod: pod.Name}); err != nil {
		return nil, fmt.Errorf("listing the ResourceClaims of pod %s in the tenant, %w", client.ObjectKeyFromObject(pod), err)
	}
	return slices.DeleteFunc(claims.Items, func(claim resourcev1.ResourceClaim) bool {
		return resourceclaim.IsForPod(pod, &claim, false) != nil || claim.Annotations[v1alpha1.HostClaimAnnotationKey] != "" ||
			claim.Annotations[podClaimAnnotation] != podClaim.Name
	}), nil
}

// deleteOthers deletes the tenant's other claims for the same entry of a pod. They were created here under a name that
// the pod no longer expects. If the pod expects a claim that was created here, they also include claims from the
// tenant's resourceclaim controller. That controller finds its own claim by the pod's status, which vCluster has
// overwritten.
//
// Call it only while the expected claim exists. The resourceclaim controller generates a claim for a pod that has none,
// so otherwise this would not end.
func (c *GeneratedController) deleteOthers(ctx context.Context, expected *resourcev1.ResourceClaim,
	mirrors, byTenant []resourcev1.ResourceClaim) error {
	if !expected.DeletionTimestamp.IsZero() {
		return nil
	}
	if expected.Annotations[v1alpha1.HostClaimAnnotationKey] != "" {
		for i := range byTenant {
			if err := c.deleteGenerated(ctx, &byTenant[i]); err != nil {
				return err
			}
		}
	}
	return c.deleteExcept(ctx, mirrors, expected.Name)
}

// deleteGenerated deletes a claim that the tenant's resourceclaim controller has generated. It clears the status first:
// the finalizer of an allocated claim stays while a running pod has reserved it.
func (c *GeneratedController) deleteGenerated(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	if !equality.Semantic.DeepEqual(claim.Status, resourcev1.ResourceClaimStatus{}) {
		cleared := claim.DeepCopy()
		cleared.Status = resourcev1.ResourceClaimStatus{}
		if err := c.clusters.Tenant.Client.Status().Update(ctx, cleared); err != nil {
			return fmt.Errorf("clearing the status of ResourceClaim %s in the tenant, %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	if !claim.DeletionTimestamp.IsZero() {
		return nil
	}
	return kube.Delete(ctx, c.clusters.Tenant.Client, claim, "deleting in the tenant")
}

// deleteMirrors deletes the mirrors in the tenant for a claim that is gone from the host. It checks by a live read.
func (c *GeneratedController) deleteMirrors(ctx context.Context, key client.ObjectKey) error {
	mirrors, err := c.mirrors(ctx, key.Name)
	if err != nil || len(mirrors) == 0 {
		return err
	}
	if found, err := kube.Find(ctx, c.clusters.Management.Live, key, &resourcev1.ResourceClaim{}); err != nil || found {
		return err
	}
	return c.deleteExcept(ctx, mirrors, "")
}

func (c *GeneratedController) deleteExcept(ctx context.Context, mirrors []resourcev1.ResourceClaim, name string) error {
	for i := range mirrors {
		if mirrors[i].Name != name {
			if err := kube.Delete(ctx, c.clusters.Tenant.Client, &mirrors[i], "deleting in the tenant"); err != nil {
				return err
			}
		}
	}
	return nil
}

// mirrors returns the claims that this controller has created in the tenant for a claim of the host.
func (c *GeneratedController) mirrors(ctx context.Context, hostClaim string) ([]resourcev1.ResourceClaim, error) {
	claims := &resourcev1.ResourceClaimList{}
	if err := c.clusters.Tenant.Client.List(ctx, claims, client.MatchingFields{fieldHostClaim: hostClaim}); err != nil {
		return nil, fmt.Errorf("listing the ResourceClaims in the tenant for %s on the host, %w", hostClaim, err)
	}
	return claims.Items, nil
}

// mirrorOf returns the claim as the tenant's own resourceclaim controller would have generated it.
func mirrorOf(host *resourcev1.ResourceClaim, pod *corev1.Pod, podClaim, name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: name,
			Annotations:     map[string]string{podClaimAnnotation: podClaim, v1alpha1.HostClaimAnnotationKey: host.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, names.PodKind)},
		},
		Spec: policy.ForHost(&host.Spec),
	}
}

// podOwner refers to the pod that a claim was generated for, or is nil.
func podOwner(claim client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" {
		return nil
	}
	return owner
}
