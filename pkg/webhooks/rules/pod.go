// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
)

// maxClaims is how many claims a tenant's pod may have. Each claim is looked up, and other pods wait meanwhile.
const maxClaims = 64

// Pod validates the copy of a tenant's pod that is created on the host. If the TenantCluster assigns this to the
// webhook, it also gives the pod's claims and templates their names on the host. It changes nothing else of the pod.
//
// Without this rule a tenant could take a claim of another of its namespaces, or of the platform in the namespace of
// its copies, by writing its name. So Pod does not read anything that vCluster lets a tenant write: the origin comes
// from OriginOf, not from the annotations vcluster.loft.sh/name, /namespace and /uid.
//
// Where vCluster translates, a claim that is already on the host must be a copy from the pod's namespace. Any other
// name is the tenant's own, and vCluster has not translated it.
//
// A pod may also ask for devices by a resource of a container. Then kube-scheduler makes the claim, and asks nobody. So
// Pod judges the resource, even if another program syncs the claims of the vCluster.
func Pod(tenant *v1alpha1.TenantCluster, pod *corev1.Pod, asked Asked, host Host) Result {
	r := &Result{}
	if tenant == nil {
		return *r // the platform knows nothing of this vCluster
	}
	r.podResources(tenant, asked, host)
	if !tenant.Spec.Sync.Enabled() {
		return r.done() // another program syncs the claims of this vCluster
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
			case !translate && short && !(reference.synced && ofOthers(tenant, pod, reference.kind, host.Claim(reference.kind, given))):
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

// Host is the view of the host for the rules about a pod.
type Host interface {
	// Claim returns the claim or template with the name in the namespace of the pod, nil if there is none.
	Claim(kind schema.GroupVersionKind, name string) client.Object
	// DeviceClasses returns all device classes.
	DeviceClasses() []resourcev1.DeviceClass
	// Claims returns how many claims in the namespace of the pod count in the limit of a tenant (names.Counts).
	Claims(tenant string) int
}

// podResources denies container resources of a device class that the tenant may not ask for, and resources beyond the
// number of claims that the tenant may have. Their claim needs no size limit: it only names a class for each resource.
func (r *Result) podResources(tenant *v1alpha1.TenantCluster, asked Asked, host Host) {
	if len(asked) == 0 {
		return
	}
	settings := policy.Of(tenant)
	resources := settings.Policy.ResourcesOf(host.DeviceClasses())
	claimed := false
	for _, resource := range slices.Sorted(maps.Keys(asked)) {
		served, whyNot := resources.Judge(resource)
		if claimed = claimed || served; whyNot == "" {
			continue
		}
		r.deny(RulePodResources, field.Forbidden(asked[resource], whyNot))
	}
	if limit := settings.MaxCopies(settings.Sync.ToHost.ResourceClaims); claimed && host.Claims(tenant.Name) >= limit {
		r.refuse(RulePodResources, "kube-scheduler would make a claim for its resources, and this cluster has %d claims on the host, as many "+
			"as it may have: delete some, or ask the platform's administrator for a higher 'sync.toHost.resourceClaims.max'", limit)
	}
}

// Asked maps the resources that a pod asks for to the first field that does.
type Asked map[corev1.ResourceName]*field.Path

// Add adds a resource that a field asks for, if it is an extended resource, which has a domain.
func (a Asked) Add(resource corev1.ResourceName, path *field.Path) {
	if _, known := a[resource]; !known && strings.Contains(string(resource), "/") {
		a[resource] = path.Key(string(resource))
	}
}

// ofOthers reports whether a claim or template on the host is foreign to the pod's namespace in the tenant. One that
// does not exist yet may still become its own.
func ofOthers(tenant *v1alpha1.TenantCluster, pod *corev1.Pod, kind schema.GroupVersionKind, claim client.Object) bool {
	if claim == nil {
		return false
	}
	origin, ok := names.OriginOf(claim, kind, tenant.Name)
	return !ok || origin.Namespace != pod.Annotations[names.NamespaceAnnotation]
}

// podTranslation warns of a setting without an effect.
func (r *Result) podTranslation(path *field.Path, toHost *v1alpha1.SyncToHost) {
	if toHost.PodTranslation != "" && !toHost.ResourceClaims.Enabled && !toHost.ResourceClaimTemplates.Enabled {
		r.warn(RulePodClaims, path, "no claim is synced to the host: enable resourceClaims, resourceClaimTemplates or both")
	}
}
