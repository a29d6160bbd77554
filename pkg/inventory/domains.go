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

// place stands for the hosts of a namespace with one value of a label.
type place struct{ namespace, key, value string }

// domain is a place whose servers are for one tenant at a time. It exists while it has hosts.
type domain struct {
	place
	hosts map[*host]struct{}
	// holders counts the hosts of each tenant. A host that belongs to no tenant is not counted.
	holders map[string]int
	// free is the number of hosts that can be claimed.
	free int
}

// unknownHolder is the holder of a host that is in use by somebody unknown. No namespace has this name.
const unknownHolder = "?"

// holderOf returns the namespace that a host belongs to in its domains, empty for none, and whether it belongs there
// only because it was not cleaned. A server that was claimed by others than our Machines belongs to their namespace.
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

// holder returns the tenant that the host belongs to now, empty if none.
func (h *host) holder() string {
	switch {
	case h.assumedBy != "":
		return cmp.Or(h.assumedFor, unknownHolder)
	case h.uncleaned && h.anyTenant:
		return "" // the operator says that no data of its last tenant is left
	}
	return h.heldBy
}

// isOpen reports whether a tenant may have servers in all of the domains.
func isOpen(domains []*domain, tenant string) bool {
	return !slices.ContainsFunc(domains, func(d *domain) bool { return !d.isOpen(tenant) })
}

// isOpen reports whether no other tenant has servers in the domain.
func (d *domain) isOpen(tenant string) bool {
	_, theirs := d.holders[tenant]
	return len(d.holders) == 0 || theirs && len(d.holders) == 1
}

// String names the domain as its label does: "nvlink-domain n1".
func (d *domain) String() string { return d.key + " " + d.value }

// preference orders the buckets that are open to a tenant, least first: servers in its own domains, the fullest domain
// first; servers in no domain; servers in the domain with most free servers, so that the tenant has room to grow.
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

// closedTo names the domains that a tenant may have no servers in. It is empty if there are none.
func closedTo(domains []*domain, tenant string) string {
	var closed []string
	for _, d := range domains {
		if !d.isOpen(tenant) {
			closed = append(closed, d.String())
		}
	}
	return strings.Join(closed, " and ")
}

// inClosedDomain ends a sentence about a server. It does not name the tenant of the domain: other tenants read it.
func inClosedDomain(closed string) string {
	return "is in " + closed + ", which is for another tenant until its last server there is released and clean"
}

// join puts a host, which matches known types, into its domains. From here on, the caller must hold the lock.
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

// standing is a host's share in the counts of its domains.
type standing struct {
	holder string
	free   int
}

func (h *host) standing() standing { return standing{h.holder(), int(h.counts().Available)} }

// stands replaces a host's share in its domains. If a tenant comes or goes, all types of their hosts change.
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

// count adds a difference to a holder's hosts, and reports whether the holder comes or goes.
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

// exclude adds a type that gives each domain of some labels in its namespace to one tenant, or removes it.
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

// Hold makes sure that a chosen host is in no domain of another tenant while the Machine claims it, and says why it
// cannot. If the host was chosen before this process started, or before it was labelled, it is assumed from now on.
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

// Opens returns the domains where the tenant of a choice would get its first server.
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

// freeAs counts the hosts of the domain that the tenant of a choice could have as the chosen type.
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

// SharedDomain is a domain for one tenant in which several tenants have servers.
type SharedDomain struct {
	Key, Value string
	// Tenants are the namespaces, sorted. For operators only.
	Tenants []string
}

// String names the domain and the number of its namespaces, for everybody.
func (d SharedDomain) String() string {
	return fmt.Sprintf("%s %s has servers of %d namespaces", d.Key, d.Value, len(d.Tenants))
}

// SharedDomains returns the shared domains of a namespace's hosts by these labels, sorted.
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

// Inherits reports whether nodes inherit a label of hosts.
func (i *Inventory) Inherits(label string) bool { return len(i.topology.Inherited(label)) > 0 }

// heldKeys returns the node labels of the domains that tenants hold now, or the host label if nodes do not inherit it.
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
