// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// columns are the heads of a table. One that ends with a star is shown with -o wide only.
func columns(heads ...string) []metav1.TableColumnDefinition {
	definitions := make([]metav1.TableColumnDefinition, len(heads))
	for i, head := range heads {
		name, wide := strings.CutSuffix(head, "*")
		definitions[i].Name = name
		if wide {
			definitions[i].Priority = 1
		}
	}
	return definitions
}

// print writes items as -o says. The rows are those of the table, and the names those of -o name.
func (o *options) print(items any, columns []metav1.TableColumnDefinition, rows [][]string, names []string) error {
	switch o.output {
	case "json", "yaml":
		view.PlainAll(items)
		text, err := json.MarshalIndent(map[string]any{"items": items}, "", "  ")
		if err == nil && o.output == "yaml" {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(o.Out, strings.TrimSuffix(string(text), "\n"))
		return err
	case "name":
		for _, name := range names {
			fmt.Fprintln(o.Out, name)
		}
		return nil
	}
	if len(rows) == 0 {
		fmt.Fprintln(o.ErrOut, "nothing found")
		return nil
	}
	return writeTable(o.Out, columns, rows, o.output == "wide")
}

func writeTable(out io.Writer, columns []metav1.TableColumnDefinition, rows [][]string, wide bool) error {
	table := &metav1.Table{ColumnDefinitions: columns}
	for _, row := range rows {
		cells := make([]any, len(row))
		for i := range row {
			cells[i] = cmp.Or(view.Shown(row[i]), "-")
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, out)
}

func (o *options) hostsCommand() *cobra.Command {
	where := view.Filter{}
	command := &cobra.Command{
		Use: "hosts", Short: "List the servers, and what each of them does", Args: cobra.NoArgs,
		Long: "Lists the servers by zone, rack and name. STATE is available, error, quarantined or unavailable; for a claimed server it is\n" +
			"the phase of its Machine, or claimed if something else uses it. -o wide says why.",
		Example: "  kubectl metal3 hosts --state quarantined -o wide\n  kubectl metal3 hosts --type h100-8x --rack r1",
		RunE: func(command *cobra.Command, _ []string) error {
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			servers := slices.DeleteFunc(fleet.Servers(), func(server view.Server) bool { return !where.Has(server) })
			var rows [][]string
			var names []string
			for _, server := range servers {
				rows = append(rows, []string{server.Namespace, server.Name, server.Zone, server.Rack, typesOf(server), string(server.State),
					server.Tenant, server.Machine, age(fleet.Now(), server.Since), server.Node, server.Metal3, server.Why})
				names = append(names, "baremetalhost.metal3.io/"+server.Name)
			}
			return o.print(servers, columns("Namespace", "Name", "Zone", "Rack", "Types", "State", "Tenant", "Machine", "Claimed", "Node*",
				"Metal3*", "Why*"), rows, names)
		},
	}
	addFilter(command, &where)
	return o.addOutput(command, "wide", "json", "yaml", "name")
}

// addFilter adds the flags of a filter.
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
		Use: "fleet", Short: "Count the servers of each rack by what they do", Args: cobra.NoArgs, Example: "  kubectl metal3 fleet",
		RunE: func(command *cobra.Command, _ []string) error {
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			racks := racksOf(fleet.Servers())
			var rows [][]string
			for _, rack := range racks {
				rows = append(rows, []string{rack.Zone, rack.Rack, fmt.Sprint(rack.Servers), countsOf(rack.States), strings.Join(rack.Tenants, ", ")})
			}
			return o.print(racks, columns("Zone", "Rack", "Servers", "States", "Tenants"), rows, nil)
		},
	}
	return o.addOutput(command, "json", "yaml")
}

// countsOf says how many servers are in each state.
func countsOf(states map[view.State]int) string {
	var counts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		counts = append(counts, fmt.Sprintf("%s %d", state, states[state]))
	}
	return strings.Join(counts, ", ")
}

// racksOf counts servers that come by zone and rack.
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

func (o *options) machinesCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "machines", Short: "List the Machines, and how far each is", Args: cobra.NoArgs,
		Example: "  kubectl metal3 machines -n acme\n  kubectl metal3 machines -o wide",
		RunE: func(command *cobra.Command, _ []string) error {
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			machines := fleet.Machines()
			var rows [][]string
			var names []string
			for _, machine := range machines {
				rows = append(rows, []string{machine.Namespace, machine.Name, string(machine.Phase), machine.NodeType, machine.Server,
					machine.Tenant, machine.Progress, expectedOf(machine, fleet.Now()), machine.Drifted, age(fleet.Now(), &machine.Created),
					machine.Node, machine.Message})
				names = append(names, "machine.karpenter.metal3.io/"+machine.Name)
			}
			return o.print(machines, columns("Namespace", "Name", "Phase", "Type", "Server", "Tenant", "Progress", "Expected", "Drifted", "Age",
				"Node*", "Message*"), rows, names)
		},
	}
	return o.addOutput(command, "wide", "json", "yaml", "name")
}

// expectedOf says when a Machine is expected to have joined, "in 5m" or "5m ago"; empty if that is not known.
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
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			types := fleet.Capacity()
			var rows [][]string
			var names []string
			for _, capacity := range types {
				var tenants []string
				for _, tenant := range slices.Sorted(maps.Keys(capacity.Tenants)) {
					tenants = append(tenants, fmt.Sprintf("%s %d", tenant, capacity.Tenants[tenant]))
				}
				limit, typical := "", ""
				if capacity.MaxCapacity != nil {
					limit = fmt.Sprint(*capacity.MaxCapacity)
				}
				if capacity.TypicalSeconds > 0 {
					typical = duration.HumanDuration(time.Duration(capacity.TypicalSeconds) * time.Second)
				}
				rows = append(rows, []string{capacity.NodeType, capacity.Accelerators, fmt.Sprint(capacity.Total), fmt.Sprint(capacity.Available),
					fmt.Sprint(capacity.Claimed), fmt.Sprint(capacity.InTransit), fmt.Sprint(capacity.Error), fmt.Sprint(capacity.Quarantined),
					fmt.Sprint(capacity.NotReady), limit, typical, strings.Join(tenants, ", "), fmt.Sprint(capacity.Cost),
					fmt.Sprint(capacity.TooSmall), fmt.Sprint(capacity.NotCleaned)})
				names = append(names, "nodetype.karpenter.metal3.io/"+capacity.NodeType)
			}
			return o.print(types, columns("Type", "Accelerators", "Total", "Available", "Claimed", "In-Transit", "Error", "Quarantined",
				"Not-Ready", "Limit", "Typical", "Tenants", "Cost*", "Too-Small*", "Not-Cleaned*"), rows, names)
		},
	}
	return o.addOutput(command, "wide", "json", "yaml", "name")
}

// age since a time; empty if there is none.
func age(now time.Time, since *metav1.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(since.Time))
}
