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
	nodeType.Status.Provisioning = &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1080, Samples: 3}
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
