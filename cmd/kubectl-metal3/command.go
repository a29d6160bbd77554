// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// options are the options that all commands have.
type options struct {
	genericiooptions.IOStreams
	management *genericclioptions.ConfigFlags
	// tenantKubeconfigs and tenantContexts lead to the tenant clusters. If both are empty, no tenant cluster is read.
	tenantKubeconfigs, tenantContexts []string
	// snapshot is a file to read instead of clusters.
	snapshot string
	// scope is what the command needs to read, without the namespace of -n.
	scope view.Scope
	// servers: the command is about servers. -n is then the namespace of servers, and otherwise of Machines and
	// TenantClusters.
	servers bool
	// planning: the command plans, and needs more rights than others.
	planning bool
	// usage selects the record of servers to read: of the hosts with this name, or of all if the name is empty. Nil:
	// none is read.
	usage *string
	// events: the command also reads the provider's events about pods.
	events bool
	// checks: the command also reads what only preflight knows.
	checks bool
	// output is how the command prints. Nil: the command has only one format.
	output *output
	// connect returns a client of the cluster that the flags lead to. what names the cluster in error messages.
	connect func(flags *genericclioptions.ConfigFlags, what string) (client.WithWatch, error)
}

func newOptions(streams genericiooptions.IOStreams) *options {
	return &options{IOStreams: streams, management: genericclioptions.NewConfigFlags(true), connect: connect}
}

func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return newOptions(streams).command()
}

func (o *options) command() *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-metal3",
		Short: "Show the fleet of bare-metal servers, and explain why something waits",
		Long: "Shows the servers of a management cluster, what each NodeType has left, and why a pod, a NodeClaim, a Machine or a\n" +
			"server waits, with your rights. It reads no Secret. maintenance, quarantine, return, reboot, power and register write;\nthe others " +
			"only read.\n\n" +
			"The kubeconfig and context of kubectl lead to the management cluster. --tenant-kubeconfig or --tenant-context lead to\n" +
			"the cluster of a tenant, which pods and NodeClaims are in, and may be repeated for those of several.\n\n" +
			"The exit code is 1 if explain or issues finds something wrong or what-if has a pod that would not fit, and 2 after an error.",
		Example: "  kubectl metal3 fleet\n  kubectl metal3 explain pod training-0 --tenant-kubeconfig acme.kubeconfig\n  kubectl " +
			"metal3 issues",
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl metal3"},
	}
	command.SetOut(o.Out)
	command.SetErr(o.ErrOut)
	flags := command.PersistentFlags()
	// Otherwise cobra would find the non-boolean flag "version" that a library of Kubernetes adds to all programs.
	flags.Bool("version", false, "Print the version and exit.")
	command.SetVersionTemplate("kubectl metal3 version {{.Version}}\n")
	o.management.AddFlags(flags)
	flags.StringArrayVar(&o.tenantKubeconfigs, "tenant-kubeconfig", nil, "Kubeconfig of a tenant cluster; repeat it for several. Empty with "+
		"--tenant-context: that of kubectl.")
	flags.StringArrayVar(&o.tenantContexts, "tenant-context", nil, "Context of a tenant cluster in that kubeconfig; repeat it for several.")
	flags.StringVar(&o.snapshot, "snapshot", "", "Read this file, which 'kubectl metal3 snapshot' has written, and no cluster.")
	command.AddCommand(
		o.hostsCommand(), o.fleetCommand(), o.machinesCommand(), o.capacityCommand(), o.tenantsCommand(),
		o.topCommand(), o.explainCommand(), o.issuesCommand(), o.timelineCommand(), o.whatIfCommand(), o.reportCommand(), o.snapshotCommand(),
		o.uiCommand(),
		o.maintenanceCommand(), o.quarantineCommand(), o.returnCommand(), o.rebootCommand(), o.powerCommand(),
		o.registerCommand(), o.supportBundleCommand(), o.proposeTypesCommand(),
	)
	complete(command)
	return command
}

// complete makes all subcommands print the version for --version, and their usage for a wrong number of arguments.
// Cobra itself says "unknown command" and "accepts 2 arg(s)".
func complete(command *cobra.Command) {
	for _, below := range command.Commands() {
		below.Version = command.Version
		if check := below.Args; check != nil {
			below.Args = func(command *cobra.Command, arguments []string) error {
				if check(command, arguments) != nil {
					return fmt.Errorf("the arguments are %q: write %s", arguments, command.UseLine())
				}
				return nil
			}
		}
		complete(below)
	}
}

// reads returns the scope of what the command reads from the clusters.
func (o *options) reads() view.Scope {
	scope, namespace := o.scope, *o.management.Namespace
	if o.servers {
		scope.Hosts = cmp.Or(scope.Hosts, namespace)
	} else {
		scope.Machines = cmp.Or(scope.Machines, namespace)
	}
	return scope
}

