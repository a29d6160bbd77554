// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Labels and annotations of vCluster's on objects of the host.
const (
	// MarkerLabel holds the name of the tenant, and NamespaceLabel the namespace in it.
	MarkerLabel    = "vcluster.loft.sh/managed-by"
	NamespaceLabel = "vcluster.loft.sh/namespace"

	NameAnnotation          = "vcluster.loft.sh/object-name"
	NamespaceAnnotation     = "vcluster.loft.sh/object-namespace"
	UIDAnnotation           = "vcluster.loft.sh/object-uid"
	KindAnnotation          = "vcluster.loft.sh/object-kind"
	HostNameAnnotation      = "vcluster.loft.sh/object-host-name"
	HostNamespaceAnnotation = "vcluster.loft.sh/object-host-namespace"

	// ManagedAnnotationsAnnotation and ManagedLabelsAnnotation hold the keys that come from the tenant, one a line.
	ManagedAnnotationsAnnotation = "vcluster.loft.sh/managed-annotations"
	ManagedLabelsAnnotation      = "vcluster.loft.sh/managed-labels"

	releaseLabel  = "release"
	vclusterGroup = "vcluster.loft.sh/"
)

// Metadata are labels and annotations.
type Metadata struct {
	Labels, Annotations map[string]string
}

// HostMetadata returns the labels and annotations of the copy on the host of a tenant's object: the tenant's own, those
// by which the copy is found, and those of the copy that are not from the tenant. The copy's metadata are empty before it
// exists.
//
// Keys with a meaning to vCluster, to us or to Kubernetes' resource controllers are not copied: tenants could write
// anything into them.
func HostMetadata(object client.Object, kind schema.GroupVersionKind, host client.ObjectKey, tenant string, copied Metadata) Metadata {
	own := OwnMetadata(object.GetLabels(), object.GetAnnotations(), tenant)
	result := Metadata{
		Labels:      merge(own.Labels, copied.Labels, managedKeys(copied, ManagedLabelsAnnotation)),
		Annotations: merge(own.Annotations, copied.Annotations, managedKeys(copied, ManagedAnnotationsAnnotation)),
	}
	result.Labels[MarkerLabel] = tenant
	result.Labels[NamespaceLabel] = object.GetNamespace()
	maps.Copy(result.Annotations, map[string]string{
		NameAnnotation:          object.GetName(),
		NamespaceAnnotation:     object.GetNamespace(),
		UIDAnnotation:           string(object.GetUID()),
		KindAnnotation:          kind.String(),
		HostNameAnnotation:      host.Name,
		HostNamespaceAnnotation: host.Namespace,
	})
	setManagedKeys(result.Annotations, ManagedLabelsAnnotation, own.Labels)
	setManagedKeys(result.Annotations, ManagedAnnotationsAnnotation, own.Annotations)
	return result
}

// OwnMetadata returns the labels and annotations of a tenant that may be copied to the host.
func OwnMetadata(labels, annotations map[string]string, tenant string) Metadata {
	own := Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	for key, value := range labels {
		if !reserved(key) {
			own.Labels[hostLabel(key, tenant)] = value
		}
	}
	for key, value := range annotations {
		if !reserved(key) {
			own.Annotations[key] = value
		}
	}
	return own
}

// reserved returns whether a key has a meaning on the host, so that a tenant must not set it.
func reserved(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		return false
	}
	return strings.HasPrefix(key, vclusterGroup) || domain == v1alpha1.Group || strings.HasSuffix(domain, "."+v1alpha1.Group) ||
		domain == "resource.kubernetes.io" || key == corev1.LastAppliedConfigAnnotation
}

func hostLabel(key, tenant string) string {
	if key != releaseLabel {
		return key
	}
	return labelKey(key, tenant)
}

// merge returns own, and what is in copied without having come from the tenant.
func merge(own, copied map[string]string, managed []string) map[string]string {
	result := maps.Clone(own)
	for key, value := range copied {
		if _, ok := own[key]; !ok && !slices.Contains(managed, key) {
			result[key] = value
		}
	}
	return result
}

func managedKeys(copied Metadata, annotation string) []string {
	return strings.Split(copied.Annotations[annotation], "\n")
}

func setManagedKeys(annotations map[string]string, annotation string, own map[string]string) {
	if len(own) == 0 {
		delete(annotations, annotation)
		return
	}
	annotations[annotation] = strings.Join(slices.Sorted(maps.Keys(own)), "\n")
}
