// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

func TestChosenHost(t *testing.T) {
	host := HostReference{Namespace: "metal3", Name: "h1", UID: "1"}
	machine := &Machine{}
	if _, found := machine.Host(); found {
		t.Error("a new Machine has none")
	}
	machine.SetChosenHost(host, "gpu.8x")
	if got, nodeType, found := machine.ChosenHost(); !found || got != host || nodeType != "gpu.8x" {
		t.Errorf("got %v as %q, %t", got, nodeType, found)
	}
	if got, found := machine.Host(); !found || got != host {
		t.Errorf("got %v, %t: it may be claimed", got, found)
	}
	other := HostReference{Namespace: "metal3", Name: "h2", UID: "2"}
	machine.Status.HostRef = &other
	if got, _ := machine.Host(); got != other {
		t.Errorf("got %v, want what the status says", got)
	}
	machine.Annotations[ChosenHostAnnotationKey] = "metal3/h1"
	if _, _, found := machine.ChosenHost(); found {
		t.Error("the value was not written by the manager")
	}
}
