// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestWritesToLaterObject: the object that was read is gone, and there is another one of its name. No write reaches that.
func TestWritesToLaterObject(t *testing.T) {
	label := func(secret *corev1.Secret) func() {
		return func() { metav1.SetMetaDataLabel(&secret.ObjectMeta, "example.com/a", "b") }
	}
	for name, tc := range map[string]struct {
		reason string
		write  func(client.Client, *corev1.Secret) error
		fails  bool
	}{
		"Delete": {"what was to be deleted is gone", func(c client.Client, secret *corev1.Secret) error {
			return kube.Delete(t.Context(), c, secret, "deleting")
		}, false},
		"Patch": {"a later visit reads the later object", func(c client.Client, secret *corev1.Secret) error {
			return kube.Patch(t.Context(), c, secret, "labelling", label(secret))
		}, true},
		"PatchOwn": {"a later visit reads the later object", func(c client.Client, secret *corev1.Secret) error {
			return kube.PatchOwn(t.Context(), c, secret, "labelling", label(secret))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := env.Fake(t).Client
			secret := func() *corev1.Secret {
				made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}}
				if err := c.Create(t.Context(), made); err != nil {
					t.Fatal(err)
				}
				return made
			}
			read := secret()
			if err := c.Delete(t.Context(), read.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			later := secret()
			if err := tc.write(c, read); apierrors.IsConflict(err) != tc.fails || (err != nil) != tc.fails {
				t.Errorf("%s: the write returns %v; a conflict: want %v", tc.reason, err, tc.fails)
			}
			found := &corev1.Secret{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(later), found); err != nil || found.ResourceVersion != later.ResourceVersion {
				t.Errorf("%s: the later object was written: %v, %v", tc.reason, found.ObjectMeta, err)
			}
		})
	}
}
