// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package names has vCluster's rules for a tenant's objects on the host: their names, labels and annotations.
// vCluster's syncers find each other's objects by them. The rules come from vCluster v0.34.0, pkg/util/translate.
// testdata has a table of names from vCluster's own code, written by tools/vcluster/names. Claims and templates have
// short names, as in pkg/mappings/resources of vCluster v0.32 and later. Earlier vClusters did not know these kinds.
package names

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// maxName is the longest name that is not hashed, in bytes. The value of a label has the same limit.
	maxName = 63
	// A longer name is cut to kept bytes, and gets the first digits of its SHA-256 in hexadecimal.
	kept   = 52
	digits = 10
	// separator is between name, namespace and tenant.
	separator = "-x-"

	// A short name is shortPrefix and the first shortDigits digits, in base 36, of the SHA-256 of the full name.
	shortPrefix = "v"
	shortDigits = 13

	labelPrefix = "vcluster.loft.sh/label"
)

// OriginAnnotations are the annotations that OriginOf reads. It also reads MarkerLabel.
var OriginAnnotations = []string{NameAnnotation, NamespaceAnnotation, UIDAnnotation, KindAnnotation, HostNameAnnotation,
	HostNamespaceAnnotation}

// Kinds that are copied to the host. Claims and templates have short names there.
var (
	PodKind      = corev1.SchemeGroupVersion.WithKind("Pod")
	ClaimKind    = resourcev1.SchemeGroupVersion.WithKind("ResourceClaim")
	TemplateKind = resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate")
)

// HostName returns the name on the host for a tenant's object other than a claim or template, such as a pod:
// "<name>-x-<namespace>-x-<tenant>", or its first 52 bytes and 10 hexadecimal digits of its SHA-256 if it is longer
// than 63 bytes.
//
// By that rule, a-x-b in namespace c and a in namespace b-x-c have the same name. HostName returns an error for names
// that can be read in more than one way, for empty parts, and for tenants of more than 63 bytes, which vCluster cannot
// have. All other names equal vCluster's, and no two unhashed names are equal. Two hashed names would have to agree in
// 40 bits of SHA-256 and 52 bytes of text; IsCopyOf tells them apart.
func HostName(name, namespace, tenant string) (string, error) {
	full, err := join(name, namespace, tenant)
	return shorten(full), err
}

// HostNameShort returns the name on the host of a tenant's ResourceClaim or ResourceClaimTemplate: "v" and 13 digits,
// in base 36, of the SHA-256 of "<name>-x-<namespace>-x-<tenant>". It returns the same errors as HostName. Two
// different names would have to agree in 67 bits of SHA-256; IsCopyOf tells them apart.
func HostNameShort(name, namespace, tenant string) (string, error) {
	full, err := join(name, namespace, tenant)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(full))
	// vCluster writes one zero for each leading zero byte.
	zeros := len(digest) - len(bytes.TrimLeft(digest[:], "\x00"))
	return shortPrefix + (strings.Repeat("0", zeros) + new(big.Int).SetBytes(digest[:]).Text(36))[:shortDigits], nil
}

// IsShort reports whether a name can come from HostNameShort.
func IsShort(name string) bool { return shortName.MatchString(name) }

var shortName = regexp.MustCompile(fmt.Sprintf("^%s[0-9a-z]{%d}$", shortPrefix, shortDigits))

// join returns a text that is unique to the name, namespace and tenant.
func join(name, namespace, tenant string) (string, error) {
	if name == "" || namespace == "" || tenant == "" {
		return "", fmt.Errorf("name %q, namespace %q and tenant %q: none may be empty", name, namespace, tenant)
	}
	if err := CheckTenant(tenant); err != nil {
		return "", err
	}
	full := name + separator + namespace + separator + tenant
	if occurrences(full) != 2 {
		return "", fmt.Errorf("the name on the host is made of %s, which could also be that of another object: choose a name and a "+
			"namespace without %q, that do not end in \"-x\" and do not begin with \"x-\"", full, separator)
	}
	return full, nil
}

