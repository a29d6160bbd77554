// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// policyInterval is how often it is looked whether the admission policies are there.
const policyInterval = 10 * time.Minute

// Policies looks whether the admission policies of the management cluster exist, each with its binding of the same name. The manager
// works without them: a cluster may have others in their place.
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

// Register adds the metric to those that the manager serves, and looks at start and from then on.
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
	missing := 0
	for _, name := range p.names {
		there := true
		for kind, object := range map[string]client.Object{
			"ValidatingAdmissionPolicy":        &admissionregistrationv1.ValidatingAdmissionPolicy{},
			"ValidatingAdmissionPolicyBinding": &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		} {
			found, err := controllers.Find(ctx, p.live, client.ObjectKey{Name: name}, object)
			if err != nil || !found {
				there = false
				log.FromContext(ctx).Error(err, "An admission policy is missing: without it, the token of a tenant's provider can write what only the "+
					"manager may. Install it with the chart (policies.enabled), or from config/policy", "kind", kind, "name", name)
			}
		}
		if !there {
			missing++
		}
	}
	p.missing.Set(float64(missing))
}
