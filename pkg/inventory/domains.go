// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// place is the hosts of a namespace that have one value of a label.
type place struct{ namespace, key, value string }

// domain is a place whose servers are for one tenant at a time. It exists while hosts are there.
type domain struct {
	place
	hosts map[*host]struct{}
	// holders counts the hosts by the tenant that they count as. Hosts of none are not counted.
	holders map[string]int
	// free is how many hosts can be claimed.
	free int
}

// unknownHolder is that of a host that is somebody's, and does not say whose. No namespace has this name.
const unknownHolder = "?"

// holderOf is the namespace that a host counts as in its domains, empty if it is nobody's, and whether that is only because it was not
// cleaned. A server that was claimed by others than our Machines counts as their namespace's.
func holderOf(host *bmov1alpha1.BareMetalHost) (holder string, uncleaned bool) {
	last, used := host.Annotations[v1alpha1.LastTenantAnnotationKey]
	quarantine, _ := QuarantineOf(host)
	switch consumer := host.Spec.ConsumerRef; {
	case consumer != nil:
		return cmp.Or(consumer.Namespace, unknownHolder), false
	case quarantine.Machine.Namespace != "":
		return quarantine.Machine.Namespace, false
	case used:
		return cmp.Or(last, unknownHolder), true
	}
	return "", false
}

// holder is the tenant that the host counts as now, empty if none.
func (h *host) holder() string {
	switch {
	case h.assumedBy != "":
		return cmp.Or(h.assumedFor, unknownHolder)
	case h.uncleaned && h.anyTenant:
		return "" // the operator says that nothing of its last tenant is left
	}
	return h.heldBy
}

// isOpen returns whether a tenant may have servers in all of the domains.
func isOpen(domains []*domain, tenant string) bool {
	return !slices.ContainsFunc(domains, func(d *domain) bool { return !d.isOpen(tenant) })
}

// isOpen returns whether nobody but the tenant has servers in the domain.
func (d *domain) isOpen(tenant string) bool {
	_, theirs := d.holders[tenant]
	return len(d.holders) == 0 || theirs && len(d.holders) == 1
}

// String names the domain as its label does: "nvlink-domain n1".
func (d *domain) String() string { return d.key + " " + d.value }

// preference of a bucket for a tenant that it is open to, the least first: servers where it has some, the fullest of its domains first,
// then those that are in no domain, then those in the domain with most free servers, so that it has room to grow.
func (b *bucket) preference() int {
	if len(b.domains) == 0 {
		return math.MinInt32 / 2
	}
	held, free := math.MaxInt32, math.MaxInt32-1
	for _, d := range b.domains {
		if len(d.holders) > 0 {
			held = min(held, d.free)
		}
		free = min(free, d.free)
	}
	if held < math.MaxInt32 {
		return math.MinInt32 + held
	}
	return -free
}

// closedTo says which domains of a bucket a tenant may have no servers in, and is empty if there are none.
func closedTo(domains []*domain, tenant string) string {
	var closed []string
	for _, d := range domains {
		if !d.isOpen(tenant) {
			closed = append(closed, d.String())
		}
	}
	return strings.Join(closed, " and ")
}

// inClosedDomain ends a sentence about a server. It does not name the tenant that has the domain: other tenants read it.
func inClosedDomain(closed string) string {
	return "is in " + closed + ", which is for another tenant until its last server there is released and clean"
}

// join puts a host, which matches known types, into its domains. The lock must be held, here and in what follows.
func (i *Inventory) join(h *host, changed changed) {
	h.anyTenant = len(h.matches) > 0
	for _, name := range h.matches {
		h.anyTenant = h.anyTenant && i.types[name].profile.AnyTenant
	}
	for _, key := range slices.Sorted(maps.Keys(i.exclusive[h.key.Namespace])) {
		where := place{h.key.Namespace, key, h.labels[key]}
		if where.value == "" {
			continue
		}
		d, known := i.domains[where]
		if !known {
			d = &domain{place: where, hosts: map[*host]struct{}{}, holders: map[string]int{}}
			i.domains[where] = d
		}
		d.hosts[h] = struct{}{}
		h.domains = append(h.domains, d)
	}
	h.stands(standing{}, h.standing(), changed)
}

// leave takes a host out of its domains.
func (i *Inventory) leave(h *host, changed changed) {
	h.stands(h.standing(), standing{}, changed)
	for _, d := range h.domains {
		if delete(d.hosts, h); len(d.hosts) == 0 {
			delete(i.domains, d.place)
		}
	}
	h.domains = nil
}

// standing is what a host adds to its domains.
type standing struct {
	holder string
	free   int
}

func (h *host) standing() standing { return standing{h.holder(), int(h.counts().Available)} }

// stands replaces what a host adds to its domains. If a tenant comes or goes, all types of the hosts there have other servers for others.
func (h *host) stands(before, after standing, changed changed) {
	for _, d := range h.domains {
		d.free += after.free - before.free
		if before.holder == after.holder {
			continue
		}
		gone, came := d.count(before.holder, -1), d.count(after.holder, 1)
		if gone || came {
			for other := range d.hosts {
				for _, name := range other.matches {
					changed.add(name)
				}
			}
		}
	}
}

