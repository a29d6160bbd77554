// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// ProposedType is a NodeType for servers that match none.
type ProposedType struct {
	// Name is not the name of an existing NodeType.
	Name string
	// Namespace is the namespace of the servers. Providers are the NodeProviders of this namespace; empty if there is
	// none.
	Namespace string
	Providers []*v1alpha1.NodeProvider
	// Hardware describes in words what Metal3 has found.
	Hardware string
	// CPU is the number of threads, and Memory the smallest memory of the servers.
	CPU, Memory *resource.Quantity
	Servers     []string
	// Labels select the servers and no other server of the namespace. If Unlabelled is true, the servers do not have
	// them yet.
	Labels     map[string]string
	Unlabelled bool
	// Shared are the other labels that have one value on all servers.
	Shared map[string]string
}

// ProposedTypes returns NodeTypes for the inspected servers that match none, by namespace and name. It leaves out
// servers that others use. uninspected are the servers without hardware details.
func (f *Fleet) ProposedTypes() (proposed []ProposedType, uninspected []string) {
	groups := map[hardwareGroup][]*bmov1alpha1.BareMetalHost{}
	for _, server := range f.servers {
		host := f.hosts[types.NamespacedName{Namespace: server.Namespace, Name: server.Name}]
		if known, _ := f.inventory.Server(keyOf(host)); len(known.Types) > 0 || known.Eligibility.UsedBy != "" {
			continue
		}
		details := host.Status.HardwareDetails
		if details == nil || details.CPU.Count == 0 || details.RAMMebibytes == 0 {
			uninspected = append(uninspected, server.Namespace+"/"+server.Name)
			continue
		}
		group := groupOf(host)
		groups[group] = append(groups[group], host)
	}
	for group, hosts := range groups {
		slices.SortFunc(hosts, func(a, b *bmov1alpha1.BareMetalHost) int {
			return cmp.Or(a.Status.HardwareDetails.RAMMebibytes-b.Status.HardwareDetails.RAMMebibytes, strings.Compare(a.Name, b.Name))
		})
		for len(hosts) > 0 { // servers with equal memory, within the tolerance of the manager
			least := int64(hosts[0].Status.HardwareDetails.RAMMebibytes) << 20
			end := slices.IndexFunc(hosts, func(host *bmov1alpha1.BareMetalHost) bool {
				return int64(host.Status.HardwareDetails.RAMMebibytes)<<20 > least+capacity.MemoryTolerance(least)
			})
			if end < 0 {
				end = len(hosts)
			}
			proposed = append(proposed, f.propose(group, hosts[:end], least))
			hosts = hosts[end:]
		}
	}
	slices.SortFunc(proposed, func(a, b ProposedType) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Servers[0], b.Servers[0]))
	})
	taken := map[string]bool{}
	for name := range f.nodeTypes {
		taken[name] = true
	}
	for i := range proposed {
		proposal := &proposed[i]
		proposal.Name = unused(proposal.Name, func(name string) bool { return taken[name] })
		taken[proposal.Name] = true
		if proposal.Unlabelled {
			proposal.Labels = map[string]string{f.unusedLabel(proposal.Namespace): proposal.Name}
		}
	}
	slices.Sort(uninspected)
	return proposed, uninspected
}

// unknownVendor describes servers whose vendor and product Metal3 has not found.
const unknownVendor = "of an unknown vendor"

// hardwareGroup is what the servers of a type have in common besides their memory.
type hardwareGroup struct {
	namespace, vendor, product, model, arch string
	cpus                                    int
}

func groupOf(host *bmov1alpha1.BareMetalHost) hardwareGroup {
	details := host.Status.HardwareDetails
	return hardwareGroup{namespace: host.Namespace, vendor: Plain(details.SystemVendor.Manufacturer),
		product: Plain(details.SystemVendor.ProductName), model: Plain(details.CPU.Model), arch: Plain(details.CPU.Arch),
		cpus: details.CPU.Count}
}

func (f *Fleet) propose(group hardwareGroup, hosts []*bmov1alpha1.BareMetalHost, memory int64) ProposedType {
	proposed := ProposedType{Namespace: group.namespace, CPU: resource.NewQuantity(int64(group.cpus), resource.DecimalSI),
		Memory: resource.NewQuantity(memory, resource.BinarySI)}
	for _, name := range slices.Sorted(maps.Keys(f.providers)) {
		if provider := f.providers[name]; provider.Spec.Metal3.ClusterRef.Namespace == group.namespace {
			proposed.Providers = append(proposed.Providers, provider)
		}
	}
	for _, host := range hosts {
		proposed.Servers = append(proposed.Servers, host.Name)
	}
	slices.Sort(proposed.Servers)
	what := []string{cmp.Or(strings.TrimSpace(group.vendor+" "+group.product), unknownVendor)}
	if processor := strings.TrimSpace(group.model + " " + group.arch); processor != "" {
		what = append(what, processor)
	}
	proposed.Hardware = strings.Join(append(what, fmt.Sprintf("%d cpus", group.cpus), proposed.Memory.String()), ", ")
	proposed.Name = fmt.Sprintf("%s-%dcpu-%dgi", slug(cmp.Or(group.product, group.vendor, "server")), group.cpus, memory>>30)
	proposed.Labels, proposed.Shared = f.distinguishingLabels(group.namespace, hosts)
	proposed.Unlabelled = proposed.Labels == nil
	return proposed
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// slug makes a text valid as part of a name, and of the value of a label.
func slug(text string) string {
	text = strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "-"), "-")
	return cmp.Or(strings.TrimRight(text[:min(len(text), 40)], "-"), "server")
}

// distinguishingLabels returns the fewest labels that all the hosts have and that no other host of the namespace has
// together; nil if there are none. It ignores labels for the place of a server. shared are the other labels that all
// the hosts have.
func (f *Fleet) distinguishingLabels(namespace string, hosts []*bmov1alpha1.BareMetalHost) (fewest, shared map[string]string) {
	shared = maps.Clone(hosts[0].Labels)
	place := f.topology.Keys()
	maps.DeleteFunc(shared, func(key, value string) bool {
		return slices.Contains(place, key) || slices.ContainsFunc(hosts, func(host *bmov1alpha1.BareMetalHost) bool {
			other, found := host.Labels[key]
			return !found || other != value
		})
	})
	var others []labels.Set
	for _, host := range f.hosts {
		if host.Namespace == namespace && !slices.Contains(hosts, host) {
			others = append(others, host.Labels)
		}
	}
	distinguishes := func(set map[string]string) bool {
		selector := labels.SelectorFromSet(set)
		return len(set) > 0 && !slices.ContainsFunc(others, func(other labels.Set) bool { return selector.Matches(other) })
	}
	if !distinguishes(shared) {
		return nil, shared
	}
	fewest = maps.Clone(shared)
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(shared))) {
		value := fewest[key]
		if delete(fewest, key); !distinguishes(fewest) {
			fewest[key] = value
		}
	}
	maps.DeleteFunc(shared, func(key, _ string) bool { _, found := fewest[key]; return found })
	return fewest, shared
}

// unusedLabel returns a label that no host of the namespace has.
func (f *Fleet) unusedLabel(namespace string) string {
	return unused("hardware", func(key string) bool {
		for _, host := range f.hosts {
			if _, is := host.Labels[key]; is && host.Namespace == namespace {
				return true
			}
		}
		return false
	})
}

// unused returns the name, or the name with a number if it is taken.
func unused(name string, taken func(string) bool) string {
	free := name
	for number := 2; taken(free); number++ {
		free = fmt.Sprintf("%s-%d", name, number)
	}
	return free
}
