// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package karpenter

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestCoreGates: all gates of core are known, with core's default, and switch what they name.
func TestCoreGates(t *testing.T) {
	defaults := reflect.ValueOf(options.DefaultFeatureGates())
	for i := range defaults.NumField() {
		field := defaults.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		spec, known := Features()[featuregate.Feature(field.Name)]
		if !known {
			t.Errorf("core's feature gate %s is not known", field.Name)
			continue
		}
		if field.Name != string(staticCapacity) && spec.Default != defaults.Field(i).Bool() {
			t.Errorf("%s is %v by default, and %v in core", field.Name, spec.Default, defaults.Field(i).Bool())
		}
		gates := reflect.ValueOf(CoreGates(func(feature featuregate.Feature) bool { return string(feature) == field.Name }))
		for j := range gates.NumField() {
			if other := gates.Type().Field(j); other.IsExported() && gates.Field(j).Bool() != (i == j) {
				t.Errorf("with %s alone, %s is %v", field.Name, other.Name, gates.Field(j).Bool())
			}
		}
	}
}

// TestOneRolloutDecides: with all gates on, core's drift does not delete nodes first beside ours.
func TestOneRolloutDecides(t *testing.T) {
	for _, ours := range []bool{true, false} {
		gates := CoreGates(func(feature featuregate.Feature) bool { return ours || feature != RolloutWithoutSpare })
		if gates.TerminateFirstDrift == ours {
			t.Errorf("RolloutWithoutSpare is %v, and TerminateFirstDrift, too", ours)
		}
	}
}

// clientManager is a manager that has a client only.
type clientManager struct {
	manager.Manager
	client.Client
}

func (m clientManager) GetClient() client.Client { return m.Client }

// TestGatedCode: what is off does not run.
func TestGatedCode(t *testing.T) {
	for name, tc := range map[string]struct {
		reason          string
		feature         featuregate.Feature
		gangs, replaced bool
	}{
		"None":    {reason: "core is as it is elsewhere"},
		"Gangs":   {reason: "pods are read with their domain", feature: GangPlacement, gangs: true},
		"Rollout": {reason: "our methods for drift are in core's controller", feature: RolloutWithoutSpare, replaced: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Dependencies{
				Manager: clientManager{Client: fake.NewClientBuilder().WithScheme(env.Scheme()).Build()}, Servers: &cloudprovider.CloudProvider{},
				Management: &cloudprovider.Management{}, Clock: clock.RealClock{}, LaunchTimeout: time.Hour,
				Enabled: func(feature featuregate.Feature) bool { return feature == tc.feature },
			}
			before := &disruption.Controller{}
			core := &Core{Controllers: []controller.Controller{before, &disruption.Queue{}, &lifecycle.Controller{}},
				Provisioner: &provisioning.Provisioner{}}
			without := len((&Core{}).interceptors(Dependencies{Manager: d.Manager, Enabled: func(featuregate.Feature) bool { return false }}, true))
			if got := len(core.interceptors(d, true)) > without; got != tc.gangs || (core.gangs != nil) != tc.gangs {
				t.Errorf("%s: pods are changed: %v", tc.reason, got)
			}
			if shortage := core.Shortage(&corev1.Pod{}); !tc.gangs && shortage != "" {
				t.Errorf("%s: %s", tc.reason, shortage)
			}
			ctx := options.ToContext(context.Background(), &options.Options{IgnoreDRARequests: true})
			if err := core.replaceControllers(ctx, d, d.Manager.GetClient()); err != nil {
				t.Fatal(err)
			}
			if replaced := core.Controllers[0] != controller.Controller(before); replaced != tc.replaced {
				t.Errorf("%s: core's controller is replaced: %v", tc.reason, replaced)
			}
		})
	}
}
