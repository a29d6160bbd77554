// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func (o *options) hostsCommand() *cobra.Command {
	where := view.Filter{}
	command := &cobra.Command{
		Use: "hosts", Short: "List the servers, and what each of them does", Args: cobra.NoArgs,
		Long: "Lists the servers by zone, rack and name, with -n those of one namespace. STATE is available, error, quarantined or\n" +
			"unavailable; for a claimed server it is the phase of its Machine, or claimed if something else uses it. -o wide says why.",
		Example: "  kubectl metal3 hosts --state quarantined -o wide\n  kubectl metal3 hosts --type h100-8x --rack r1\n" +
			"  kubectl metal3 hosts -l type=h100-8x --sort-by .since -o custom-columns=NAME:.metadata.name,STATE:.state,WHY:.why",
		RunE: func(command *cobra.Command, _ []string) error {
			o.servers = true
			return o.list(command.Context(), func(fleet *view.Fleet) listing {
				list := listing{kind: "Server", about: bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), columns: columns("Namespace", "Name",
					"Zone", "Rack", "Types", "State", "Tenant", "Machine", "Claimed", "Node*", "Metal3*", "Why*")}
				for _, server := range o.selectedServers(fleet, where) {
					list.add(server, server.Namespace, server.Name, server.Zone, server.Rack, typesOf(server), string(server.State), server.Tenant,
						server.Machine, age(fleet.Now(), server.Since), server.Node, server.Metal3, server.Why)
				}
				return list
			})
		},
	}
	addFilter(command, &where)
	return o.addList(command)
}

// selectedServers returns the servers that the flags select.
func (o *options) selectedServers(fleet *view.Fleet, where view.Filter) []view.Server {
	return slices.DeleteFunc(fleet.Servers(), func(server view.Server) bool { return !where.Has(server) || !o.output.selects(server.Labels) })
}

func addFilter(command *cobra.Command, where *view.Filter) {
	flags := command.Flags()
	flags.StringVar(&where.State, "state", "", "Only servers in this state, in upper or lower case.")
	flags.StringVar(&where.Type, "type", "", "Only servers that match this NodeType.")
	flags.StringVar(&where.Tenant, "tenant", "", "Only servers of this TenantCluster, by its name or NAMESPACE/NAME.")
	flags.StringVar(&where.Rack, "rack", "", "Only servers of this rack.")
	flags.StringVar(&where.Zone, "zone", "", "Only servers of this zone.")
}

// rack is a line of "fleet".
type rack struct {
	Zone    string             `json:"zone"`
	Rack    string             `json:"rack,omitempty"`
	Servers int                `json:"servers"`
	States  map[view.State]int `json:"states"`
	Tenants []string           `json:"tenants,omitempty"`
}

func (o *options) fleetCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "fleet", Short: "Count the servers of each rack by what they do", Args: cobra.NoArgs,
		Example: "  kubectl metal3 fleet\n  kubectl metal3 fleet -l type=h100-8x --sort-by .servers",
		RunE: func(command *cobra.Command, _ []string) error {
			o.servers = true
			return o.list(command.Context(), func(fleet *view.Fleet) listing {
				list := listing{kind: "Rack", columns: columns("Zone", "Rack", "Servers", "States", "Tenants")}
				for _, rack := range racksOf(o.selectedServers(fleet, view.Filter{})) {
					list.add(rack, rack.Zone, rack.Rack, fmt.Sprint(rack.Servers), countsOf(rack.States), strings.Join(rack.Tenants, ", "))
				}
				return list
			})
		},
	}
	return o.addList(command)
}

// countsOf lists each key with its count.
func countsOf[K ~string, N int | int32](counts map[K]N) string {
	return strings.Join(view.Counted(counts), ", ")
}

// racksOf counts servers by rack. The servers must be sorted by zone and rack.
func racksOf(servers []view.Server) []rack {
	var racks []rack
	for _, server := range servers {
		if last := len(racks) - 1; last < 0 || racks[last].Zone != server.Zone || racks[last].Rack != server.Rack {
			racks = append(racks, rack{Zone: server.Zone, Rack: server.Rack, States: map[view.State]int{}})
		}
		last := &racks[len(racks)-1]
		last.Servers++
		last.States[server.State]++
		if server.Tenant != "" && !slices.Contains(last.Tenants, server.Tenant) {
			last.Tenants = append(last.Tenants, server.Tenant)
		}
	}
	return racks
}

// machineResources are the kinds that a full description of a Machine needs, with the tenant that is charged for it.
var machineResources = []string{"machines", "tenantclusters"}

