// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
)

// NewClaimController constructs the controller of ResourceClaims.
func NewClaimController(clusters tenant.Clusters, recorder events.Recorder) *CopyController[*resourcev1.ResourceClaim] {
	return &CopyController[*resourcev1.ResourceClaim]{clusters: clusters, recorder: recorder, kind: kind[*resourcev1.ResourceClaim]{
		GroupVersionKind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
		controllerName:   "dra.resourceclaims",
		object:           func() *resourcev1.ResourceClaim { return &resourcev1.ResourceClaim{} },
		list:             func() client.ObjectList { return &resourcev1.ResourceClaimList{} },
		enabled:          func(sync *v1alpha1.Sync) bool { return sync.ToHost.ResourceClaims.Enabled },
		spec:             func(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaimSpec { return &claim.Spec },
		forHost: func(claim *resourcev1.ResourceClaim, _ string) *resourcev1.ResourceClaim {
			return &resourcev1.ResourceClaim{Spec: policy.ForHost(&claim.Spec)}
		},
		mirrorStatus: mirrorStatus,
	}}
}

// NewTemplateController constructs the controller of ResourceClaimTemplates.
func NewTemplateController(clusters tenant.Clusters, recorder events.Recorder) *CopyController[*resourcev1.ResourceClaimTemplate] {
	return &CopyController[*resourcev1.ResourceClaimTemplate]{clusters: clusters, recorder: recorder,
		kind: kind[*resourcev1.ResourceClaimTemplate]{
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
				own := names.OwnMetadata(template.Spec.Labels, template.Spec.Annotations, tenant)
				return &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: own.Labels, Annotations: own.Annotations},
					Spec:       policy.ForHost(&template.Spec.Spec),
				}}
			},
		}}
}
