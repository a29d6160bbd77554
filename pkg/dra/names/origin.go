// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Origin is the object of a tenant that an object on the host is a copy of.
type Origin struct {
	types.NamespacedName
	UID types.UID
}

// OriginOf returns what an object on the host says that it is a copy of, for one tenant. It reports false if it says
// nothing, or if what it says is not consistent: a copy bears the name that its origin translates to, and says so. The
// object may have its metadata only; its kind is therefore a parameter.
func OriginOf(object client.Object, kind schema.GroupVersionKind, tenant string) (Origin, bool) {
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
	name, err := HostName(origin.Name, origin.Namespace, tenant)
	return origin, err == nil && name == object.GetName()
}

// IsCopyOf tells whether an object on the host is the copy of exactly this object of the tenant: name, namespace and UID.
func IsCopyOf(copied, object client.Object, kind schema.GroupVersionKind, tenant string) bool {
	origin, ok := OriginOf(copied, kind, tenant)
	return ok && origin.NamespacedName == client.ObjectKeyFromObject(object) && origin.UID == object.GetUID()
}
