// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// The names and labels are the same as in other providers, so that existing dashboards can read them.
var (
	cpuDescription    = describe("cpu_cores", "CPUs of an instance type.")
	memoryDescription = describe("memory_bytes", "Memory of an instance type in bytes.")
	priceDescription  = describe("offering_price_estimate", "Cost of a server, relative and without a unit, by instance type, capacity type "+
		"and zone.", "capacity_type", "zone")
	availableDescription = describe("offering_available", "Whether the tenant could have a server now (1 or 0), by instance type, capacity "+
		"type and zone.", "capacity_type", "zone")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("karpenter_cloudprovider_instance_type_"+name, help, append([]string{"instance_type"}, labels...), nil)
}

// Metrics are the metrics of the tenant's types. Each scrape computes them, so the series of a type end with it.
type Metrics struct{ provider *CloudProvider }

// NewMetrics returns the metrics of the types of a provider.
func NewMetrics(provider *CloudProvider) Metrics { return Metrics{provider: provider} }

// Register adds the metrics to the metrics that the process serves.
func (m Metrics) Register(context.Context, manager.Manager) error {
	if err := ctrlmetrics.Registry.Register(m); err != nil {
		return fmt.Errorf("registering the metrics of instance types, %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (m Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{cpuDescription, memoryDescription, priceDescription, availableDescription} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector. Until the types are known there are no series: zeros would look like a fleet without servers.
func (m Metrics) Collect(metrics chan<- prometheus.Metric) {
	ctx := context.Background()
	scope, err := m.provider.scopeOf(ctx, nil)
	if err != nil {
		log.FromContext(ctx).V(1).Info("There are no metrics of instance types yet", "reason", err.Error())
		return
	}
	gauge := func(description *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
	}
	for _, instanceType := range instancetypes.LimitTypes(scope.rest, scope.catalog.InstanceTypes(scope.filter())) {
		gauge(cpuDescription, instanceType.Capacity.Cpu().AsApproximateFloat64(), instanceType.Name)
		gauge(memoryDescription, instanceType.Capacity.Memory().AsApproximateFloat64(), instanceType.Name)
		// A zone has several offerings. All have the price of the type, but few have servers.
		type place struct{ capacityType, zone string }
		available := map[place]float64{}
		for _, offering := range instanceType.Offerings {
			if !offering.Requirements.Has(corev1.LabelTopologyZone) {
				continue
			}
			place := place{offering.CapacityType(), offering.Zone()}
			if available[place] += 0; offering.Available {
				available[place] = 1
			}
		}
		for place, value := range available {
			gauge(priceDescription, instanceType.Offerings[0].Price, instanceType.Name, place.capacityType, place.zone)
			gauge(availableDescription, value, instanceType.Name, place.capacityType, place.zone)
		}
	}
}
