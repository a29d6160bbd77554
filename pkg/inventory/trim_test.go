// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// What the inventory keeps of a host is the same with and without what TrimHost drops.
func TestTrimHost(t *testing.T) {
	full := env.AvailableHost("metal3", "server-01", map[string]string{"rack": "r1"})
	full.Annotations = map[string]string{bmov1alpha1.HardwareDetailsAnnotation: "{}", "keep": "y"}
	full.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{
		Hostname: "h", RAMMebibytes: 1024, CPU: bmov1alpha1.CPU{Arch: "aarch64", Count: 8, Flags: []string{"x"}},
		Storage: []bmov1alpha1.Storage{{Name: "/dev/sda", SizeBytes: 7}, {Name: "/dev/sdb", SizeBytes: 9}},
		NIC:     []bmov1alpha1.NIC{{Name: "eth0", MAC: "00:00:5e:00:53:01", IP: "192.0.2.1", SpeedGbps: 100}},
	}
	trimmed := full.DeepCopy()
	TrimHost(trimmed)

	if diff := cmp.Diff(hardwareOf(full), hardwareOf(trimmed), cmp.AllowUnexported(hardware{})); diff != "" {
		t.Errorf("the size of the host differs (-full +trimmed):\n%s", diff)
	}
	if diff := cmp.Diff(EligibilityOf(full), EligibilityOf(trimmed)); diff != "" {
		t.Errorf("the eligibility of the host differs (-full +trimmed):\n%s", diff)
	}
	want := &bmov1alpha1.HardwareDetails{
		RAMMebibytes: 1024, CPU: bmov1alpha1.CPU{Arch: "aarch64", Count: 8},
		Storage: []bmov1alpha1.Storage{{SizeBytes: 7}, {SizeBytes: 9}},
		NIC:     []bmov1alpha1.NIC{{Name: "eth0", MAC: "00:00:5e:00:53:01"}},
	}
	if diff := cmp.Diff(want, trimmed.Status.HardwareDetails); diff != "" {
		t.Errorf("what is left of the hardware details (-want +got):\n%s", diff)
	}
	alike := full.DeepCopy()
	TrimHost(alike)
	if &alike.Status.HardwareDetails.Storage[0] != &trimmed.Status.HardwareDetails.Storage[0] {
		t.Error("two hosts with the same disks have a list each")
	}
	if len(trimmed.Annotations) != 1 {
		t.Errorf("annotations %v are left, want the one that is not a copy of the hardware details", trimmed.Annotations)
	}
}
