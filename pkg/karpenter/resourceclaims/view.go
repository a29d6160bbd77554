// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaims changes what Karpenter's core reads of Dynamic Resource Allocation. It changes allocated
// resource claims, so that core schedules pods which share one. It also changes pods that ask for devices by an
// extended resource, so that core plans them with the claim that kube-scheduler will make (extended.go).
//
// Core v1.15.0 plans an administrator's access as if it took a device, and compares a requested capacity with shared
// devices only (Accesses, Requests). With allocated claims it has two bugs. First, it looks only at labels for the node
// of a claim's devices, while the scheduler names the node by a field: a pod that shares a claim with a running one
// would get a new server, which it cannot use. Second, when several pods that share a claim leave a node together, core
// allocates devices to that claim twice, and panics. Until they have gone, no pod of the tenant gets a server.
package resourceclaims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Node returns the name of the node that has the devices of an allocated claim, "" if there is none or more than one.
func Node(claim *resourcev1.ResourceClaim) string {
	allocation := claim.Status.Allocation
	if allocation == nil || allocation.NodeSelector == nil || len(allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, field := range allocation.NodeSelector.NodeSelectorTerms[0].MatchFields {
		if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
			return field.Values[0]
		}
	}
	return ""
}

// View changes an allocated claim for core to read. deleting says whether its node is being deleted.
func View(claim *resourcev1.ResourceClaim, deleting bool) {
	if len(claim.Status.ReservedFor) > 1 {
		if deleting {
			// As if not allocated: the first of its pods that core schedules allocates it, and the others follow.
			claim.Status.Allocation, claim.Status.ReservedFor = nil, nil
			return
		}
		// Core does not release a claim that a consumer other than a pod has reserved. In a simulation of disruption it then
		// finds that the pods cannot leave the node, and does not disrupt it.
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			APIGroup: resourcev1.GroupName, Resource: "resourceclaims", Name: claim.Name, UID: claim.UID,
		})
	}
	// New servers have no name yet, so none of them meets this requirement.
	if node := Node(claim); node != "" {
		term := &claim.Status.Allocation.NodeSelector.NodeSelectorTerms[0]
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		})
	}
}

// Claims applies View, Requests and Accesses to the claims that core gets. nodes reads the nodes of allocated claims.
func Claims(nodes client.Reader) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, claim *resourcev1.ResourceClaim, opts []client.GetOption) error {
		Accesses(claim)
		// With options, core reads claims without a copy, to track allocated devices. It needs them unchanged.
		if len(opts) > 0 {
			return nil
		}
		Requests(claim)
		if claim.Status.Allocation == nil {
			return nil
		}
		deleting, err := isDeleting(ctx, nodes, Node(claim))
		if err != nil {
			return err
		}
		View(claim, deleting)
		return nil
	})
}

// ListedClaims applies Accesses to the claims that core lists.
func ListedClaims() interceptor.Interceptor {
	return interceptor.OnList(func(_ context.Context, claims *resourcev1.ResourceClaimList, _ []client.ListOption) error {
		for i := range claims.Items {
			Accesses(&claims.Items[i])
		}
		return nil
	})
}

// Accesses removes the requests and results with adminAccess from a claim. Such a request takes no device from others,
// but core plans it like any other. The cache may own the objects that the claim points to, so Accesses replaces them.
func Accesses(claim *resourcev1.ResourceClaim) {
	removed := map[string]bool{}
	for _, request := range claim.Spec.Devices.Requests {
		if request.Exactly != nil && ptr.Deref(request.Exactly.AdminAccess, false) {
			removed[request.Name] = true
		}
	}
	if len(removed) > 0 {
		claim.Spec.Devices.Requests = lo.Reject(claim.Spec.Devices.Requests, func(request resourcev1.DeviceRequest, _ int) bool {
			return removed[request.Name]
		})
		claim.Spec.Devices.Constraints = lo.FilterMap(claim.Spec.Devices.Constraints,
			func(constraint resourcev1.DeviceConstraint, _ int) (resourcev1.DeviceConstraint, bool) {
				left := lo.Reject(constraint.Requests, func(name string, _ int) bool { return removed[name] })
				concerns := len(constraint.Requests) == 0 || len(left) > 0 // without names it is about all requests
				constraint.Requests = left
				return constraint, concerns
			})
	}
	if allocation := claim.Status.Allocation; allocation != nil {
		changed := *allocation
		changed.Devices.Results = lo.Reject(allocation.Devices.Results, func(result resourcev1.DeviceRequestAllocationResult, _ int) bool {
			return ptr.Deref(result.AdminAccess, false)
		})
		claim.Status.Allocation = &changed
	}
}

// Requests adds a selector for each capacity that a claim requests. Core compares a capacity with shared devices only,
// but kube-scheduler gives out no device that has less. The cache may own the objects that the claim points to, so
// Requests replaces them.
func Requests(claim *resourcev1.ResourceClaim) {
	requests := slices.Clone(claim.Spec.Devices.Requests)
	for i := range requests {
		if exactly := requests[i].Exactly; exactly != nil {
			changed := *exactly
			changed.Selectors = withCapacity(changed.Selectors, changed.Capacity)
			requests[i].Exactly = &changed
		}
		requests[i].FirstAvailable = slices.Clone(requests[i].FirstAvailable)
		for j := range requests[i].FirstAvailable {
			alternative := &requests[i].FirstAvailable[j]
			alternative.Selectors = withCapacity(alternative.Selectors, alternative.Capacity)
		}
	}
	claim.Spec.Devices.Requests = requests
}

// withCapacity returns the selectors plus one for each requested capacity. Without a domain, a capacity is in the
// driver's.
func withCapacity(selectors []resourcev1.DeviceSelector, requested *resourcev1.CapacityRequirements) []resourcev1.DeviceSelector {
	if requested == nil {
		return selectors
	}
	selectors = slices.Clone(selectors)
	for _, name := range slices.Sorted(maps.Keys(requested.Requests)) {
		quantity, domain := requested.Requests[name], "device.driver"
		id := string(name)
		if given, rest, qualified := strings.Cut(id, "/"); qualified {
			domain, id = fmt.Sprintf("%q", given), rest
		}
		selectors = append(selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.capacity[%s].%s.compareTo(quantity(%q)) >= 0", domain, id, quantity.String()),
		}})
	}
	return selectors
}

// isDeleting reports whether a node is being deleted or does not exist. It is false without a name.
func isDeleting(ctx context.Context, nodes client.Reader, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	found, err := kube.Find(ctx, nodes, client.ObjectKey{Name: name}, node)
	return err == nil && (!found || !node.DeletionTimestamp.IsZero()), err
}
