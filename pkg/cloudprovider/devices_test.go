// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestDriversFor(t *testing.T) {
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	for name, change := range map[string]func(*v1alpha1.NodeType){
		"plain": func(*v1alpha1.NodeType) {},
		"gpu":   func(n *v1alpha1.NodeType) { n.Spec.Resources["nvidia.com/gpu"] = n.Spec.Resources["cpu"] },
		"dra": func(n *v1alpha1.NodeType) {
			n.Spec.Devices = []v1alpha1.NodeTypeDevice{{Driver: "gpu.example.com", Count: 4,
				SharedCounters: []v1alpha1.NodeTypeCounterSet{{Name: "gpu"}}}, {Driver: "nic.example.com", Count: 2}}
		},
	} {
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name}}
		nodeType.Spec.Resources = env.Resources("cpu", "64", "memory", "512Gi")
		nodeType.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: "rack", Values: []string{"r1"}}}
		change(nodeType)
		catalog.Set(nodeType)
	}
	types := catalog.InstanceTypes(instancetypes.NewFilter(nil, nil))
	for name, tc := range map[string]struct {
		reason    string
		annotated string
		types     []string
		static    bool
		want      []string
		awaited   string
	}{
		"no claims": {reason: "most pods have none", types: []string{"plain", "dra"}},
		"claims": {reason: "only Machines with the driver get servers with devices", annotated: "gpu.example.com",
			types: []string{"dra"}, want: []string{"gpu.example.com"}, awaited: "gpu.example.com"},
		"claims of two drivers": {reason: "both are asked for", annotated: "nic.example.com, gpu.example.com", types: []string{"dra"},
			want: []string{"gpu.example.com", "nic.example.com"}, awaited: "gpu.example.com,nic.example.com"},
		"a driver whose devices are apart": {reason: "core would wait for ever for it to publish devices on this node",
			annotated: "gpu.example.com,net.example.com", types: []string{"dra"}, want: []string{"gpu.example.com", "net.example.com"},
			awaited: "gpu.example.com"},
		"static pool of devices": {reason: "its NodeClaims ask for nothing but types", types: []string{"dra"}, static: true,
			want: []string{"gpu.example.com"}},
		"static pool of accelerators": {reason: "that one asks by resource", types: []string{"gpu"}, static: true},
		"static pool of anything": {reason: "a type without accelerators fits too, and is the one to take", types: []string{"dra", "plain"},
			static: true},
	} {
		t.Run(name, func(t *testing.T) {
			nodeClaim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{Requirements: []requirement{
				{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: tc.types},
			}}}
			if tc.annotated != "" {
				nodeClaim.Annotations = map[string]string{karpv1.DRADriversAnnotationKey: tc.annotated}
			}
			if !tc.static {
				nodeClaim.Spec.Resources.Requests = env.Resources("cpu", "1")
			}
			if diff := cmp.Diff(tc.want, driversFor(nodeClaim, types)); diff != "" {
				t.Errorf("%s: drivers of the Machine (-want +got):\n%s", tc.reason, diff)
			}
			instanceType, _ := catalog.InstanceType(tc.types[0])
			if got := awaitedDrivers(nodeClaim, instanceType)[karpv1.DRADriversAnnotationKey]; got != tc.awaited {
				t.Errorf("%s: initialization waits for %q, want %q", tc.reason, got, tc.awaited)
			}
		})
	}
}
