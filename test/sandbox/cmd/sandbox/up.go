// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/demo"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

func newUpCommand(dir *string) *cobra.Command {
	var fleetFile string
	config := sandbox.Config{Screen: true}
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox, and keep it running until it is stopped",
		Long: `up starts a sandbox and stays in the foreground until Ctrl-C, "sandbox down", or the failure of one of its parts. Whatever an
earlier sandbox left in the directory is removed first. When up ends, however it ends, nothing is left running.`,
		Example: `  # with servers of your own
  cat > fleet.yaml <<EOF
  apiVersion: sandbox.karpenter.metal3.io/v1alpha1
  kind: Fleet
  servers:
  - name: h100
    count: 4
    labels: {gpu-model: h100, rack: r1}
    capacity: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}
  EOF
  sandbox up --fleet fleet.yaml

  # with the manager in your debugger, on .sandbox/users/manager.kubeconfig
  sandbox up --without manager`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config.Dir = *dir
			running, err := start(command, config, fleetFile)
			if err != nil {
				return err
			}
			defer running.Close()
			_, _ = fmt.Fprint(command.OutOrStdout(), "\nThe sandbox is up. Ctrl-C stops it.\n")
			printAddresses(command.OutOrStdout(), running)
			err = running.Wait(command.Context())
			_, _ = fmt.Fprintln(command.OutOrStdout(), "stopping")
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&fleetFile, "fleet", "", "fleet file with the servers to emulate; by default the reference fleet of six servers")
	flags.StringVar(&config.Tenant, "tenant", sandbox.DefaultTenant, "name of the tenant, and of its namespace in the management cluster")
	flags.DurationVar(&config.StartTimeout, "start-timeout", sandbox.DefaultStartTimeout, "give up when the sandbox is not up after this time")
	flags.BoolVar(&config.SpreadPods, "spread-pods", false,
		"leave the tenant's scheduler to its defaults, which spread pods; otherwise it fills one server with accelerators before the next")
	flags.StringSliceVar(&config.Without, "without", nil, "leave out the manager, the provider or the webhook, to run it yourself")
	return command
}

// start starts a sandbox with the servers of a fleet file, or of the reference fleet if none is named.
func start(command *cobra.Command, config sandbox.Config, fleetFile string) (*sandbox.Sandbox, error) {
	config.Progress = command.OutOrStdout()
	var err error
	if fleetFile == "" {
		config.Fleet, err = fleet.Reference()
	} else {
		config.Fleet, err = fleet.Load(fleetFile)
	}
	if err != nil {
		return nil, err
	}
	if config.Binaries, err = programDirs(); err != nil {
		return nil, err
	}
	return sandbox.Up(command.Context(), config)
}

func newDemoCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Start a sandbox, show pending GPU pods get servers and release them, and stop it",
		Long: `demo starts a sandbox with the reference fleet, creates pods that ask for GPUs, shows what happens until they run, deletes them,
and shows the servers go back. A page in the browser shows it, too. It ends with a table, and with exit code 0 only if all of it happened.
On a terminal the clusters stay until you press Enter.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			running, err := start(command, sandbox.Config{Dir: *dir, Screen: true, ProviderArgs: demo.ProviderArgs}, "")
			if err != nil {
				return err
			}
			defer running.Close()
			out := command.OutOrStdout()
			return running.Run(command.Context(), func(ctx context.Context) error {
				if err := demo.Run(ctx, demo.Options{
					Management: running.ManagementConfig(), Tenant: running.TenantConfig(),
					HostNamespace: sandbox.HostNamespace, TenantNamespace: sandbox.DefaultTenant, Out: out,
				}); err != nil {
					return err
				}
				if file, ok := command.InOrStdin().(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
					return nil
				}
				_, _ = fmt.Fprint(out, "\nThe clusters stay until you press Enter.\n")
				printAddresses(out, running)
				return untilEnter(ctx, command.InOrStdin())
			})
		},
	}
}

// printAddresses prints how you reach a running sandbox.
func printAddresses(out io.Writer, running *sandbox.Sandbox) {
	kubeconfigs := running.Kubeconfigs()
	_, _ = fmt.Fprintf(out, `  management cluster   export KUBECONFIG=%s
  tenant cluster       export KUBECONFIG=%s
  fleet in a browser   %s
`, kubeconfigs.Management, kubeconfigs.Tenant, running.Screen())
}

// untilEnter returns at the end of a line or of the input, or when the context ends.
func untilEnter(ctx context.Context, in io.Reader) error {
	line := make(chan error, 1)
	// Nothing can interrupt the read. It ends with the process.
	go func() {
		_, err := bufio.NewReader(in).ReadString('\n')
		line <- err
	}()
	select {
	case err := <-line:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-ctx.Done():
		return nil
	}
}
