// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/preflight"
)

type preflightOptions struct {
	cluster      operator.Cluster
	timeout      time.Duration
	ironicURL    string
	ironicCAFile string
	images       bool
}

func newPreflightCommand(out io.Writer) *cobra.Command {
	o := &preflightOptions{cluster: operator.Cluster{Name: "management cluster", QPS: 50, Burst: 100}, timeout: 10 * time.Second}
	return operator.NewCommand(operator.Command{
		Name:  "preflight",
		Short: "Checks whether a management cluster has what the manager needs",
		Long: "preflight checks whether a management cluster has what servers need to become nodes: the version of Kubernetes, the\n" +
			"definitions of Metal3's kinds and of ours, hosts that Metal3 works on, what is asked before objects are written, and Ironic.\n" +
			"It prints what it finds: OK, SKIP (it could not be checked), WARN (it works, but perhaps not as expected) or FAIL, and below it the\n" +
			"command that mends it. It ends with exit code 1 if something is FAIL.\n\n" +
			"It only reads, with the rights of its kubeconfig, or of the pod: kubectl -n karpenter-metal3 exec " +
			"deployment/karpenter-metal3-manager\n" +
			"-- /manager preflight. What these may not read is SKIP. Which right is missing is said.",
		Flags: o.addFlags,
		Run:   func(ctx context.Context) error { return o.run(ctx, out) },
	})
}

func (o *preflightOptions) addFlags(sections *cliflag.NamedFlagSets) {
	o.cluster.AddFlags(sections.FlagSet("management cluster"))
	checks := sections.FlagSet("checks")
	checks.DurationVar(&o.timeout, "timeout", o.timeout,
		"How long to wait for the API server, and for each answer of it, of Ironic and of image servers.")
	checks.StringVar(&o.ironicURL, "ironic-url", o.ironicURL,
		"URL of Ironic, for example https://192.0.2.2:6385. It is asked for its version and its drivers, without credentials. Unset: only the "+
			"Ironic objects of ironic-standalone-operator are looked at.")
	checks.StringVar(&o.ironicCAFile, "ironic-ca-file", o.ironicCAFile,
		"File with the certificate authorities that have signed Ironic's certificate, PEM. Unset: those of the system.")
	checks.BoolVar(&o.images, "images", o.images,
		"Ask for the images of OSImages and NodeTypes, and the files with their checksums, from this machine and with what credentials their "+
			"URLs have. Hosts that spec.imageHosts of a NodeProvider does not allow are not asked.")
}

func (o *preflightOptions) run(ctx context.Context, out io.Writer) error {
	if err := operator.CheckPositive("timeout", o.timeout); err != nil {
		return err
	}
	outside := preflight.Outside{Ironic: o.ironicURL}
	var authorities []byte
	var err error
	if o.ironicCAFile != "" {
		if authorities, err = os.ReadFile(o.ironicCAFile); err != nil {
			return fmt.Errorf("--ironic-ca-file cannot be read, %w", err)
		}
	}
	if outside.IronicClient, err = preflight.NewIronicClient(o.timeout, authorities); err != nil {
		return fmt.Errorf("--ironic-ca-file is %s: %w", o.ironicCAFile, err)
	}
	if o.images {
		outside.Images = preflight.NewImageClient(o.timeout)
	}
	ctx, config, err := o.cluster.RESTConfig(ctx, name)
	if err != nil {
		return err
	}
	config.Timeout = o.timeout
	if err := operator.WaitForAPI(ctx, config, o.cluster.Name, o.timeout); err != nil {
		return err
	}
	live, err := client.New(config, client.Options{Scheme: operator.ManagementScheme()})
	if err != nil {
		return fmt.Errorf("making a client for the %s at %s, %w", o.cluster.Name, config.Host, err)
	}
	cluster, err := newPreflightCluster(config, live)
	if err != nil {
		return err
	}
	results := cluster.Everything(ctx, outside)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := preflight.Print(out, results); err != nil {
		return err
	}
	if failed := preflight.Failures(results); failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(results))
	}
	return nil
}

func newPreflightCluster(config *rest.Config, reader client.Reader) (*preflight.Cluster, error) {
	discovery, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the management cluster at %s, %w", config.Host, err)
	}
	return &preflight.Cluster{Reader: reader, Discovery: discovery, Clock: clock.RealClock{}}, nil
}

// logPreflight makes the leader log the essential checks once, in the background. They read from the cache, and a
// failed check stops nothing.
func logPreflight(mgr manager.Manager) error {
	cluster, err := newPreflightCluster(mgr.GetConfig(), mgr.GetClient())
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		preflight.Log(log.FromContext(ctx), cluster.Essentials(ctx))
		return nil
	}))
}
