// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
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

// networkOf is the network that the server of a Machine is moved into, empty if it stays where it is. Addresses are
// counted by network: two tenants whose networks are apart may use the same ones.
func networkOf(machine *v1alpha1.Machine) string {
	return machine.Annotations[v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)]
}

// overlapping returns which pools give out the same addresses.
func overlapping(pool ipam.Pool, others []string) string {
	return fmt.Sprintf("address pool %s overlaps %s: what one gives out is missing in the other; give them ranges that are apart, or the "+
		"same ones (%s)",
		pool, strings.Join(others, " and "), v1alpha1.PropertyNetworkIPRange)
}

// addressesOf are the addresses that a host of ours has been given, as its annotations say.
func addressesOf(host *bmov1alpha1.BareMetalHost) []corev1.NodeAddress {
	if _, ours := host.Annotations[v1alpha1.SavedNetworkAnnotationKey]; !ours {
		return nil
	}
	prefix, err := netip.ParsePrefix(host.Annotations[v1alpha1.IPAddressAnnotationKey])
	if err != nil {
		return nil // another client has written it
	}
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: prefix.Addr().String()}}
}

// hostsPerPage bounds what one answer of the API server holds.
const hostsPerPage = 500

// HoldsServer returns the test for ipam.Sweep: whether a server still has a Machine for its consumer, so that its
// address may still be in use. It reads all hosts, past every cache, which is why it is for Machines that have been
// deleted by force and for nothing else.
func HoldsServer(live client.Reader) func(context.Context, v1alpha1.MachineReference) (bool, error) {
	return func(ctx context.Context, machine v1alpha1.MachineReference) (bool, error) {
		host, err := findServer(ctx, live,
			owner{NamespacedName: types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name}, UID: machine.UID})
		return host != nil, err
	}
}
