// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

var blockedDescription = describe("tenantclusters_blocked",
	"TenantClusters whose provider writes or deletes nothing, by the reason of the condition that says why.", ReasonLabel)

// tenantCounts counts the TenantClusters when it is asked to, from the cache.
type tenantCounts struct{ tenants client.Reader }

// Describe implements prometheus.Collector.
func (t tenantCounts) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- blockedDescription
}

// Collect implements prometheus.Collector.
func (t tenantCounts) Collect(metrics chan<- prometheus.Metric) {
	ctx := context.Background()
	tenants := &v1alpha1.TenantClusterList{}
	if err := t.tenants.List(ctx, tenants, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Counting TenantClusters for metrics")
		return
	}
	reasons := map[string]int{}
	for i := range tenants.Items {
		for _, condition := range tenants.Items[i].Blocked() {
			reasons[condition.Reason]++
		}
	}
	for reason, count := range reasons {
		metrics <- prometheus.MustNewConstMetric(blockedDescription, prometheus.GaugeValue, float64(count), reason)
	}
}