// CheckTenant returns an error if a tenant's name is unsuitable for names on the host.
func CheckTenant(tenant string) error {
	if len(tenant) > maxName {
		return fmt.Errorf("the tenant's name %q has %d characters, and names on the host can have it only up to %d: choose a shorter one",
			tenant, len(tenant), maxName)
	}
	if strings.Contains(tenant, separator) || strings.HasPrefix(tenant, "x-") {
		return fmt.Errorf("the tenant's name %q contains %q or begins with \"x-\", and names on the host would not tell tenants apart: "+
			"choose another", tenant, separator)
	}
	return nil
}

// occurrences counts the separators, including overlapping ones: "-x-x-" has two.
func occurrences(s string) int {
	count := 0
	for i := 0; i+len(separator) <= len(s); i++ {
		if strings.HasPrefix(s[i:], separator) {
			count++
		}
	}
	return count
}

// labelKey returns the key on the host for a tenant's label that would have a meaning there: with Helm's "release", the
// host's Helm would mistake the copy for its own.
func labelKey(key, tenant string) string {
	digest := sha256.Sum256([]byte(key))
	return shorten(labelPrefix + "-" + tenant + "-x-" + hex.EncodeToString(digest[:])[:digits])
}

// shorten hashes a name that is too long. It drops a dot before a dash, which would be invalid.
func shorten(full string) string {
	if len(full) <= maxName {
		return full
	}
	digest := sha256.Sum256([]byte(full))
	return strings.ReplaceAll(full[:kept]+"-"+hex.EncodeToString(digest[:])[:digits], ".-", "-")
}

// Origin is the object of a tenant that an object on the host is a copy of.
type Origin struct {
	types.NamespacedName
	UID types.UID
}

// OriginOf reads from an object on the host which object of a tenant it is a copy of. It reports false if the object
// does not say so, or if the data is inconsistent: a copy must have the name that its origin translates to, and record
// it. The kind is a parameter because the object may have its metadata only.
func OriginOf(object client.Object, kind schema.GroupVersionKind, tenant string) (Origin, bool) {
	if kind == ClaimKind || kind == TemplateKind {
		return originOf(object, kind, tenant, HostNameShort)
	}
	return originOf(object, kind, tenant, HostName)
}

// OriginOfLongNamed is OriginOf for a claim or template under its HostName, as named before vCluster knew these kinds.
func OriginOfLongNamed(object client.Object, kind schema.GroupVersionKind, tenant string) (Origin, bool) {
	return originOf(object, kind, tenant, HostName)
}

func originOf(object client.Object, kind schema.GroupVersionKind, tenant string,
	hostName func(name, namespace, tenant string) (string, error)) (Origin, bool) {
	annotations := object.GetAnnotations()
	origin := Origin{
		NamespacedName: types.NamespacedName{Namespace: annotations[NamespaceAnnotation], Name: annotations[NameAnnotation]},
		UID:            types.UID(annotations[UIDAnnotation]),
	}
	if object.GetLabels()[MarkerLabel] != tenant || origin.UID == "" || annotations[KindAnnotation] != kind.String() {
		return Origin{}, false
	}
	if annotations[HostNameAnnotation] != object.GetName() || annotations[HostNamespaceAnnotation] != object.GetNamespace() {
		return Origin{}, false
	}
	name, err := hostName(origin.Name, origin.Namespace, tenant)
	return origin, err == nil && name == object.GetName()
}

// IsCopyOf reports whether an object on the host is the copy of exactly this object: name, namespace and UID.
func IsCopyOf(copied, object client.Object, kind schema.GroupVersionKind, tenant string) bool {
	origin, ok := OriginOf(copied, kind, tenant)
	return ok && origin.NamespacedName == client.ObjectKeyFromObject(object) && origin.UID == object.GetUID()
}

