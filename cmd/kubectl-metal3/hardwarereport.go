// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

func (o *options) hardwareReportCommand() *cobra.Command {
	return o.addOutput(&cobra.Command{
		Use: "hardware-report", Short: "Say what has worked on each model of server, without names and secrets", Args: cobra.NoArgs,
		Long: "Says for each model of server what Metal3 and Kubernetes have done with it: lines for the table of docs/supported-hardware.md,\n" +
			"with a ? for what is not in the cluster. There are no names, addresses, serial numbers or texts of errors in it.",
		Example: "  kubectl metal3 hardware-report\n  kubectl metal3 hardware-report -n metal3-system -o yaml",
		RunE: func(command *cobra.Command, _ []string) error {
			o.servers, o.scope.Resources = true, []string{"baremetalhosts", "nodeproviders", "nodetypes", "machines"}
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			reports, uninspected := fleet.Models()
			if uninspected > 0 {
				fmt.Fprintf(o.ErrOut, "%d servers have not been inspected, and are left out\n", uninspected)
			}
			list := listing{kind: "HardwareReport"}
			for _, report := range reports {
				list.add(report)
			}
			if !o.output.isForPeople() || len(reports) == 0 {
				return o.print(list)
			}
			for _, line := range append([][]string{hardwareColumns, make([]string, len(hardwareColumns))}, rowsOf(reports, fleet.Now())...) {
				for _, cell := range line {
					fmt.Fprintf(o.Out, "| %s ", cmp.Or(strings.ReplaceAll(view.Shown(cell), "|", "/"), "---"))
				}
				fmt.Fprintln(o.Out, "|")
			}
			return nil
		},
	})
}

// hardwareColumns are those of the table in docs/supported-hardware.md.
var hardwareColumns = []string{"model", "processor, network cards", "BMC, its firmware", "BIOS", "boot mode, cleaning", "accelerators",
	"Metal3, Ironic", "what worked, and what did not", "install, boot and join, clean", "version, date, by"}

// rowsOf are the rows of that table. A person writes what stands for a question mark.
func rowsOf(reports []view.ModelReport, now time.Time) (rows [][]string) {
	for _, report := range reports {
		worked := fmt.Sprintf("of %d servers: %d installed, %d nodes now, %d deprovisioned", report.Servers, report.Installed, report.Joined,
			report.Deprovisioned)
		if len(report.Errors) > 0 {
			worked += "; in error now: " + countsOf(report.Errors)
		}
		var times []string
		for _, seconds := range []int64{report.InstallSeconds, report.JoinSeconds, report.CleanSeconds} {
			text := "?"
			if seconds > 0 {
				text = duration.HumanDuration(time.Duration(seconds) * time.Second)
			}
			times = append(times, text)
		}
		rows = append(rows, []string{report.Name, fmt.Sprintf("%d threads %s, %d", report.Threads, report.Processor, report.NetworkCards),
			report.BMC + ", ?", cmp.Or(report.BIOS, "?"), fmt.Sprintf("%s, %s", report.BootMode, report.Cleaning),
			cmp.Or(report.Accelerators, "none"), "?", worked, strings.Join(times, ", "), "?, " + now.UTC().Format(time.DateOnly) + ", ?"})
	}
	return rows
}