func (o *options) machinesCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "machines", Short: "List the Machines, and how far each is", Args: cobra.NoArgs,
		Example: "  kubectl metal3 machines -n acme\n  kubectl metal3 machines -A -o wide --sort-by .metadata.creationTimestamp",
		RunE: func(command *cobra.Command, _ []string) error {
			o.scope.Resources = machineResources
			return o.list(command.Context(), func(fleet *view.Fleet) listing {
				list := listing{kind: "Machine", about: v1alpha1.GroupVersion.WithKind("Machine"), columns: columns("Namespace", "Name", "Phase",
					"Type", "Server", "Tenant", "Progress", "Expected", "Drifted", "Age", "Node*", "Message*")}
				for _, machine := range fleet.Machines() {
					if o.output.selects(machine.Labels) {
						list.add(machine, machine.Namespace, machine.Name, string(machine.Phase), machine.NodeType, machine.Server, machine.Tenant,
							machine.Progress, expectedOf(machine, fleet.Now()), machine.Drifted, age(fleet.Now(), &machine.Created), machine.Node,
							machine.Message)
					}
				}
				return list
			})
		},
	}
	return o.addList(command)
}

// expectedOf says when a Machine is expected to have joined, as "in 5m" or "5m ago"; empty if unknown.
func expectedOf(machine view.Machine, now time.Time) string {
	switch {
	case machine.Expected == nil:
		return ""
	case machine.Expected.Time.Before(now):
		return duration.HumanDuration(now.Sub(machine.Expected.Time)) + " ago"
	}
	return "in " + duration.HumanDuration(machine.Expected.Sub(now))
}

func (o *options) capacityCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "capacity", Short: "Show what each NodeType has left, and which tenants have the rest", Args: cobra.NoArgs,
		Example: "  kubectl metal3 capacity",
		RunE: func(command *cobra.Command, _ []string) error {
			return o.list(command.Context(), func(fleet *view.Fleet) listing {
				list := listing{kind: "Capacity", about: v1alpha1.GroupVersion.WithKind("NodeType"), columns: columns("Type", "Accelerators",
					"Total", "Available", "Claimed", "In-Transit", "Error", "Quarantined", "Maintenance", "Not-Ready", "Limit", "Typical", "Tenants",
					"Cost*", "Too-Small*", "Not-Cleaned*")}
				for _, capacity := range fleet.Capacity() {
					if o.output.selects(capacity.Labels) {
						list.add(capacity, capacityCells(capacity)...)
					}
				}
				return list
			})
		},
	}
	return o.addList(command)
}

func capacityCells(capacity view.TypeCapacity) []string {
	limit, typical := "", ""
	if capacity.MaxCapacity != nil {
		limit = fmt.Sprint(*capacity.MaxCapacity)
	}
	if capacity.TypicalSeconds > 0 {
		typical = duration.HumanDuration(time.Duration(capacity.TypicalSeconds) * time.Second)
	}
	return []string{capacity.NodeType, capacity.Accelerators, fmt.Sprint(capacity.Total), fmt.Sprint(capacity.Available),
		fmt.Sprint(capacity.Claimed), fmt.Sprint(capacity.InTransit), fmt.Sprint(capacity.Error), fmt.Sprint(capacity.Quarantined),
		fmt.Sprint(capacity.Maintenance), fmt.Sprint(capacity.NotReady), limit, typical, countsOf(capacity.Tenants),
		fmt.Sprint(capacity.Cost), fmt.Sprint(capacity.TooSmall), fmt.Sprint(capacity.NotCleaned)}
}

func (o *options) tenantsCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "tenants", Short: "List the TenantClusters: what each has, may have and waits for", Args: cobra.NoArgs,
		Long: "Lists all TenantClusters as the management cluster knows them. No tenant's kubeconfig is needed. WAITING are the Machines that\n" +
			"have no server, and IN-TRANSIT the servers that are being installed or given back. -o wide says of which types the servers are,\n" +
			"and what a TenantCluster is stopped by.",
		Example: "  kubectl metal3 tenants\n  kubectl metal3 tenants --sort-by .waiting -o wide",
		RunE: func(command *cobra.Command, _ []string) error {
			o.scope.Resources = append(machineResources, "nodetypes") // for the accelerators
			return o.list(command.Context(), func(fleet *view.Fleet) listing {
				list := listing{kind: "Tenant", about: v1alpha1.GroupVersion.WithKind("TenantCluster"), columns: columns("Namespace", "Name",
					"Servers", "Server-Quota", "Accelerators", "GPU-Quota", "In-Transit", "Waiting", "Ready", "Types*", "Message*")}
				for _, tenant := range fleet.Tenants() {
					if o.output.selects(tenant.Labels) {
						list.add(tenant, tenant.Namespace, tenant.Name, fmt.Sprint(tenant.Servers), number(tenant.Quota.Servers),
							cmp.Or(number(tenant.Accelerators), "?"), number(tenant.Quota.GPUs), fmt.Sprint(tenant.InTransit), fmt.Sprint(tenant.Waiting),
							string(tenant.Ready), strings.Join(tenant.ByType(), ", "), tenant.Message)
					}
				}
				return list
			})
		},
	}
	return o.addList(command)
}

func number(count *int64) string {
	if count == nil {
		return ""
	}
	return fmt.Sprint(*count)
}

// age formats the time since a moment; empty if there is none.
func age(now time.Time, since *metav1.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(since.Time))
}
