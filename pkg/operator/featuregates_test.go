// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestFeatureGates(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, flag, environment string
		alpha, beta               bool
		problem                   string
	}{
		"Default":     {reason: "what is alpha is off", beta: true},
		"Flag":        {reason: "each by its name", flag: "Young=true,Old=false", alpha: true},
		"Environment": {reason: "as for every flag", environment: "Young=true", alpha: true, beta: true},
		"Unknown":     {reason: "the error says what there is", flag: "Yuong=true", problem: "Yuong; there are"},
		"NoValue":     {reason: "a name says nothing", flag: "Young", problem: "missing bool value for Young"},
	} {
		t.Run(name, func(t *testing.T) {
			gates, err := NewFeatureGates(map[featuregate.Feature]featuregate.FeatureSpec{
				"Young": {PreRelease: featuregate.Alpha}, "Old": {Default: true, PreRelease: featuregate.Beta},
			})
			if err != nil {
				t.Fatal(err)
			}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			gates.AddFlag(flags)
			var args []string
			if tc.flag != "" {
				args = []string{"--feature-gates=" + tc.flag}
			}
			err = flags.Parse(args)
			if err == nil {
				err = FromEnvironment(flags, func(name string) (string, bool) { return tc.environment, name == "KARPENTER_METAL3_FEATURE_GATES" })
			}
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) || !strings.Contains(err.Error(), "Young=true|false (ALPHA") {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if alpha, beta := gates.Enabled("Young"), gates.Enabled("Old"); alpha != tc.alpha || beta != tc.beta {
				t.Errorf("%s: Young is %v, Old %v", tc.reason, alpha, beta)
			}
			if set := tc.flag+tc.environment != ""; gates.IsSet() != set {
				t.Errorf("%s: IsSet is %v", tc.reason, gates.IsSet())
			}
		})
	}
}

// TestFeatureMetric: the metric of component-base is served with ours.
func TestFeatureMetric(t *testing.T) {
	gates, err := NewFeatureGates(map[featuregate.Feature]featuregate.FeatureSpec{
		"Young": {PreRelease: featuregate.Alpha}, "Old": {Default: true, PreRelease: featuregate.Beta},
	})
	if err != nil {
		t.Fatal(err)
	}
	gates.Record()
	want := `
# HELP kubernetes_feature_enabled Feature gates with their stage: 1 if on, 0 if off.
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="AllAlpha",stage="ALPHA"} 0
kubernetes_feature_enabled{name="AllBeta",stage="BETA"} 0
kubernetes_feature_enabled{name="Old",stage="BETA"} 1
kubernetes_feature_enabled{name="Young",stage="ALPHA"} 0
`
	if err := testutil.GatherAndCompare(metrics.Registry, strings.NewReader(want), "kubernetes_feature_enabled"); err != nil {
		t.Error(err)
	}
}
