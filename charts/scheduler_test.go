// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/yaml"
)

// TestDefaultConstraints: the provider plans with the constraints that the scheduler is told, by Karpenter's own reading of them.
func TestDefaultConstraints(t *testing.T) {
	want := []corev1.TopologySpreadConstraint{{TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule}}

	objects := render(t, Tenant, releases["tenant-management-all"].flags...)
	flags := 0
	for _, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
		for _, argument := range deployment.Spec.Template.Spec.Containers[0].Args {
			document, is := strings.CutPrefix(argument, "--scheduler-config=")
			if !is {
				continue
			}
			flags++
			got, err := karpenteroptions.ParseSchedulerConfiguration(document)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.PodTopologySpread.DefaultConstraints); diff != "" {
				t.Errorf("constraints of the provider (-want +got):\n%s", diff)
			}
		}
	}
	if flags != 1 {
		t.Errorf("the provider has %d flags --scheduler-config, want 1", flags)
	}

	objects = render(t, Tenant, releases["tenant-tenant-all"].flags...)
	content := ofKind[corev1.ConfigMap](t, objects, "ConfigMap")["karpenter-metal3-scheduler-config"].Data["config.yaml"]
	configuration, arguments := &configv1.KubeSchedulerConfiguration{}, &configv1.PodTopologySpreadArgs{}
	if err := yaml.UnmarshalStrict([]byte(content), configuration); err != nil {
		t.Fatal(err)
	}
	for _, plugin := range configuration.Profiles[0].PluginConfig {
		if plugin.Name == "PodTopologySpread" {
			if err := yaml.UnmarshalStrict(plugin.Args.Raw, arguments); err != nil {
				t.Fatal(err)
			}
		}
	}
	if arguments.DefaultingType != configv1.ListDefaulting {
		t.Errorf("the scheduler's defaultingType is %q: with any other than List it does not read the constraints", arguments.DefaultingType)
	}
	if diff := cmp.Diff(want, arguments.DefaultConstraints); diff != "" {
		t.Errorf("constraints of the scheduler (-want +got):\n%s", diff)
	}
}
