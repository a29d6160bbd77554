// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator has the common parts of all programs: commands with flags and an environment variable for each,
// logging, kubeconfigs, the wait for API servers, controller managers with their leases and probes, and errors in one
// sentence.
package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	basecli "k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// unwrapped leaves the line breaks of --help to the terminal, which knows its width.
const unwrapped = 0

// Command describes a binary that runs until it gets a signal.
type Command struct {
	// Name of the binary, for example karpenter-metal3-manager.
	Name string
	// Short is a one-line description.
	Short string
	// Long describes what the binary does and where it runs.
	Long string
	// Flags adds the binary's own flags, grouped into named sections. May be nil.
	Flags func(*cliflag.NamedFlagSets)
	// Run does the work, after flags and environment have been read and logging has been set up. Its context ends with
	// SIGTERM or SIGINT; Run then returns nil once everything has stopped. An error ends the process with exit code 1.
	// It is shown unchanged, so it should be one sentence that names the thing and the remedy.
	Run func(ctx context.Context) error
}

// NewCommand returns the cobra command of a binary: flags of c and of logging, --version, --help, and their variables.
func NewCommand(c Command) *cobra.Command {
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:   c.Name,
		Short: c.Short,
		Long: c.Long + "\n\nEvery flag can also be set by an environment variable: " + EnvPrefix +
			" and the flag's name in capitals with _ for -, for example " + EnvName("kube-api-qps") + ". The flag wins.",
		Args: cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := FromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if printVersion(cmd) {
				cmd.RunE = func(*cobra.Command, []string) error { return nil }
				return nil
			}
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("setting up logging, %w", err)
			}
			ctrllog.SetLogger(klog.Background())
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			// A second signal ends the process at once.
			context.AfterFunc(ctx, stop)
			return c.Run(klog.NewContext(ctx, klog.Background()))
		},
	}

	var sections cliflag.NamedFlagSets
	if c.Flags != nil {
		c.Flags(&sections)
	}
	logsapi.AddFlags(logging, sections.FlagSet("logging"))
	global := sections.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, c.Name, logs.SkipLoggingConfigurationFlags())
	for _, name := range sections.Order {
		cmd.Flags().AddFlagSet(sections.FlagSets[name])
	}
	cliflag.SetUsageAndHelpFunc(cmd, sections, unwrapped)
	return cmd
}

// Run runs a command and returns the exit code of the process: 0, or 1 after it has shown the error on stderr. The
// error is plain text, or a log entry if logs are JSON, because log collectors expect that.
func Run(cmd *cobra.Command) int {
	err := basecli.RunNoErrOutput(cmd)
	if err == nil {
		return 0
	}
	if format := cmd.Flags().Lookup("logging-format"); format != nil && format.Value.String() == logsapi.JSONLogFormat {
		klog.ErrorS(err, "Stopped by an error")
		klog.Flush()
	} else {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
	}
	return 1
}

// printVersion shows the version under the binary's own name, if --version asks for it.
func printVersion(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup("version")
	if flag == nil || flag.Value.String() == string(verflag.VersionFalse) || !flag.Changed {
		return false
	}
	if flag.Value.String() == string(verflag.VersionRaw) {
		fmt.Fprintf(cmd.OutOrStdout(), "%#v\n", version.Get())
		return true
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", cmd.Name(), version.Get())
	return true
}

// EnvPrefix is the prefix of the environment variables for flags.
const EnvPrefix = "KARPENTER_METAL3_"

// EnvName returns the environment variable for a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

// FromEnvironment sets every flag that is not on the command line from its environment variable, if lookup finds one
// that is not empty. It skips --help and --version. The error names every variable with a wrong value.
func FromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || flag.Name == "help" || flag.Name == "version" {
			return
		}
		name := EnvName(flag.Name)
		value, found := lookup(name)
		if !found || value == "" {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s has the wrong value %q for --%s, %w", name, value, flag.Name, err))
		}
	})
	return errors.Join(errs...)
}
