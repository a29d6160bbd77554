// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command run runs Karpenter's regression suite against this provider, lane by lane, and prints how each spec ended. It
// exits with 0 only if every spec passed but those that are known not to.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/upstream"
)

func main() {
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var (
		lanes []string
		bin   string
	)
	options := upstream.Options{Progress: os.Stdout}
	command := &cobra.Command{
		Use: "run", Short: "Run Karpenter's regression suite on sandboxes",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			options.Binaries = cluster.Binaries{bin}
			root := options.Dir
			var specs []upstream.Spec
			for _, name := range lanes {
				lane, err := upstream.LaneOf(name)
				if err != nil {
					return err
				}
				options.Dir = filepath.Join(root, name)
				ended, err := upstream.Run(command.Context(), lane, options)
				specs = append(specs, ended...)
				if err != nil {
					upstream.Print(os.Stdout, specs)
					return fmt.Errorf("running the lane %s, %w", name, err)
				}
			}
			if failed := upstream.Print(os.Stdout, specs); failed > 0 {
				return fmt.Errorf("%d specs failed; the logs are in %s", failed, root)
			}
			return nil
		},
	}
	var names []string
	for _, lane := range upstream.Lanes() {
		names = append(names, lane.Name)
	}
	flags := command.Flags()
	flags.StringSliceVar(&lanes, "lane", names, "parts of the suite to run, one after another")
	flags.StringVar(&options.Focus, "focus", "", "run only the specs of these lanes whose name matches this regular expression")
	flags.StringVar(&options.Dir, "dir", ".upstream-e2e", "directory of the sandboxes and their logs")
	flags.StringVar(&bin, "bin", "bin", "directory of the programs")
	flags.DurationVar(&options.Timeout, "timeout", 3*time.Hour, "give a lane up after this time")
	return command
}
