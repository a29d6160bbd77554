// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/demo"
)

func newDemoCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Start a sandbox, show pending GPU pods get servers and release them, and stop it",
		Long: `demo starts a sandbox with the reference fleet, creates pods that ask for GPUs, shows what happens until they run, deletes them,
and shows the servers go back. A page in the browser shows it, too. It ends with a table, and with exit code 0 only if all of it happened.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config := sandbox.Config{Dir: *dir, Progress: command.OutOrStdout(), Screen: true}
			var err error
			if config.Fleet, err = loadFleet(""); err != nil {
				return err
			}
			if config.Binaries, err = programDirs(); err != nil {
				return err
			}
			running, err := sandbox.Up(command.Context(), config)
			if err != nil {
				return err
			}
			defer running.Close()
			_, _ = fmt.Fprintf(command.OutOrStdout(), "\nWatch it in a browser: %s\n", running.Screen())
			return running.Run(command.Context(), func(ctx context.Context) error {
				return demo.Run(ctx, demo.Options{
					Management: running.ManagementConfig(), Tenant: running.TenantConfig(),
					HostNamespace: sandbox.HostNamespace, TenantNamespace: sandbox.DefaultTenant,
					Out: command.OutOrStdout(),
				})
			})
		},
	}
}
