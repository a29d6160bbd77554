// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// TestDigestOfURL: a reader of the status cannot find out a password by trying some, and other credentials are no other
// image.
func TestDigestOfURL(t *testing.T) {
	plan := func(url string) *Plan {
		return &Plan{Set: properties.Merge(properties.Layer{Source: "NodeType h100", Values: map[string]string{
			v1alpha1.PropertyImageURL: url, v1alpha1.PropertyImageChecksum: url + ".sha256"}})}
	}
	const public, guessed = "https://images/noble.img?v=1", "https://team:hunter2@images/noble.img?v=1"
	const other = "https://team:x@images/noble.img?v=2"
	for i, field := range plan(guessed).Installed() {
		if field.Digest == digest(guessed) || field.Digest == digest(guessed+".sha256") {
			t.Errorf("%s: the digest is that of the password", field.Field)
		}
		if public := plan(public).Installed()[i]; field.Digest != public.Digest {
			t.Errorf("%s: the digest is not that of the URL without the password", field.Field)
		}
	}
	for name, tc := range map[string]struct {
		reason  string
		record  []v1alpha1.InstalledField
		now     string
		drifted int
	}{
		"Same":           {"nothing changes", plan(guessed).Installed(), guessed, 0},
		"Password":       {"the image is the same", plan(guessed).Installed(), "https://team:changed@images/noble.img?v=1", 0},
		"Image":          {"another image", plan(guessed).Installed(), other, 2},
		"Query":          {"it can name an image", plan(public).Installed(), "https://images/noble.img?v=2", 2},
		"NoPasswordThen": {"the image is the same", plan(public).Installed(), guessed, 0},
	} {
		if changes := plan(tc.now).changes(tc.record); len(changes) != tc.drifted {
			t.Errorf("%s: %s: got %v", name, tc.reason, changes)
		}
	}
}

// TestInstalledOSImage: a reference to an OSImage of which nothing is installed drifts no Machine when it changes.
func TestInstalledOSImage(t *testing.T) {
	image := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "ubuntu"}, Spec: v1alpha1.OSImageSpec{Properties: map[string]string{
		v1alpha1.PropertyImageURL: "http://images.example.com/x.qcow2", "example.com/driver": "570"}}}
	general := properties.Layer{Source: "NodeProvider p", Values: map[string]string{v1alpha1.PropertyOSImage: "ubuntu"}}
	own := properties.Layer{Source: "Machine m", Values: map[string]string{v1alpha1.PropertyImageURL: "http://mine/x.raw"}}
	for name, tc := range map[string]struct {
		reason   string
		layers   []properties.Layer
		template *Template
		want     bool
	}{
		"Image":    {reason: "its image is installed", layers: []properties.Layer{general}, want: true},
		"OwnImage": {reason: "the Machine has an image of its own", layers: []properties.Layer{general, own}},
		"Template": {reason: "the user data has its driver", layers: []properties.Layer{general, own},
			template: &Template{Text: `{{ index .Values.Properties "example.com/driver" }}`}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{Set: properties.Merge(tc.layers...).WithOSImage(image), UserTemplate: tc.template}
			got := slices.ContainsFunc(p.Installed(), func(f v1alpha1.InstalledField) bool {
				return v1alpha1.CanonicalKey(f.Field) == v1alpha1.PropertyOSImage
			})
			if got != tc.want {
				t.Errorf("%s: installed is %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
