// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/ipam"
)

// Addresses gives out addresses. ipam.Allocator is the one.
type Addresses interface {
	// Ensure gives the Machine an address of the pool, or the one that it has. The error is an *ipam.ExhaustedError if
	// there is none left.
	Ensure(ctx context.Context, machine v1alpha1.MachineReference, pool ipam.Pool) (ipam.Allocation, error)
	// Release takes back every address of the Machine.
	Release(ctx context.Context, machine v1alpha1.MachineReference) error
}

// Address is what a server is to be reached at.
type Address struct {
	ipam.Allocation
	// DNS servers, in the order in which they are asked; may be empty.
	DNS []netip.Addr
}

func (o owner) machineReference() v1alpha1.MachineReference {
	return v1alpha1.MachineReference{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// addressesOf are the addresses that a host of ours has been given, as its annotations say.
func addressesOf(host *bmov1alpha1.BareMetalHost) []corev1.NodeAddress {
	if _, ours := host.Annotations[v1alpha1.SavedNetworkAnnotationKey]; !ours {
		return nil
	}
	prefix, err := netip.ParsePrefix(host.Annotations[v1alpha1.IPAddressAnnotationKey])
	if err != nil {
		return nil // somebody else has written it
	}
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: prefix.Addr().String()}}
}

// hostsPerPage bounds what one answer of the API server holds.
const hostsPerPage = 500

// HoldsServer returns the test for ipam.Sweep: whether a server still has a Machine for its consumer, so that its
// address may still be in use. It reads all hosts, past every cache, which is why it is for Machines that have been
// deleted by force and for nothing else.
func HoldsServer(live client.Reader) ipam.InUse {
	return func(ctx context.Context, machine v1alpha1.MachineReference) (bool, error) {
		page := &bmov1alpha1.BareMetalHostList{}
		for {
			if err := live.List(ctx, page, client.Limit(hostsPerPage), client.Continue(page.Continue)); err != nil {
				return false, fmt.Errorf("looking for a server of Machine %s/%s, %w", machine.Namespace, machine.Name, err)
			}
			for i := range page.Items {
				if consumer, ours := consumerOf(&page.Items[i]); ours && consumer.UID == machine.UID {
					return true, nil
				}
			}
			if page.Continue == "" {
				return false, nil
			}
		}
	}
}
