// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tohost

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claimstatus"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// NewClaimController constructs the controller of ResourceClaims.
func NewClaimController(planes tenant.Planes, recorder events.Recorder) *Controller[*resourcev1.ResourceClaim] {
	return &Controller[*resourcev1.ResourceClaim]{planes: planes, recorder: recorder, kind: kind[*resourcev1.ResourceClaim]{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
		controllerName:   "dra.resourceclaims",
		object:           func() *resourcev1.ResourceClaim { return &resourcev1.ResourceClaim{} },
		list:             func() client.ObjectList { return &resourcev1.ResourceClaimList{} },
		enabled:          func(sync *v1alpha1.Sync) bool { return sync.ToHost.ResourceClaims.Enabled },
		spec:             func(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaimSpec { return &claim.Spec },
		forHost: func(claim *resourcev1.ResourceClaim, _ string) *resourcev1.ResourceClaim {
			return &resourcev1.ResourceClaim{Spec: devices.ForHost(&claim.Spec)}
		},
		back: func(ctx context.Context, planes tenant.Planes, s settings.Settings, copied, claim *resourcev1.ResourceClaim) error {
			return claimstatus.Mirror(ctx, planes, s, copied, claim)
		},
	}}
}

// NewTemplateController constructs the controller of ResourceClaimTemplates.
func NewTemplateController(planes tenant.Planes, recorder events.Recorder) *Controller[*resourcev1.ResourceClaimTemplate] {
	return &Controller[*resourcev1.ResourceClaimTemplate]{planes: planes, recorder: recorder, kind: kind[*resourcev1.ResourceClaimTemplate]{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"),
		controllerName:   "dra.resourceclaimtemplates",
		object:           func() *resourcev1.ResourceClaimTemplate { return &resourcev1.ResourceClaimTemplate{} },
		list:             func() client.ObjectList { return &resourcev1.ResourceClaimTemplateList{} },
		enabled:          func(sync *v1alpha1.Sync) bool { return sync.ToHost.ResourceClaimTemplates.Enabled },
		spec: func(template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaimSpec {
			return &template.Spec.Spec
		},
		forHost: func(template *resourcev1.ResourceClaimTemplate, tenant string) *resourcev1.ResourceClaimTemplate {
			// The host's claims get these labels and annotations, and no others of the tenant's.
			own := vcluster.OwnMetadata(template.Spec.Labels, template.Spec.Annotations, tenant)
			return &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: own.Labels, Annotations: own.Annotations},
				Spec:       devices.ForHost(&template.Spec.Spec),
			}}
		},
	}}
}

// madeForPod tells whether a claim of the tenant was made for one of its pods, of a template. The host makes one of its
// own for the host's pod, and package generated brings the two together.
func madeForPod(object client.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.APIVersion == "v1" && owner.Kind == "Pod"
}