// count counts one host of a holder more or less, and returns whether the holder comes or goes.
func (d *domain) count(holder string, difference int) (moves bool) {
	if holder == "" {
		return false
	}
	before := d.holders[holder]
	if d.holders[holder] = before + difference; d.holders[holder] == 0 {
		delete(d.holders, holder)
	}
	return before == 0 || before+difference == 0
}

// exclude has the domains of labels be for one tenant each in a namespace, or no more, for one type.
func (i *Inventory) exclude(profile Profile, difference int, changed changed) {
	keys := i.exclusive[profile.Namespace]
	if keys == nil {
		keys = map[string]int{}
		i.exclusive[profile.Namespace] = keys
	}
	before := len(keys)
	for _, key := range profile.Exclusive {
		if keys[key] += difference; keys[key] == 0 {
			delete(keys, key)
		}
	}
	if len(keys) == before { // each call only adds or only takes away
		return
	}
	for _, h := range i.hosts {
		if h.key.Namespace == profile.Namespace {
			i.fill(h, i.empty(h, changed), changed)
		}
	}
}

// Hold makes sure that a host, which has been chosen for a Machine, is in no domain of another tenant while that claims it, and says why
// it cannot. A Machine that chose it before this process, or before the host was labelled, has it assumed from now on.
func (i *Inventory) Hold(choice Choice, machine types.UID) (refused string) {
	i.update(func(changed changed) {
		h := i.hosts[types.NamespacedName{Namespace: choice.Host.Namespace, Name: choice.Host.Name}]
		switch {
		case h == nil || h.uid != choice.Host.UID || len(h.domains) == 0,
			h.eligibility.Claimed && h.heldBy == choice.Tenant: // by this Machine already, or the claim fails
		case !isOpen(h.domains, choice.Tenant):
			refused = inClosedDomain(closedTo(h.domains, choice.Tenant))
		case h.assumedBy == "":
			i.change(h, changed, func() { i.reserve(h, choice, machine) })
		case h.assumedBy != machine:
			refused = "is being claimed by another Machine"
		}
	})
	return refused
}

// Opens returns the domains in which the tenant of a choice would get its first server.
func (i *Inventory) Opens(choice Choice) (openings []quota.Opening) {
	i.lock.Lock()
	defer i.lock.Unlock()
	h := i.hosts[types.NamespacedName{Namespace: choice.Host.Namespace, Name: choice.Host.Name}]
	if h == nil {
		return nil
	}
	for _, d := range h.domains {
		if d.holders[choice.Tenant] > 0 {
			continue
		}
		opening := quota.Opening{Label: d.key, Value: d.value}
		for where, other := range i.domains {
			if where.namespace == d.namespace && where.key == d.key && other.holders[choice.Tenant] > 0 {
				opening.Held, opening.Free = append(opening.Held, where.value), opening.Free+other.freeAs(choice)
			}
		}
		slices.Sort(opening.Held)
		openings = append(openings, opening)
	}
	return openings
}

// freeAs counts the hosts of the domain that the tenant of a choice could have as the type that was chosen.
func (d *domain) freeAs(choice Choice) (count int) {
	for h := range d.hosts {
		if _, member := h.buckets[choice.NodeType]; member && isOpen(h.domains, choice.Tenant) {
			tenant, free := h.freeFor(h.countedAs(choice.NodeType, h.counts()))
			if free && (tenant == "" || tenant == choice.Tenant) {
				count++
			}
		}
	}
	return count
}

// SharedDomain is a domain whose servers are for one tenant each by now, and several have some.
type SharedDomain struct {
	Key, Value string
	// Tenants are the namespaces, sorted. For operators only.
	Tenants []string
}

// String names the domain and how many share it, for everybody.
func (d SharedDomain) String() string {
	return fmt.Sprintf("%s %s has servers of %d namespaces", d.Key, d.Value, len(d.Tenants))
}

// SharedDomains are those among the hosts of a namespace, by these labels, sorted.
func (i *Inventory) SharedDomains(namespace string, keys []string) (shared []SharedDomain) {
	i.lock.Lock()
	defer i.lock.Unlock()
	for where, d := range i.domains {
		if where.namespace == namespace && slices.Contains(keys, where.key) && len(d.holders) > 1 {
			shared = append(shared, SharedDomain{where.key, where.value, slices.Sorted(maps.Keys(d.holders))})
		}
	}
	slices.SortFunc(shared, func(a, b SharedDomain) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value))
	})
	return shared
}

// Inherits returns whether nodes inherit a label of hosts.
func (i *Inventory) Inherits(label string) bool { return len(i.topology.Inherited(label)) > 0 }

// heldKeys are the labels of nodes by which domains are held by a tenant now; that of the hosts if nodes do not inherit it.
func heldKeys(domains []*domain, mapping topology.Mapping) (held []string) {
	for _, d := range domains {
		switch inherited := mapping.Inherited(d.key); {
		case len(d.holders) == 0:
		case len(inherited) > 0:
			held = append(held, inherited...)
		default:
			held = append(held, d.key)
		}
	}
	slices.Sort(held)
	return slices.Compact(held)
}
