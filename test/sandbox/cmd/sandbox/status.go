// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

func newStatusCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the processes of a running sandbox, its kubeconfig files, and the address of its page",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			report, err := sandbox.Status(*dir)
			if err != nil {
				return err
			}
			if report.PID == 0 {
				return fmt.Errorf("no sandbox is running in %s; start one with `sandbox up`", report.Dir)
			}
			return printReport(command.OutOrStdout(), report)
		},
	}
}

func printReport(out io.Writer, report sandbox.Report) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "PROCESS\tPID\tMEMORY\tUPTIME\tLOG")
	for _, process := range report.Processes {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", process.Name, process.PID, mebibytes(process.Memory),
			duration.HumanDuration(process.Uptime), process.LogFile)
	}
	_, _ = fmt.Fprintf(table, "total\t\t%s\t\t\n", mebibytes(report.Memory()))
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nmanagement cluster   %s\ntenant cluster       %s\n", report.Kubeconfigs.Management,
		report.Kubeconfigs.Tenant)
	if err == nil && report.Screen != "" {
		_, err = fmt.Fprintf(out, "fleet in a browser   %s\n", report.Screen)
	}
	return err
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%dMi", bytes>>20) }

func newDownCommand(dir *string) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop a running sandbox, and return when it is gone",
		Long: `down stops the sandbox of the directory. Its logs stay; the next "sandbox up" removes them. Where none is running, there is ` +
			`nothing to do.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			stopped, err := sandbox.Down(ctx, *dir)
			if err != nil {
				return err
			}
			message := "no sandbox is running in " + *dir
			if stopped {
				message = "stopped"
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), message)
			return err
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", time.Minute, "give up waiting after this time")
	return command
}
