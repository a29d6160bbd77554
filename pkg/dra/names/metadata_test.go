// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func claim(labels, annotations map[string]string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "gpu", UID: "u1", Labels: labels,
		Annotations: annotations}}
}

func host() client.ObjectKey {
	return client.ObjectKey{Namespace: "tenant-blue", Name: "vm9n4c1zh2u01y"}
}

func TestHostMetadata(t *testing.T) {
	marks := func(m Metadata) Metadata {
		for key, value := range map[string]string{MarkerLabel: "blue", NamespaceLabel: "ml"} {
			m.Labels[key] = value
		}
		for key, value := range map[string]string{
			NameAnnotation: "gpu", NamespaceAnnotation: "ml", UIDAnnotation: "u1", KindAnnotation: "resource.k8s.io/v1, Kind=ResourceClaim",
			HostNameAnnotation: "vm9n4c1zh2u01y", HostNamespaceAnnotation: "tenant-blue",
		} {
			m.Annotations[key] = value
		}
		return m
	}
	for name, tc := range map[string]struct {
		reason              string
		labels, annotations map[string]string
		copied, want        Metadata
	}{
		"None": {reason: "the marks alone", want: Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}},
		"Own": {reason: "what users write passes", labels: map[string]string{"app": "a", "release": "r"},
			annotations: map[string]string{"note": "n"},
			want: Metadata{Labels: map[string]string{"app": "a", "vcluster.loft.sh/label-blue-x-a4d451ec23": "r"},
				Annotations: map[string]string{"note": "n", ManagedLabelsAnnotation: "app\nvcluster.loft.sh/label-blue-x-a4d451ec23",
					ManagedAnnotationsAnnotation: "note"}}},
		"Forged": {reason: "the marks of another are not the tenant's to write",
			labels: map[string]string{MarkerLabel: "red", NamespaceLabel: "x", "vcluster.loft.sh/controlled-by": "x"},
			annotations: map[string]string{NameAnnotation: "other", UIDAnnotation: "u2", HostNamespaceAnnotation: "tenant-red",
				ManagedAnnotationsAnnotation: "a", "resource.kubernetes.io/pod-claim-name": "x", "karpenter.metal3.io/host-claim": "x",
				"kubectl.kubernetes.io/last-applied-configuration": "{}"},
			want: Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}},
		"OtherTools": {reason: "what Argo CD, Helm, Flux and Kueue act on is not the tenant's to write",
			labels: map[string]string{"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "prod", "app.kubernetes.io/name": "n",
				"argocd.argoproj.io/instance": "x", "kueue.x-k8s.io/queue-name": "q", "kustomize.toolkit.fluxcd.io/name": "x",
				"helm.toolkit.fluxcd.io/name": "x", "velero.io/exclude-from-backup": "true"},
			annotations: map[string]string{"argocd.argoproj.io/tracking-id": "a:b/c:d/e", "meta.helm.sh/release-name": "x", "helm.sh/hook": "x",
				"config.kubernetes.io/owning-inventory": "x", "kapp.k14s.io/identity": "x", "note": "n"},
			want: Metadata{Labels: map[string]string{"app.kubernetes.io/name": "n"},
				Annotations: map[string]string{"note": "n", ManagedLabelsAnnotation: "app.kubernetes.io/name",
					ManagedAnnotationsAnnotation: "note"}}},
		"Cleared": {reason: "what an earlier version has copied goes", labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"},
			copied: Metadata{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"},
				Annotations: map[string]string{ManagedLabelsAnnotation: "kueue.x-k8s.io/queue-name"}},
			want: Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}},
		"Large": {reason: "etcd of the host is everybody's", labels: map[string]string{"app": "a"},
			annotations: map[string]string{"note": "n", "large": strings.Repeat("x", MaxMetadata)},
			want:        Metadata{Labels: map[string]string{"app": "a"}, Annotations: map[string]string{ManagedLabelsAnnotation: "app"}}},
		"Dropped": {reason: "what the tenant has taken away goes, what the host has added stays",
			copied: Metadata{Labels: map[string]string{"old": "1", "host": "1"},
				Annotations: map[string]string{"gone": "1", "host": "1", ManagedLabelsAnnotation: "old", ManagedAnnotationsAnnotation: "gone"}},
			want: Metadata{Labels: map[string]string{"host": "1"}, Annotations: map[string]string{"host": "1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := HostMetadata(claim(tc.labels, tc.annotations), ClaimKind, host(), "blue", tc.copied)
			if diff := cmp.Diff(marks(tc.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			again := HostMetadata(claim(tc.labels, tc.annotations), ClaimKind, host(), "blue", got)
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("a second time it is something else, and would be written for ever:\n%s", diff)
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		key    string
		length int
		want   bool
	}{
		"Fits":     {"key and value together", "k", MaxMetadata - 1, false},
		"TooLarge": {"one more", "k", MaxMetadata, true},
		"Reserved": {"what is not copied does not count", "meta.helm.sh/x", MaxMetadata, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TooLarge(map[string]string{tc.key: strings.Repeat("x", tc.length)}); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestIsCopyOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*resourcev1.ResourceClaim)
		want   bool
	}{
		"Copy":          {"as it is made", func(*resourcev1.ResourceClaim) {}, true},
		"NoLabel":       {"without the marker it is not a copy", func(c *resourcev1.ResourceClaim) { c.Labels = nil }, false},
		"OtherTenant":   {"another tenant's", func(c *resourcev1.ResourceClaim) { c.Labels[MarkerLabel] = "red" }, false},
		"NoAnnotations": {"labels alone are not proof", func(c *resourcev1.ResourceClaim) { c.Annotations = nil }, false},
		"OtherUID": {"an earlier object of that name", func(c *resourcev1.ResourceClaim) { c.Annotations[UIDAnnotation] = "u0" },
			false},
		"OtherName":          {"the name does not translate", func(c *resourcev1.ResourceClaim) { c.Annotations[NameAnnotation] = "tpu" }, false},
		"OtherKind":          {"a template of that name", func(c *resourcev1.ResourceClaim) { c.Annotations[KindAnnotation] = "x" }, false},
		"Moved":              {"a copy of the copy", func(c *resourcev1.ResourceClaim) { c.Name = "copy" }, false},
		"OtherHostNamespace": {"a copy of the copy elsewhere", func(c *resourcev1.ResourceClaim) { c.Namespace = "x" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := HostMetadata(claim(nil, nil), ClaimKind, host(), "blue", Metadata{})
			copied := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: host().Namespace, Name: host().Name,
				Labels: metadata.Labels, Annotations: metadata.Annotations}}
			tc.change(copied)
			if got := IsCopyOf(copied, claim(nil, nil), ClaimKind, "blue"); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
