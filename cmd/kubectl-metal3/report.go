// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

func (o *options) reportCommand() *cobra.Command {
	from, to, groupBy := "30d", "", "tenant"
	command := &cobra.Command{
		Use: "report", Short: "Count the server-hours of each tenant or NodeType, and their cost", Args: cobra.NoArgs,
		Long: "Counts the hours for which Machines had servers, from a time on and before another one, of the record that the manager keeps.\n" +
			"A use is from the claim of a server until it is given back; one that lasts counts until now. COST is the hours, each times the\n" +
			"cost of its NodeType when that was chosen. It is in the unit of spec.cost of your NodeTypes, and money only where each of these is\n" +
			"the price of an hour: a cost that is computed, because spec.cost is not set, only compares types. -n counts the Machines of one\n" +
			"namespace.\n\n" +
			"A time is like 2026-01-02T15:04:05Z, a date like 2026-01-02 (UTC), or like 7d or 24h, which is so long before now.",
		Example: "  kubectl metal3 report\n  kubectl metal3 report --from 2025-12-01 --to 2026-01-01 -o csv\n  " +
			"kubectl metal3 report --from 7d --by type",
		RunE: func(command *cobra.Command, _ []string) error {
			if !slices.Contains(view.UsageBy, groupBy) {
				return fmt.Errorf("--by is %q: it must be one of %s", groupBy, strings.Join(view.UsageBy, ", "))
			}
			fleet, err := o.usageOfServers(command.Context())
			if err != nil {
				return err
			}
			begin, err := timeOf("--from", from, fleet.Now())
			if err != nil {
				return err
			}
			end := fleet.Now()
			if to != "" {
				if end, err = timeOf("--to", to, fleet.Now()); err != nil {
					return err
				}
			}
			if !begin.Before(end) {
				return fmt.Errorf("--from is %s, and --to is %s: --from must be before --to", begin.UTC().Format(time.RFC3339),
					end.UTC().Format(time.RFC3339))
			}
			return o.printUsage(fleet.Report(begin, end, groupBy, *o.management.Namespace), groupBy)
		},
	}
	flags := command.Flags()
	flags.StringVar(&from, "from", from, "Begin of the time that is counted.")
	flags.StringVar(&to, "to", to, "End of the time that is counted. Empty is now.")
	flags.StringVar(&groupBy, "by", groupBy, "What is counted by: "+strings.Join(view.UsageBy, " or ")+".")
	shown := tableOutput()
	shown.csv = true
	o.addFlags(command, shown)
	command.Flag("output").Usage += " csv is for spreadsheets."
	return command
}

// usageOfServers reads only the record of usage.
func (o *options) usageOfServers(ctx context.Context) (*view.Fleet, error) {
	if o.snapshot != "" {
		return o.fleet(ctx)
	}
	management, err := o.connect(o.management, "management cluster")
	if err != nil {
		return nil, err
	}
	snapshot := view.NewSnapshot(metav1.NewTime(time.Now()))
	if err := snapshot.ReadUsage(ctx, management, ""); err != nil {
		return nil, err
	}
	for _, missing := range snapshot.Missing {
		return nil, errors.New(missing.String())
	}
	return view.New(snapshot), nil
}

func (o *options) printUsage(report view.Usage, groupBy string) error {
	if len(report.Rows) > 0 {
		report.Notes = append(report.Notes,
			"COST is the hours times spec.cost of the NodeTypes, in the unit of that: it is money only where each spec.cost is the price of an hour")
	}
	for _, note := range report.Notes {
		fmt.Fprintf(o.ErrOut, "note: %s\n", note)
	}
	cells := func(row view.UsageRow, decimals int) []string {
		number := func(value float64) string { return strconv.FormatFloat(value, 'f', decimals, 64) }
		name := row.Tenant
		if groupBy == "type" {
			name = row.NodeType
		}
		return []string{name, fmt.Sprint(row.Uses), fmt.Sprint(row.Servers), number(row.Hours), number(row.Cost)}
	}
	if o.output.format() == "csv" {
		out := csv.NewWriter(o.Out)
		lines := [][]string{{"from", "to", groupBy, "uses", "servers", "hours", "cost"}}
		for _, row := range report.Rows {
			lines = append(lines, append([]string{row.From.UTC().Format(time.RFC3339), row.To.UTC().Format(time.RFC3339)}, cells(row, 6)...))
		}
		return out.WriteAll(lines)
	}
	list := listing{kind: "Usage", columns: columns(strings.ToUpper(groupBy[:1])+groupBy[1:], "Uses", "Servers", "Hours", "Cost")}
	for _, row := range report.Rows {
		list.add(row, cells(row, 2)...)
	}
	if len(list.items) > 0 && o.output.isForPeople() {
		list.add(nil, append([]string{"(all)"}, cells(report.Total, 2)[1:]...)...)
	}
	return o.print(list)
}

// timeOf parses a time, a date, or a duration before now.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if parsed, err := time.Parse(layout, text); err == nil {
			return parsed, nil
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%s is %q: it must be a time like 2026-01-02T15:04:05Z, a date like 2026-01-02, or how long ago it is, "+
		"like 7d or 24h", flag, text)
}
