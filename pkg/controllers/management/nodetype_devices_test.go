// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestInvalidDevices: what the schema lets pass and no driver could publish is said on the NodeType, and no
// server of it is given away.
func TestInvalidDevices(t *testing.T) {
	f := newFleet(t, func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.Devices = []v1alpha1.NodeTypeDevice{{
			Driver: "gpu.example.com", Count: 8,
			Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"driverVersion": {Version: ptr.To("newest")}},
		}}
	})
	f.host("server-01")
	f.start()
	f.eventually("the reason is said", v1alpha1.Capacity{}, v1alpha1.ReasonInvalidDevices, v1alpha1.ReasonInvalidDevices,
		`devices[0].attributes["driverVersion"].version: Invalid value: "newest": is not a semantic version (No Major.Minor.Patch elements `+
			`found): write it like 1.2.3, or use string`)

	f.edit(func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.Devices[0].Attributes["driverVersion"] = v1alpha1.NodeTypeDeviceAttribute{Version: ptr.To("570.1.0")}
	})
	got := f.eventually("it is mended", v1alpha1.Capacity{Total: 1, Available: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"1 server matches, 0 claimed, 0 in error, 1 available")
	if want := "nvidia.com/gpu=8, gpu.example.com=8"; got.Status.Accelerators != want {
		t.Errorf("kubectl shows the accelerators %q, want %q", got.Status.Accelerators, want)
	}
}
