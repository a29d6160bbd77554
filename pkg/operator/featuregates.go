// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// featureGatesFlag is the flag. EnvName derives its environment variable.
const featureGatesFlag = "feature-gates"

// featureEnabled is component-base's metric in a registry that controller-runtime serves.
var featureEnabled = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubernetes_feature_enabled", Help: "Feature gates with their stage: 1 if on, 0 if off.",
}, []string{"name", "stage"})

func init() { metrics.Registry.MustRegister(featureEnabled) }

// FeatureGates switch the unstable features of a program. They build on the gates of component-base.
type FeatureGates struct {
	gates
	set bool
}

type gates interface {
	featuregate.MutableFeatureGate
	pflag.Value
}

// NewFeatureGates returns the gates of a program. An error is a fault of the program itself.
func NewFeatureGates(known map[featuregate.Feature]featuregate.FeatureSpec) (*FeatureGates, error) {
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(known); err != nil {
		return nil, fmt.Errorf("adding feature gates, %w", err)
	}
	return &FeatureGates{gates: gates}, nil
}

// AddFlag adds --feature-gates, and lists the gates in its help.
func (g *FeatureGates) AddFlag(flags *pflag.FlagSet) {
	flags.Var(g, featureGatesFlag, "What is not stable, as NAME=true or NAME=false, separated by commas. There are:\n"+
		strings.Join(g.KnownFeatures(), "\n"))
}

// IsSet reports whether any gate has been set.
func (g *FeatureGates) IsSet() bool { return g.set }

// Record sets the metric of each gate.
func (g *FeatureGates) Record() {
	for feature, spec := range g.GetAll() {
		value := 0.0
		if g.Enabled(feature) {
			value = 1
		}
		featureEnabled.WithLabelValues(string(feature), string(spec.PreRelease)).Set(value)
	}
}

// Set implements pflag.Value. Its error names the known gates.
func (g *FeatureGates) Set(text string) error {
	g.set = true
	if err := g.gates.Set(text); err != nil {
		return fmt.Errorf("%w; there are %s", err, strings.Join(g.KnownFeatures(), ", "))
	}
	return nil
}
