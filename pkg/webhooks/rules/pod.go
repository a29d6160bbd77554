// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// maxClaims is how many claims a pod of a tenant may have. Each is looked up, and other pods wait meanwhile.
const maxClaims = 64

// Pod validates the copy of a tenant's pod that is created on the host, and gives its claims and templates their names on
// the host if the TenantCluster says that the webhook does it. It changes nothing else of the pod.
//
// Without it a tenant would take a claim of another of its namespaces, or of the platform in the namespace of its copies, by
// writing that name. So what vCluster lets a tenant write is not read: the origin comes from OriginOf, not from the
// annotations vcluster.loft.sh/name, /namespace and /uid.
//
// Where vCluster translates, the name of a claim that is already on the host must be that of a copy from the pod's namespace:
// any other name is the tenant's word, and vCluster has not translated it.
func Pod(tenant *v1alpha1.TenantCluster, pod *corev1.Pod, onHost ClaimOnHost) Result {
	r := &Result{}
	if tenant == nil || !tenant.Spec.Sync.Enabled() {
		return *r // another program syncs the claims of this vCluster
	}
	translate := tenant.Spec.Sync.ToHost.PodTranslation == v1alpha1.PodTranslationWebhook
	var namespace string // in the tenant
	if translate {
		origin, ok := names.OriginOf(pod, names.PodKind, tenant.Name)
		if !ok {
			r.refuse(RulePodClaims, "it has the label %s, and not the name and the annotations vcluster.loft.sh/object-* of a copy that vCluster "+
				"makes. If vCluster has made it, its name could also be that of another copy: choose a name and a namespace without \"-x-\", that "+
				"do not end in \"-x\" and do not begin with \"x-\"", names.MarkerLabel)
			return *r
		}
		namespace = origin.Namespace
	}
	if count := len(pod.Spec.ResourceClaims); count > maxClaims {
		r.deny(RulePodClaims, field.Forbidden(field.NewPath("spec", "resourceClaims"),
			fmt.Sprintf("there are %d claims, and at most %d are looked up: ask for several devices in one claim", count,
				maxClaims)))
		return *r
	}
	key := tenant.Namespace + "/" + tenant.Name
	for i := range pod.Spec.ResourceClaims {
		claim, path := &pod.Spec.ResourceClaims[i], field.NewPath("spec", "resourceClaims").Index(i)
		for _, reference := range []struct {
			name           **string
			kind           schema.GroupVersionKind
			field, setting string
			synced         bool
		}{
			{&claim.ResourceClaimName, names.ClaimKind, "resourceClaimName", "sync.toHost.resourceClaims.enabled",
				tenant.Spec.Sync.ToHost.ResourceClaims.Enabled},
			{&claim.ResourceClaimTemplateName, names.TemplateKind, "resourceClaimTemplateName", "sync.toHost.resourceClaimTemplates.enabled",
				tenant.Spec.Sync.ToHost.ResourceClaimTemplates.Enabled},
		} {
			if *reference.name == nil {
				continue
			}
			fieldPath, given := path.Child(reference.field), **reference.name
			short := names.IsShort(given)
			switch {
			case !translate && short && !(reference.synced && ofOthers(tenant, pod, reference.kind, onHost(reference.kind, given))):
			case !reference.synced:
				r.deny(RulePodClaims, field.Invalid(fieldPath, given,
					"is not synced to the host: set spec."+reference.setting+" of TenantCluster "+key))
			case !translate:
				r.deny(RulePodClaims, field.Invalid(fieldPath, given,
					"is not translated: set "+reference.setting+" in the vcluster.yaml, of vCluster v0.32 "+
						"or later, or set spec.sync.toHost.podTranslation of TenantCluster "+key+" to Webhook"))
			default:
				translated, err := names.HostNameShort(given, namespace, tenant.Name)
				if err != nil {
					r.deny(RulePodClaims, field.Invalid(fieldPath, given, err.Error()))
					continue
				}
				if short {
					r.warn(RulePodClaims, fieldPath, "%s looks translated already: if it is, the pod stays Pending until "+
						"spec.sync.toHost.podTranslation of TenantCluster %s is VCluster", given, key)
				}
				*reference.name = &translated
			}
		}
	}
	return r.done()
}

// ClaimOnHost returns the claim or template of that name in the namespace of the pod on the host, nil if there is none.
type ClaimOnHost func(kind schema.GroupVersionKind, name string) client.Object

// ofOthers returns whether a claim or template on the host is none of the pod's namespace in the tenant. What does not exist
// yet may become one.
func ofOthers(tenant *v1alpha1.TenantCluster, pod *corev1.Pod, kind schema.GroupVersionKind, claim client.Object) bool {
	if claim == nil {
		return false
	}
	origin, ok := names.OriginOf(claim, kind, tenant.Name)
	return !ok || origin.Namespace != pod.Annotations[names.NamespaceAnnotation]
}

// podTranslation warns of what has no effect.
func (r *Result) podTranslation(path *field.Path, toHost *v1alpha1.SyncToHost) {
	if toHost.PodTranslation != "" && !toHost.ResourceClaims.Enabled && !toHost.ResourceClaimTemplates.Enabled {
		r.warn(RulePodClaims, path, "no claim is synced to the host: enable resourceClaims, resourceClaimTemplates or both")
	}
}