// vCluster's labels and annotations on objects of the host.
const (
	// MarkerLabel holds the name of the tenant, and NamespaceLabel the namespace in the tenant.
	MarkerLabel    = "vcluster.loft.sh/managed-by"
	NamespaceLabel = "vcluster.loft.sh/namespace"

	NameAnnotation          = "vcluster.loft.sh/object-name"
	NamespaceAnnotation     = "vcluster.loft.sh/object-namespace"
	UIDAnnotation           = "vcluster.loft.sh/object-uid"
	KindAnnotation          = "vcluster.loft.sh/object-kind"
	HostNameAnnotation      = "vcluster.loft.sh/object-host-name"
	HostNamespaceAnnotation = "vcluster.loft.sh/object-host-namespace"

	// ManagedAnnotationsAnnotation and ManagedLabelsAnnotation hold the keys that come from the tenant, one per line.
	ManagedAnnotationsAnnotation = "vcluster.loft.sh/managed-annotations"
	ManagedLabelsAnnotation      = "vcluster.loft.sh/managed-labels"

	releaseLabel  = "release"
	vclusterGroup = "vcluster.loft.sh/"
)

// Metadata are labels and annotations.
type Metadata struct {
	Labels, Annotations map[string]string
}

// HostMetadata returns the labels and annotations for the copy on the host of a tenant's object. They are the tenant's
// own, the keys to find the copy by, and the copy's keys that do not come from the tenant. Pass empty metadata for a
// copy that does not exist yet.
//
// It does not copy keys with a meaning to vCluster, to us, to Kubernetes' resource controllers or to tools such as Argo
// CD and Helm, nor labels or annotations that are TooLarge: tenants could write anything into them.
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

// OwnMetadata returns the tenant's labels and annotations that may be copied to the host.
func OwnMetadata(labels, annotations map[string]string, tenant string) Metadata {
	own := Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	labelsTooLarge, annotationsTooLarge := TooLarge(labels), TooLarge(annotations)
	for key, value := range labels {
		if !reserved(key) && !labelsTooLarge {
			own.Labels[hostLabel(key, tenant)] = value
		}
	}
	for key, value := range annotations {
		if !reserved(key) && !annotationsTooLarge {
			own.Annotations[key] = value
		}
	}
	return own
}

// MaxMetadata limits, in bytes, the labels and also the annotations of a tenant's object that are copied to the host.
const MaxMetadata = 16 << 10

// TooLarge reports whether a tenant's labels or annotations exceed MaxMetadata. Then none of them is copied.
func TooLarge(metadata map[string]string) bool {
	size := 0
	for key, value := range metadata {
		if !reserved(key) {
			size += len(key) + len(value)
		}
	}
	return size > MaxMetadata
}

// otherTools are suffixes of key domains that tools on the host act on. With such a key, a tenant's object would belong
// to another team's application, release or queue.
var otherTools = []string{"argoproj.io", "helm.sh", "fluxcd.io", "x-k8s.io", "k14s.io", "config.kubernetes.io", "velero.io",
	"crossplane.io", "fleet.cattle.io", "kyverno.io", "gatekeeper.sh"}

// reserved reports whether a key has a meaning on the host, so that a tenant must not set it.
func reserved(key string) bool {
	return strings.HasPrefix(key, vclusterGroup) || strings.HasPrefix(key, "resource.kubernetes.io/") ||
		key == corev1.LastAppliedConfigAnnotation || key == "app.kubernetes.io/managed-by" || key == "app.kubernetes.io/instance" ||
		v1alpha1.InDomain(key, v1alpha1.Group) || v1alpha1.InDomain(key, otherTools...)
}

func hostLabel(key, tenant string) string {
	if key != releaseLabel {
		return key
	}
	return labelKey(key, tenant)
}

// merge adds to own the keys in copied that did not come from the tenant.
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

// Counts reports whether an object on the host counts in the limit of a tenant's copies. A copy does, and so does a
// claim that kube-scheduler made for the extended resources of a pod. Such a claim does not name its tenant, so it
// counts for each tenant of its namespace.
func Counts(object client.Object, tenant string) bool {
	return object.GetLabels()[MarkerLabel] == tenant || object.GetAnnotations()[resourcev1.ExtendedResourceClaimAnnotation] == "true"
}
