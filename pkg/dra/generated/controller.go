// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package generated knows the claims that the host's resourceclaim controller makes of templates, for the host's copies of
// the tenant's pods, and shows them to the tenant under the names that its pods expect.
//
// Where the tenant has a resourceclaim controller of its own, that one has made a claim for its pod already, and only its
// status flows back. Where it has not, the claim is made in the tenant too, owned by the pod.
package generated

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claimstatus"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// HostClaimAnnotation is on the claims that this controller makes in the tenant, and holds the name of the host's claim.
const HostClaimAnnotation = v1alpha1.Group + "/host-claim"

// podClaimAnnotation is Kubernetes' own, on claims made of templates: which of the pod's claims it is.
const podClaimAnnotation = "resource.kubernetes.io/pod-claim-name"

// Controller shows the tenant the claims that the host has made for its pods.
type Controller struct {
	planes   tenant.Planes
	recorder events.Recorder
}

// NewController constructs a controller of generated claims.
func NewController(planes tenant.Planes, recorder events.Recorder) *Controller {
	return &Controller{planes: planes, recorder: recorder}
}

// Reconcile looks at one claim of the host.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	err := c.reconcile(injection.WithControllerName(ctx, c.Name()), request.NamespacedName)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// Somebody else's write, which the cache does not show yet.
		return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

func (c *Controller) reconcile(ctx context.Context, key client.ObjectKey) error {
	host := &resourcev1.ResourceClaim{}
	if err := c.planes.Management.Client.Get(ctx, key, host); tenant.IsGone(err) {
		return c.collect(ctx, key)
	} else if err != nil {
		return fmt.Errorf("reading ResourceClaim %s on the host, %w", key, err)
	}
	s, err := settings.Read(ctx, c.planes.Management.Client, c.planes.TenantCluster)
	if err != nil || s.Problem != nil || !s.Sync.ToHost.ResourceClaimTemplates.Enabled {
		return err
	}
	pod, podClaim, err := c.user(ctx, host)
	if err != nil || pod == nil {
		return err
	}
	name, err := c.expectedName(ctx, pod, podClaim, host.Name)
	if err != nil {
		return err
	}
	if err := c.dropRenamed(ctx, key.Name, name); err != nil {
		return err
	}
	claim := &resourcev1.ResourceClaim{}
	claimKey := client.ObjectKey{Namespace: pod.Namespace, Name: name}
	err = c.planes.Tenant.Client.Get(ctx, claimKey, claim)
	if err != nil && !tenant.IsGone(err) {
		return fmt.Errorf("reading ResourceClaim %s in the tenant, %w", claimKey, err)
	}
	missing := err != nil
	if class, err := c.forbidden(ctx, s, host); err != nil {
		return err
	} else if class != "" {
		if missing {
			c.recorder.Publish(orphaned(pod, podClaim.Name, class, s.Policy.String()))
		} else {
			c.recorder.Publish(orphaned(claim, podClaim.Name, class, s.Policy.String()))
		}
		return nil
	}
	if missing {
		// Going already: it would come too late.
		if !host.DeletionTimestamp.IsZero() || !pod.DeletionTimestamp.IsZero() {
			return nil
		}
		claim = mirror(host, pod, podClaim.Name, name)
		if err := c.planes.Tenant.Client.Create(ctx, claim); err != nil {
			return fmt.Errorf("creating ResourceClaim %s in the tenant, %w", claimKey, err)
		}
	}
	if !metav1.IsControlledBy(claim, pod) {
		c.recorder.Publish(nameTaken(pod, podClaim.Name, name))
		return nil
	}
	return claimstatus.Mirror(ctx, c.planes, s, host, claim)
}

// user returns the tenant's pod that the host has made a claim for, and which of its claims it is; nil if it is none of
// the tenant's, or not known yet. The pod on the host says whose it is, and the host's claim, whose. Nothing is taken from
// what is in the tenant but the pod with that UID.
func (c *Controller) user(ctx context.Context, host *resourcev1.ResourceClaim) (*corev1.Pod, *corev1.PodResourceClaim, error) {
	owner := podOwner(host)
	if owner == nil {
		return nil, nil, nil
	}
	hostPod, err := claimstatus.HostPod(ctx, c.planes, owner.Name)
	if err != nil || hostPod == nil || hostPod.UID != owner.UID {
		return nil, nil, err
	}
	origin, ok := vcluster.OriginOf(hostPod, claimstatus.PodKind, c.planes.TenantCluster.Name)
	if !ok {
		return nil, nil, nil
	}
	pod := &corev1.Pod{}
	if err := c.planes.Tenant.Client.Get(ctx, origin.NamespacedName, pod); tenant.IsGone(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading pod %s in the tenant, %w", origin.NamespacedName, err)
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

// expectedName is the name under which the pod looks for the claim: the one in its status; or that of the claim which the
// tenant has made for it, and not said so yet; or the host's, for a pod whose status is copied from the host.
func (c *Controller) expectedName(ctx context.Context, pod *corev1.Pod, podClaim *corev1.PodResourceClaim, hostName string) (string, error) {
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.Name == podClaim.Name && status.ResourceClaimName != nil {
			return *status.ResourceClaimName, nil
		}
	}
	claims := &resourcev1.ResourceClaimList{}
	if err := c.planes.Tenant.Client.List(ctx, claims, client.InNamespace(pod.Namespace), client.MatchingFields{fieldPod: pod.Name}); err != nil {
		return "", fmt.Errorf("listing the ResourceClaims of pod %s in the tenant, %w", client.ObjectKeyFromObject(pod), err)
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if metav1.IsControlledBy(claim, pod) && claim.Annotations[HostClaimAnnotation] == "" &&
			claim.Annotations[podClaimAnnotation] == podClaim.Name {
			return claim.Name, nil
		}
	}
	return hostName, nil
}

// forbidden returns a class that the claim names and the tenant may not ask for any more, or nothing.
func (c *Controller) forbidden(ctx context.Context, s settings.Settings, host *resourcev1.ResourceClaim) (string, error) {
	for _, name := range devices.Classes(&host.Spec) {
		class := &resourcev1.DeviceClass{}
		if err := c.planes.Management.Client.Get(ctx, client.ObjectKey{Name: name}, class); tenant.IsGone(err) {
			class = nil
		} else if err != nil {
			return "", fmt.Errorf("reading DeviceClass %s on the host, %w", name, err)
		}
		if !s.Policy.Allows(class) {
			return name, nil
		}
	}
	return "", nil
}

// mirror is the claim as the tenant's own resourceclaim controller would have made it.
func mirror(host *resourcev1.ResourceClaim, pod *corev1.Pod, podClaim, name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: name,
			Annotations:     map[string]string{podClaimAnnotation: podClaim, HostClaimAnnotation: host.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, claimstatus.PodKind)},
		},
		Spec: devices.ForHost(&host.Spec),
	}
}

// podOwner is the pod that a claim was made for, or nil.
func podOwner(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" {
		return nil
	}
	return owner
}
