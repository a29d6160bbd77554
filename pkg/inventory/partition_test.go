// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestCountsAddUp: whatever is the matter with hosts at once, a sentence about them counts each once, also one that is written from the
// status of the NodeType alone.
func TestCountsAddUp(t *testing.T) {
	troubles := []struct {
		name  string
		cause func(*bmov1alpha1.BareMetalHost)
	}{
		{"claimed", func(host *bmov1alpha1.BareMetalHost) {
			host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Other", Name: "x"}
		}},
		{"error", func(host *bmov1alpha1.BareMetalHost) { host.Status.ErrorType = bmov1alpha1.ProvisioningError }},
		{"quarantined", func(host *bmov1alpha1.BareMetalHost) { host.Annotations[v1alpha1.QuarantinedAnnotationKey] = "" }},
		{"maintenance", func(host *bmov1alpha1.BareMetalHost) { host.Annotations[v1alpha1.MaintenanceAnnotationKey] = "" }},
		{"paused", func(host *bmov1alpha1.BareMetalHost) { host.Annotations[bmov1alpha1.PausedAnnotation] = "" }},
		{"not cleaned", func(host *bmov1alpha1.BareMetalHost) {
			host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
		}},
		{"too small", func(host *bmov1alpha1.BareMetalHost) { host.Status.HardwareDetails.CPU.Count = 64 }},
	}
	all := NewInventory(Options{})
	profile := Profile{Name: "gpu", Namespace: "metal3", Selector: labels.Everything(), Resources: list("cpu", "96")}
	all.SetType(profile)
	check := func(what string, inventory *Inventory) {
		t.Helper()
		summary, _ := inventory.Summary("gpu")
		notReady := max(0, capacity.Rest(summary.Capacity)-summary.Capacity.TooSmall) // as pkg/explain has it
		for _, sentence := range []string{summary.Counts().String(), capacity.Describe(summary.Capacity, 0, notReady, "")} {
			var numbers []int
			for _, text := range regexp.MustCompile(`\(.*?\)|\d+`).FindAllString(sentence, -1) {
				if number, err := strconv.Atoi(text); err == nil { // and not in brackets
					numbers = append(numbers, number)
				}
			}
			sum := int(summary.Capacity.Available)
			for _, number := range numbers[1:] {
				sum += number
			}
			if sum != numbers[0] {
				t.Errorf("%s: %q and %d available: that is %d", what, sentence, summary.Capacity.Available, sum)
			}
		}
	}
	for mixture := range 1 << len(troubles) {
		host := env.AvailableHost("metal3", fmt.Sprint("server-", mixture), nil)
		host.Annotations, host.Status.HardwareDetails.CPU.Count = map[string]string{}, 96
		what := ""
		for i, trouble := range troubles {
			if mixture&(1<<i) != 0 {
				trouble.cause(host)
				what += trouble.name + " "
			}
		}
		single := NewInventory(Options{})
		single.SetType(profile)
		single.SetHost(host)
		check(what, single)
		all.SetHost(host)
	}
	check("all together", all)
}

// TestMaintenanceIsCounted: a server in maintenance is no server that is not ready.
func TestMaintenanceIsCounted(t *testing.T) {
	inventory := NewInventory(Options{})
	inventory.SetType(Profile{Name: "gpu", Namespace: "metal3", Selector: labels.Everything()})
	host := env.AvailableHost("metal3", "server-01", nil)
	host.Annotations = map[string]string{v1alpha1.MaintenanceAnnotationKey: "DIMM"}
	inventory.SetHost(host)
	summary, _ := inventory.Summary("gpu")
	if got, want := summary.Counts().String(), "1 server matches, 0 claimed, 0 in error, 1 in maintenance"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
