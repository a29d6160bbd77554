// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
)

// Classes are the names of all device classes that a claim asks for, be it exactly or as an alternative, sorted.
func Classes(spec *resourcev1.ResourceClaimSpec) []string {
	var names []string
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil {
			names = append(names, request.Exactly.DeviceClassName)
		}
		for j := range request.FirstAvailable {
			names = append(names, request.FirstAvailable[j].DeviceClassName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ForHost returns the spec of a tenant's claim for the host: without admin access, which gives devices that others use.
// The namespace of the tenant's copies may be labelled for it; the tenant must not have it all the same.
func ForHost(spec *resourcev1.ResourceClaimSpec) resourcev1.ResourceClaimSpec {
	result := *spec.DeepCopy()
	for i := range result.Devices.Requests {
		if exactly := result.Devices.Requests[i].Exactly; exactly != nil {
			exactly.AdminAccess = nil
		}
	}
	return result
}

// WantsAdminAccess tells whether a claim asks for what ForHost removes.
func WantsAdminAccess(spec *resourcev1.ResourceClaimSpec) bool {
	return slices.ContainsFunc(spec.Devices.Requests, func(request resourcev1.DeviceRequest) bool {
		return request.Exactly != nil && request.Exactly.AdminAccess != nil && *request.Exactly.AdminAccess
	})
}
