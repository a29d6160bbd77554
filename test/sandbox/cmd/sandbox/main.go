// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sandbox runs the whole system on one machine, with emulated servers.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// The first signal stops the sandbox in order; a second one ends the process at once, and the kernel its children.
	context.AfterFunc(ctx, stop)
	command := newCommand()
	command.SetContext(ctx)
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var (
		dir     string
		verbose bool
	)
	command := &cobra.Command{
		Use:   "sandbox",
		Short: "Run karpenter-provider-metal3 on this machine, with emulated servers",
		Long: `sandbox runs the whole system on this machine: a management cluster with Metal3's own operator, a tenant cluster, our
manager and provider between them, and a rack of emulated servers that join the tenant when Metal3 has provisioned them.

All components are the real ones (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, baremetal-operator), built
by "make tools". They listen on 127.0.0.1 only, keep everything they write in one directory, and end with the sandbox.`,
		Example: `  # in one terminal: start, and keep running until Ctrl-C
  sandbox up

  # in another one
  sandbox status
  export KUBECONFIG=.sandbox/tenant.kubeconfig
  kubectl get nodepools,nodeclaims,nodes`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(command *cobra.Command, _ []string) error { return command.Help() },
		Version:      version.Get().GitVersion,
		PersistentPreRun: func(*cobra.Command, []string) {
			// Logs of client libraries would be mixed with the lines of progress.
			if !verbose {
				klog.SetLogger(logr.Discard())
			}
			ctrllog.SetLogger(klog.Background())
		},
	}
	command.PersistentFlags().StringVar(&dir, "dir", sandbox.DefaultDir,
		"directory of the sandbox: certificates, data, logs, kubeconfig files")
	command.PersistentFlags().BoolVar(&verbose, "verbose", false, "also show the messages of the client libraries, on stderr")
	command.AddCommand(newUpCommand(&dir), newDemoCommand(&dir), newStatusCommand(&dir), newDownCommand(&dir))
	return command
}

// programDirs are the directories of the sandbox's programs: that of this program, where "make tools" writes them, and
// KUBEBUILDER_ASSETS.
func programDirs() (cluster.Binaries, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the directory of this program, %w", err)
	}
	dirs := cluster.Binaries{filepath.Dir(executable)}
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" && assets != dirs[0] {
		dirs = append(dirs, assets)
	}
	return dirs, nil
}
