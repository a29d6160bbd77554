// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"

// unasked returns an accelerator of the type, a resource or the driver of devices, if the request asks for none that the
// type has. It is empty if the type has none at all, or if the request asks for one of them.
func (t *nodeType) unasked(request Request) string {
	switch {
	case v1alpha1.AsksForAccelerator(request.Resources, t.profile.Resources), v1alpha1.AsksForDriver(request.Drivers, t.profile.Drivers):
		return ""
	case len(t.accelerators) > 0:
		return string(t.accelerators[0])
	case len(t.profile.Drivers) > 0:
		return "devices of " + t.profile.Drivers[0]
	}
	return ""
}
