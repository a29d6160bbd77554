// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// inspect gives a server what Metal3's inspection finds of a server that has that many threads and GiB of memory.
func (f *fleet) inspect(host *bmov1alpha1.BareMetalHost, cpus, memory int) {
	f.Helper()
	host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Arch: "x86_64", Count: cpus}, RAMMebibytes: memory << 10}
	if err := environment.Client.Status().Update(f.Context(), host); err != nil {
		f.Fatal(err)
	}
}

// fits returns the condition HardwareFits as it is now.
func (f *fleet) fits() metav1.Condition {
	f.Helper()
	got := &v1alpha1.NodeType{}
	if err := environment.Client.Get(context.Background(), client.ObjectKeyFromObject(f.nodeType), got); err != nil {
		f.Fatal(err)
	}
	if condition := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionHardwareFits); condition != nil {
		return metav1.Condition{Status: condition.Status, Reason: condition.Reason, Message: condition.Message}
	}
	return metav1.Condition{}
}

// Servers for which Metal3 has found less than the type says are not available, and the condition names them.
func TestTooSmallServers(t *testing.T) {
	f := newFleet(t, nil)
	first, second := f.host("server-01"), f.host("server-02")
	f.inspect(first, 96, 768)
	f.start()
	f.eventually("one is big enough, the other has not been inspected", v1alpha1.Capacity{Total: 2, Available: 2}, v1alpha1.ReasonSynced,
		v1alpha1.ReasonAvailable,
		"2 servers match, 0 claimed, 0 in error, 2 available")
	fine := metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBigEnough,
		Message: "no server is known to have less than resources says"}
	if diff := cmp.Diff(fine, f.fits()); diff != "" {
		t.Errorf("HardwareFits (-want +got):\n%s", diff)
	}

	f.inspect(second, 64, 512)
	f.eventually("one is too small", v1alpha1.Capacity{Total: 2, Available: 1, TooSmall: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"2 servers match, 0 claimed, 0 in error, 1 too small, 1 available")
	message := fmt.Sprintf("1 of 2 servers has less than resources says and cannot be claimed as %s: %s/server-02 (cpu 64 of 96, memory "+
		"512Gi of 768Gi): "+
		"correct resources, or the labels of the servers", f.nodeType.Name, f.namespace)
	if diff := cmp.Diff(metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHostsTooSmall, Message: message},
		f.fits()); diff != "" {
		t.Errorf("HardwareFits (-want +got):\n%s", diff)
	}
	if event := <-f.events.Events; event != "Warning HostsTooSmall "+message {
		t.Errorf("event %q", event)
	}

	f.inspect(first, 48, 768)
	got := f.eventually("none is left", v1alpha1.Capacity{Total: 2, TooSmall: 2}, v1alpha1.ReasonSynced, v1alpha1.ReasonExhausted,
		"2 servers match, 0 claimed, 0 in error, 2 too small")
	for _, domain := range got.Status.Domains {
		if domain.Available != 0 || domain.TooSmall != 1 {
			t.Errorf("Karpenter would plan with a server that cannot be claimed: %+v", domain)
		}
	}

	f.edit(func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.Resources["cpu"], nodeType.Spec.Resources["memory"] = resource.MustParse("48"), resource.MustParse("512Gi")
	})
	f.eventually("the type is corrected", v1alpha1.Capacity{Total: 2, Available: 2}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"2 servers match, 0 claimed, 0 in error, 2 available")
	if diff := cmp.Diff(fine, f.fits()); diff != "" {
		t.Errorf("HardwareFits (-want +got):\n%s", diff)
	}
}

// TestDiskOfInspectedServers: a type that names no disk has that of the smallest server that may be claimed as it.
func TestDiskOfInspectedServers(t *testing.T) {
	f := newFleet(t, nil)
	const gib = 1 << 30
	disks := func(cpus int, sizes ...bmov1alpha1.Capacity) *bmov1alpha1.HardwareDetails {
		details := &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Count: cpus}}
		for _, size := range sizes {
			details.Storage = append(details.Storage, bmov1alpha1.Storage{SizeBytes: size * gib})
		}
		return details
	}
	hosts := map[string]*bmov1alpha1.BareMetalHost{}
	found := func(name string, details *bmov1alpha1.HardwareDetails) {
		t.Helper()
		if hosts[name] == nil {
			hosts[name] = f.host(name)
		}
		hosts[name].Status.HardwareDetails = details
		if err := environment.Client.Status().Update(t.Context(), hosts[name]); err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(want, why string) {
		t.Helper()
		poll.Eventually(f, why, func(ctx context.Context) error {
			got := &v1alpha1.NodeType{}
			if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeType), got); err != nil {
				return err
			}
			if got.Status.EphemeralStorage.String() != want {
				return fmt.Errorf("status.ephemeralStorage is %s, want %s", got.Status.EphemeralStorage, want)
			}
			return nil
		})
	}
	f.start()
	eventually("20Gi", "no server has been inspected: the setting")
	found("server-01", disks(96, 1920, 480, 1))
	eventually("432Gi", "the smallest of its disks that Ironic would install on")
	found("server-02", disks(96, 240))
	eventually("216Gi", "the server with less")
	found("server-03", disks(8, 10))
	found("server-02", disks(96, 960))
	eventually("432Gi", "server-03 is too small for the type and not claimed as it; server-02 has a new disk")
}
