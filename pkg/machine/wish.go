// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/ipam"
)

// need is a kind of thing that Machines wait for. Whatever it is, a change of the objects that Machines refer to wakes
// them too.
type need string

const (
	// nothing: there is a watch for everything that matters to it.
	nothing need = ""
	// aServer: a server of one of some types, or the one that it is pinned to.
	aServer need = "Server"
	// anAddress: one of a pool.
	anAddress need = "Address"
	// allowance: that others of its tenant have less.
	allowance need = "Allowance"
	// correction: that somebody puts right what is wrong.
	correction need = "Correction"
)

// wish is what a Machine waits for. Machines with the same wish can take each other's place. It can be compared.
type wish struct {
	need need
	// types that a server would have to be of, separated by commas; the server that it is pinned to, if it is; and the
	// requirements that its host must meet. With aServer.
	types, server, ofHost string
	// network and pool of the address. With anAddress.
	network, pool string
	// namespace and name of the tenant, and the type that its quota does not allow. With allowance.
	namespace, tenant, nodeType string
	// anotherChoice is true when it would not wait if it were given another server.
	anotherChoice bool
}

func wishForServer(none *hosts.NoHostError) wish {
	return wish{need: aServer, types: strings.Join(none.Awaits, ","), server: none.ServerName, ofHost: none.OfHost}
}

func wishForAddress(pool ipam.Pool) wish {
	return wish{need: anAddress, network: pool.Network(), pool: pool.String()}
}

// servedBy is how many Machines with this wish a gain of the inventory can serve at the most.
func (w wish) servedBy(gain hosts.Gain) (count int) {
	switch {
	case w.need != aServer:
		return 0
	case gain.Profiles:
		return everybody
	case w.server != "":
		if slices.Contains(gain.Servers, w.server) || slices.ContainsFunc(strings.Split(w.types, ","), func(name string) bool { return slices.Contains(gain.Room, name) }) {
			return everybody // one gets it, and the others have another reason why not
		}
		return 0
	}
	for name := range strings.SplitSeq(w.types, ",") {
		count += gain.Types[name]
	}
	return count
}

// servedByAddress is how many Machines with this wish an address of a network that has been freed can serve. Pools may overlap.
func (w wish) servedByAddress(network string) int {
	if w.need == anAddress && w.network == network {
		return 1
	}
	return 0
}

// servedByAllowance is how many Machines with this wish a server less of some tenant of the namespace can serve. Whose
// it was may not be known any more, so that one of each tenant is asked. The
// next is woken when this one has got its server: a server more for one tenant may be several small ones for another.
func (w wish) servedByAllowance(namespace string) int {
	if w.need == allowance && w.namespace == namespace {
		return 1
	}
	return 0
}
