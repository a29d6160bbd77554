// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/ui"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

func (o *options) uiCommand() *cobra.Command {
	var port int
	var written []string
	var address string
	labels := topology.Defaults()
	command := &cobra.Command{
		Use: "ui", Short: "Show the fleet in the browser, and follow it", Args: cobra.NoArgs,
		Long: "Serves a page about the fleet at an address of this machine that no other can reach, and prints the address. It has a token:\n" +
			"who does not know it sees nothing. The page only reads, with your rights, and ends with this program.",
		Example: "  kubectl metal3 ui --tenant-kubeconfig acme.kubeconfig\n  kubectl metal3 ui --snapshot fleet.json --port 8042",
		RunE: func(command *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return fmt.Errorf("--port is %d: it must be between 1 and 65535, or 0 for any that is free", port)
			}
			mapping, err := topology.Parse(labels)
			if err != nil {
				return err
			}
			links, err := ui.ParseLinks(written)
			if err != nil {
				return err
			}
			var prometheus *ui.Prometheus
			switch {
			case address != "" && o.snapshot != "":
				return errors.New("--prometheus is set, and a snapshot is of one time: leave out one of --prometheus and --snapshot")
			case address != "":
				if prometheus, err = ui.NewPrometheus(address); err != nil {
					return err
				}
			}
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("--port is %d, and another program listens on it: name another, or 0 for any that is free", port)
			}
			if err != nil {
				return fmt.Errorf("listening, %w", err)
			}
			defer listener.Close()
			source, settings, err := o.source(command.Context(), mapping)
			if err != nil {
				return err
			}
			settings.Links, settings.Prometheus = links, prometheus
			return o.serve(command.Context(), listener, source, settings)
		},
	}
	command.Flags().IntVar(&port, "port", 0, "Port of 127.0.0.1 to listen on. 0 is any that is free.")
	command.Flags().StringSliceVar(&labels, "topology-labels", labels, "The same flag of the programs.")
	command.Flags().StringVar(&address, "prometheus", "",
		"URL of a Prometheus that has the metrics of the manager of this management cluster, for the history of Capacity.")
	command.Flags().StringArrayVar(&written, "link", nil, ui.LinkUsage)
	return command
}

// source returns the source of the page and its options except the token.
func (o *options) source(ctx context.Context, mapping topology.Mapping) (*view.Live, ui.Options, error) {
	if o.snapshot != "" {
		live, err := o.follow(ctx)
		return live, ui.Options{Topology: mapping}, err
	}
	management, err := o.connect(o.management, "management cluster")
	if err != nil {
		return nil, ui.Options{}, err
	}
	tenants, err := o.tenants()
	if err != nil {
		return nil, ui.Options{}, err
	}
	live, settings, err := ui.Follow(ctx, management, tenants, o.reads(), mapping)
	if err != nil {
		return nil, ui.Options{}, err
	}
	return live, settings, o.warn(live.Snapshot())
}

func (o *options) serve(ctx context.Context, listener net.Listener, source ui.Source, options ui.Options) error {
	options.Token, options.Still = rand.Text(), o.snapshot != ""
	screen := ui.New(source, options)
	go screen.Run(ctx)
	fmt.Fprintf(o.Out, "http://%s/%s/\n", listener.Addr(), options.Token)
	fmt.Fprintln(o.ErrOut, "Open this address in a browser. Ctrl-C ends it.")
	return ui.Serve(ctx, listener, screen)
}
