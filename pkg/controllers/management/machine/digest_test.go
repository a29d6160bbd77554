// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// TestDigestOfURL: a reader of the status cannot find out a password by trying some, and other credentials are no other image.
func TestDigestOfURL(t *testing.T) {
	plan := func(url string) *plan {
		return &plan{set: properties.Merge(properties.Layer{Source: "NodeType h100", Values: map[string]string{
			v1alpha1.PropertyImageURL: url, v1alpha1.PropertyImageChecksum: url + ".sha256"}})}
	}
	const public, guessed = "https://images/noble.img?v=1", "https://team:hunter2@images/noble.img?v=1"
	const other = "https://team:x@images/noble.img?v=2"
	for i, field := range plan(guessed).installed() {
		if field.Digest == digest(guessed) || field.Digest == digest(guessed+".sha256") {
			t.Errorf("%s: the digest is that of the password", field.Field)
		}
		if public := plan(public).installed()[i]; field.Digest != public.Digest {
			t.Errorf("%s: the digest is not that of the URL without the password", field.Field)
		}
	}
	// A manager of an earlier version has recorded the digest of all of it.
	older := []v1alpha1.InstalledField{
		{Field: v1alpha1.PropertyImageURL, Digest: digest(guessed)}, {Field: v1alpha1.PropertyImageChecksum, Digest: digest(guessed + ".sha256")},
	}
	for name, tc := range map[string]struct {
		reason  string
		record  []v1alpha1.InstalledField
		now     string
		drifted int
	}{
		"Same":           {"nothing changes", plan(guessed).installed(), guessed, 0},
		"Password":       {"the image is the same", plan(guessed).installed(), "https://team:changed@images/noble.img?v=1", 0},
		"Image":          {"another image", plan(guessed).installed(), other, 2},
		"Query":          {"it can name an image", plan(public).installed(), "https://images/noble.img?v=2", 2},
		"Older":          {"an upgrade replaces no Machine", older, guessed, 0},
		"OlderImage":     {"another image", older, other, 2},
		"OlderPassword":  {"it was recorded, and so is a change", older, "https://team:changed@images/noble.img?v=1", 2},
		"NoPasswordThen": {"the image is the same", plan(public).installed(), guessed, 0},
	} {
		if changes := changesOf(tc.record, plan(tc.now)); len(changes) != tc.drifted {
			t.Errorf("%s: %s: got %v", name, tc.reason, changes)
		}
	}
}
