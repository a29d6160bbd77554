// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// TestStatusKeepsEstimate: the status is written whole, and holds what another controller has learned.
func TestStatusKeepsEstimate(t *testing.T) {
	nodeType := &v1alpha1.NodeType{}
	nodeType.Status.Provisioning = &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1080}
	summary := inventory.Summary{Capacity: v1alpha1.Capacity{Total: 2, Quarantined: 1}}
	for name, invalid := range map[string]*inventory.InvalidType{
		"Synced": nil, "Broken": {Reason: v1alpha1.ReasonProviderNotFound, Message: "x"},
	} {
		got := status(nodeType, summary, resource.Quantity{}, invalid, time.Unix(0, 0))
		if got.Provisioning == nil || *got.Provisioning != *nodeType.Status.Provisioning {
			t.Errorf("%s: the estimate is %+v, want %+v", name, got.Provisioning, nodeType.Status.Provisioning)
		}
		if want := int32(1); invalid == nil && got.Capacity.Quarantined != want {
			t.Errorf("%s: %d quarantined, want %d", name, got.Capacity.Quarantined, want)
		}
	}
}

func TestDiffers(t *testing.T) {
	estimate := func(seconds int64) *v1alpha1.ProvisioningEstimate {
		return &v1alpha1.ProvisioningEstimate{TypicalSeconds: seconds}
	}
	for name, tc := range map[string]struct {
		reason      string
		before, now *v1alpha1.ProvisioningEstimate
		want        bool
	}{
		"Nothing":  {reason: "no server has joined"},
		"First":    {reason: "one is better than none", now: estimate(0), want: true},
		"AllGone":  {reason: "the next server takes as long as the last one", before: estimate(600)},
		"Same":     {reason: "there is nothing to write", before: estimate(600), now: estimate(600)},
		"Little":   {reason: "each of 64 servers that join at once changes the median a little", before: estimate(600), now: estimate(659)},
		"Longer":   {reason: "firmware changes, and the estimate follows", before: estimate(600), now: estimate(660), want: true},
		"Shorter":  {reason: "firmware changes, and the estimate follows", before: estimate(600), now: estimate(540), want: true},
		"FromZero": {reason: "a second is much more than nothing", before: estimate(0), now: estimate(1), want: true},
		"Zero":     {reason: "there is nothing to write", before: estimate(0), now: estimate(0)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := differs(tc.before, tc.now); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