// readFor limits the reading to the namespace of an object if its name contains the namespace.
func (o *options) readFor(kind, name string) {
	namespace, _, qualified := strings.Cut(name, "/")
	o.servers = kind == "host"
	switch {
	case !qualified:
	case kind == "host":
		o.scope.Hosts = namespace
	case kind == "pod" || view.IsGroup(kind):
		o.scope.Pods = namespace
	}
}

func (o *options) fleet(ctx context.Context) (*view.Fleet, error) {
	snapshot, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	return view.New(snapshot), nil
}

func (o *options) read(ctx context.Context) (*view.Snapshot, error) {
	if o.snapshot != "" {
		return o.load()
	}
	management, err := o.connect(o.management, "management cluster")
	if err != nil {
		return nil, err
	}
	return o.readClusters(ctx, management)
}

// follow follows the clusters until ctx ends, or shows the snapshot file.
func (o *options) follow(ctx context.Context) (*view.Live, error) {
	if o.snapshot != "" {
		snapshot, err := o.load()
		if err != nil {
			return nil, err
		}
		return view.Still(snapshot), nil
	}
	management, err := o.connect(o.management, "management cluster")
	if err != nil {
		return nil, err
	}
	tenants, err := o.tenants()
	if err != nil {
		return nil, err
	}
	live, err := view.Follow(ctx, management, tenants, o.reads(), clock.RealClock{})
	if err != nil {
		return nil, err
	}
	return live, o.warn(live.Snapshot())
}

func (o *options) load() (*view.Snapshot, error) {
	file, err := os.Open(o.snapshot)
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot, %w", err)
	}
	defer file.Close()
	snapshot, err := view.Load(file)
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot %s, %w", o.snapshot, err)
	}
	return snapshot, nil
}

// tenantFlags returns the flags that lead to each tenant cluster.
func (o *options) tenantFlags() (all []*genericclioptions.ConfigFlags, err error) {
	kubeconfigs, contexts := o.tenantKubeconfigs, o.tenantContexts
	switch {
	case len(kubeconfigs) == 0 && len(contexts) == 0:
		return nil, nil
	case len(kubeconfigs) > 1 && len(contexts) > 0:
		return nil, fmt.Errorf("--tenant-kubeconfig names %d files, and --tenant-context is of one: leave one of the flags out", len(kubeconfigs))
	case len(kubeconfigs) == 0:
		kubeconfigs = []string{*o.management.KubeConfig}
	case len(contexts) == 0:
		contexts = []string{""}
	}
	for _, kubeconfig := range kubeconfigs {
		for _, context := range contexts {
			flags := genericclioptions.NewConfigFlags(true)
			flags.KubeConfig, flags.Context = &kubeconfig, &context
			all = append(all, flags)
		}
	}
	return all, nil
}

func (o *options) tenants() ([]client.WithWatch, error) {
	all, err := o.tenantFlags()
	if err != nil {
		return nil, err
	}
	clients := make([]client.WithWatch, len(all))
	for i, flags := range all {
		if clients[i], err = o.connect(flags, "tenant cluster"); err != nil {
			return nil, err
		}
	}
	return clients, nil
}

// readClusters reads the management cluster and the tenant clusters that the flags lead to.
func (o *options) readClusters(ctx context.Context, management client.Reader) (*view.Snapshot, error) {
	clients, err := o.tenants()
	if err != nil {
		return nil, err
	}
	tenants := view.Readers(clients)
	snapshot, err := view.Read(ctx, management, tenants, o.reads(), metav1.NewTime(time.Now()))
	if err != nil {
		return nil, err
	}
	if o.planning {
		if err := snapshot.ReadPlanning(ctx, management, tenants); err != nil {
			return nil, err
		}
	}
	if o.usage != nil {
		if err := snapshot.ReadUsage(ctx, management, *o.usage); err != nil {
			return nil, err
		}
	}
	if o.events {
		if err := snapshot.ReadEvents(ctx, tenants, o.reads()); err != nil {
			return nil, err
		}
	}
	if o.checks {
		snapshot.ReadChecks(ctx, management)
	}
	return snapshot, o.warn(snapshot)
}

// warn prints what could not be read. It returns an error if the management cluster lacks our kinds: then there is
// nothing to show.
func (o *options) warn(snapshot *view.Snapshot) error {
	for _, missing := range snapshot.Missing {
		if missing.NotInstalled && missing.Cluster == "management" {
			return errors.New(missing.String())
		}
		fmt.Fprintf(o.ErrOut, "warning: %s\n", missing)
	}
	return nil
}

func restConfig(flags *genericclioptions.ConfigFlags, what string) (*rest.Config, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of the %s: %w", what, err)
	}
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "kubectl-metal3/" + version.Get().GitVersion
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return boundAnswers{base, maxAnswer} })
	return config, nil
}

func connect(flags *genericclioptions.ConfigFlags, what string) (client.WithWatch, error) {
	config, err := restConfig(flags, what)
	if err != nil {
		return nil, err
	}
	cluster, err := client.NewWithWatch(config, client.Options{Scheme: view.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("reaching the %s, %w", what, err)
	}
	return cluster, nil
}
