// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kind-env makes two kind clusters with Metal3, a rack of emulated servers and our charts, runs tests on them, and deletes
// them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind"
)

// defaultTests are the choice among NodeTypes, the secrets of a server after its node has joined, and two that need no server. The test of
// the charts follows, in which a manager is deleted in the midst of a claim.
const defaultTests = "^(TestCapacityCPUPodNeverGetsGPUServer|TestReleaseRevokesJoinToken|TestGiveBackDefaults|TestWebhookDenies)$"

// allTests selects all tests, as go test -run does.
const allTests = "."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// The first signal has everything deleted; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(klog.Background())
	command := newCommand()
	command.SetContext(ctx)
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// variables stand in for flags.
var variables = map[string]string{
	"kind": "KIND", "management": "KIND_MANAGEMENT", "tenant": "KIND_TENANT", "image": "KIND_IMAGE", "ip-family": "KIND_IP_FAMILY",
	"keep": "KEEP", "run": "E2E", "ai": "AI",
}

func newCommand() *cobra.Command {
	config := kind.Config{}
	command := &cobra.Command{
		Use:   "kind-env",
		Short: "Run karpenter-provider-metal3 on kind clusters, with emulated servers that join by real kubelets",
		Long: `kind-env makes a management and a tenant cluster with kind, installs our charts in them as docs/install.md says, and starts
Metal3 and a rack of emulated servers in containers beside them. A pending pod of the tenant gets a server, which boots as a container
and joins by kubeadm.

It needs Docker, with a daemon on this machine that runs as root, and what "make kind-up" builds. It writes to one folder, and
neither to ~/.kube/config nor to anything else of this machine; "kind-env down" deletes all that it made.`,
		Example: `  kind-env up
  export KUBECONFIG=.kind/tenant.kubeconfig
  kind-env down

  # the suite test/e2e, or one test of it, on an environment that is deleted afterwards
  kind-env test
  kind-env test --run TestWebhookDenies --keep`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(command *cobra.Command, _ []string) error { return command.Help() },
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			return complete(command.Flags(), &config, command.OutOrStdout())
		},
	}
	command.PersistentFlags().StringVar(&config.Dir, "dir", "", "folder of the environment; by default .kind of the checkout")
	command.PersistentFlags().StringVar(&config.Kind, "kind", "", "kind's program; by default the one beside this program, of the "+
		"version in tools/kind (KIND)")
	command.AddCommand(newUpCommand(&config), newDownCommand(&config), newTestCommand(&config))
	return command
}

// complete takes flags that are not given from the environment, and fills in the defaults.
func complete(flags *pflag.FlagSet, config *kind.Config, out io.Writer) error {
	for name, variable := range variables {
		if flag := flags.Lookup(name); flag != nil && !flag.Changed && os.Getenv(variable) != "" {
			if err := flags.Set(name, os.Getenv(variable)); err != nil {
				return fmt.Errorf("%s is %q: %w", variable, os.Getenv(variable), err)
			}
		}
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the folder of this program, %w", err)
	}
	bin := filepath.Dir(executable)
	config.Repository, config.Out = filepath.Dir(bin), out
	if config.Dir == "" {
		config.Dir = filepath.Join(config.Repository, ".kind")
	}
	if config.Dir, err = filepath.Abs(config.Dir); err != nil {
		return fmt.Errorf("finding the folder of the environment, %w", err)
	}
	if config.Kind == "" {
		config.Kind = filepath.Join(bin, "kind")
	}
	return nil
}

func addUpFlags(flags *pflag.FlagSet, config *kind.Config) {
	flags.StringVar(&config.Management, "management", "", "name of a kind cluster to take as the management cluster, instead of "+
		"creating one; it must have neither Metal3 nor our charts, and stays (KIND_MANAGEMENT)")
	flags.StringVar(&config.Tenant, "tenant", "", "name of a kind cluster to take as the tenant cluster; it must have control-plane nodes "+
		"only, and stays (KIND_TENANT)")
	flags.StringVar(&config.Image, "image", "", "node image of clusters that are created; by default kind's own (KIND_IMAGE)")
	flags.StringVar(&config.IPFamily, "ip-family", "ipv4", "IP family of clusters that are created: ipv4, dual or ipv6 (KIND_IP_FAMILY)")
	flags.BoolVar(&config.AllServers, "all-servers", false, "register the servers of all tests, and not only the reference fleet")
	flags.BoolVar(&config.Keep, "keep", false, "leave what was made, also after a failure (KEEP=1)")
}

