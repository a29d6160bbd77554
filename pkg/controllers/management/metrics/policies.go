// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
)

// policyInterval is the time between two checks of the admission policies.
const policyInterval = 10 * time.Minute

// Policies checks whether the admission policies of the management cluster exist, each with its binding of the same
// name. The manager works without them: a cluster may have others in their place.
type Policies struct {
	live    client.Reader
	names   []string
	missing prometheus.Gauge
}

// NewPolicies returns the metric of the policies with these names. live reads from the API server.
func NewPolicies(live client.Reader, names []string) *Policies {
	return &Policies{live: live, names: names, missing: prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: Namespace,
		Name:      "admission_policies_missing",
		Help:      "ValidatingAdmissionPolicies that the management cluster lacks, or whose bindings it lacks.",
	})}
}

// Register adds the metric to the metrics that the manager serves, and starts the checks.
func (p *Policies) Register(_ context.Context, mgr manager.Manager) error {
	if err := ctrlmetrics.Registry.Register(p.missing); err != nil {
		return fmt.Errorf("registering the metric of admission policies, %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		wait.UntilWithContext(ctx, p.look, policyInterval)
		return nil
	}))
}

func (p *Policies) look(ctx context.Context) {
	missing := sets.New[string]()
	for _, gap := range policy.Gaps(ctx, p.live, p.names) {
		missing.Insert(gap.Name)
		log.FromContext(ctx).Error(gap.Err,
			"An admission policy is missing: without it, the token of a tenant's provider can write what only the "+
				"manager may. Install it with the chart (policies.enabled), or from config/policy", "kind", gap.Kind, "name", gap.Name)
	}
	p.missing.Set(float64(missing.Len()))
}