func newUpCommand(config *kind.Config) *cobra.Command {
	command := &cobra.Command{
		Use:   "up",
		Short: "Make the environment, and say how to look around",
		Long: `up checks first, and makes nothing if anything is missing. Then it makes the environment, and ends when all servers are available.
If that fails, or at Ctrl-C, what was made is deleted, and logs are kept in the folder. Where the environment is up already, there is
nothing to do.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			environment := kind.New(*config)
			made, err := environment.Up(command.Context())
			if err != nil {
				return err
			}
			if !made {
				_, _ = fmt.Fprintln(config.Out, "the environment is up already")
			}
			lookAround(config.Out, environment)
			return nil
		},
	}
	addUpFlags(command.Flags(), config)
	return command
}

func newDownCommand(config *kind.Config) *cobra.Command {
	images := false
	command := &cobra.Command{
		Use:   "down",
		Short: "Delete the environment",
		Long: `down deletes all that up has made, also if that was killed on its way. Clusters that were taken stay, without what is ours. Where
there is nothing, there is nothing to do.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			found, err := kind.New(*config).Down(command.Context(), images)
			if err == nil && !found {
				_, _ = fmt.Fprintln(config.Out, "there is no environment in "+config.Dir)
			}
			return err
		},
	}
	command.Flags().BoolVar(&images, "images", false, "also delete the image of Metal3's containers, which the next up would use again")
	return command
}

func newTestCommand(config *kind.Config) *cobra.Command {
	tests, charts, ai := "", true, false
	command := &cobra.Command{
		Use:   "test",
		Short: "Run test/e2e and the tests of the charts on the environment, and delete it",
		Long: `test makes the environment, or uses the one that is up, and runs test/e2e and the tests of the charts on it. It deletes the
environment if it has made it, unless it is told to keep it. The exit code is 0 only if all tests have passed.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			// Tests of all kinds need servers of all kinds.
			config.AllServers = config.AllServers || tests == allTests || ai
			config.DRADriver = ai
			if ai {
				return runTests(command.Context(), *config, "ai", allTests, false)
			}
			return runTests(command.Context(), *config, "e2e", tests, charts)
		},
	}
	addUpFlags(command.Flags(), config)
	command.Flags().StringVar(&tests, "run", defaultTests, "tests of test/e2e to run, as go test -run takes them; \".\" are all (E2E)")
	command.Flags().BoolVar(&charts, "charts", charts,
		"run the tests of the charts too, if the environment is deleted afterwards: they uninstall the charts")
	command.Flags().BoolVar(&ai, "ai", ai,
		"run test/ai instead, the steps of CNCF's AI conformance, in an environment with a DRA driver (AI=1)")
	return command
}

// runTests runs tests of a suite, which is a package below test. It prints how long each part took.
func runTests(ctx context.Context, config kind.Config, suite, tests string, charts bool) (err error) {
	type part struct {
		name string
		took time.Duration
	}
	var parts []part
	timed := func(name string, do func() error) error {
		start := time.Now()
		err := do()
		parts = append(parts, part{name, time.Since(start)})
		return err
	}
	defer func() {
		for _, part := range parts {
			_, _ = fmt.Fprintf(config.Out, "%6.1fs  %s\n", part.took.Seconds(), part.name)
		}
	}()
	environment, made := kind.New(config), false
	if err := timed("the environment", func() error { made, err = environment.Up(ctx); return err }); err != nil {
		return err
	}
	err = timed("test/"+suite, func() error { return environment.Test(ctx, suite, "./test/"+suite, tests) })
	if suite == "e2e" && tests == allTests && ctx.Err() == nil {
		// On a cluster of its own.
		err = errors.Join(err, timed("the rack's README", func() error {
			return environment.Test(ctx, "readme", "./test/kind/metal", "^TestReadme$")
		}))
	}
	// They leave clusters without our charts.
	if made && !config.Keep && charts && ctx.Err() == nil {
		err = errors.Join(err, timed("the charts", func() error { return environment.Test(ctx, "charts", "./test/kind", "^TestCharts") }))
	}
	if !made || config.Keep {
		lookAround(config.Out, environment)
		return err
	}
	return errors.Join(err, timed("deleting the environment", func() error {
		_, err := environment.Down(context.WithoutCancel(ctx), false)
		return err
	}))
}

func lookAround(out io.Writer, environment *kind.Environment) {
	_, _ = fmt.Fprintf(out, `
  management cluster   export KUBECONFIG=%[1]s
  tenant cluster       export KUBECONFIG=%[2]s

Describe the servers, and have a pod bring one (bin/kubectl will do):
  kubectl --kubeconfig %[1]s apply -f %[3]s/management.yaml
  kubectl --kubeconfig %[1]s get nodetypes
  kubectl --kubeconfig %[2]s apply -f %[3]s/tenant.yaml
  kubectl --kubeconfig %[2]s run train --image %[4]s --overrides '{"spec": {"containers": [{"name": "train", "image": "%[4]s", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}'
  kubectl --kubeconfig %[2]s get nodeclaims,nodes,pods --watch
  kubectl --kubeconfig %[1]s get machines.karpenter.metal3.io,baremetalhosts -A

`+"`make kind-down` deletes the environment.\n", environment.ManagementKubeconfig(), environment.TenantKubeconfig(), environment.Fleet(), kind.PodImage)
}
