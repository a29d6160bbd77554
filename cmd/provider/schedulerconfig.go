// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cli"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/packing"
)

// schedulerConfig are the flags of the subcommand of that name.
type schedulerConfig struct {
	schedulerName string
	resources     []string
	weight        int32
	kubeconfig    string
	management    cli.Cluster
}

func newSchedulerConfigCommand() *cobra.Command {
	defaults := packing.DefaultSettings()
	s := &schedulerConfig{
		schedulerName: defaults.SchedulerName,
		weight:        defaults.Weight,
		management:    cli.Cluster{Name: managementName, Prefix: "management-", QPS: 100, Burst: 200},
	}
	for _, name := range defaults.Resources {
		s.resources = append(s.resources, string(name))
	}
	return cli.NewSubcommand(cli.Subcommand{
		Name:  "scheduler-config",
		Short: "Print a configuration with which kube-scheduler fills one server before it takes the next.",
		Long: "Prints a configuration for the tenant's kube-scheduler (--config), as YAML. By default the scheduler spreads pods, so that servers " +
			"with accelerators never become empty and never go back to the pool; with this configuration it prefers the node that has the " +
			"least left of the accelerators that a pod asks for.",
		Flags: s.addFlags,
		Run:   s.run,
	})
}

func (s *schedulerConfig) addFlags(sections *cliflag.NamedFlagSets) {
	flags := sections.FlagSet("packing")
	flags.StringSliceVar(&s.resources, "resources", s.resources,
		"Resources to pack. With cpu and memory among them all pods are packed, not only those that ask for accelerators.")
	flags.Int32Var(&s.weight, "weight", s.weight,
		fmt.Sprintf("Weight of packing among the scheduler's preferences, which have 1 to 3 otherwise; from 1 to %d.", packing.MaxWeight))
	flags.StringVar(&s.schedulerName, "scheduler-name", s.schedulerName, "The scheduler name of the pods that are packed.")
	flags.StringVar(&s.kubeconfig, "scheduler-kubeconfig", s.kubeconfig,
		"Path of the kubeconfig that kube-scheduler is to use: with --config it ignores its own flag. If empty, the service account of its pod.")
	catalog := sections.FlagSet("catalog")
	s.management.AddFlags(catalog)
	catalog.Lookup(s.management.Prefix + "kubeconfig").Usage =
		"Path of the kubeconfig of the " + managementName + ". If set, the accelerators of its NodeTypes are packed too."
}

func (s *schedulerConfig) run(cmd *cobra.Command, out io.Writer) error {
	settings := packing.Settings{SchedulerName: s.schedulerName, Weight: s.weight, Kubeconfig: s.kubeconfig}
	for _, name := range s.resources {
		settings.Resources = append(settings.Resources, corev1.ResourceName(name))
	}
	if s.management.Kubeconfig != "" {
		offered, err := s.offered(cmd.Context())
		if err != nil {
			return err
		}
		settings.Resources = packing.With(settings.Resources, offered...)
	}
	if err := settings.Validate(); err != nil {
		return err
	}
	text, err := packing.YAML(packing.Configuration(settings))
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// offered are the resources of all NodeTypes.
func (s *schedulerConfig) offered(ctx context.Context) ([]corev1.ResourceList, error) {
	config, err := s.management.RESTConfig(name)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("adding our kinds to a scheme, %w", err)
	}
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client for the %s at %s, %w", managementName, config.Host, err)
	}
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := reader.List(ctx, nodeTypes); err != nil {
		return nil, fmt.Errorf("listing NodeTypes in the %s at %s, %w", managementName, config.Host, err)
	}
	resources := make([]corev1.ResourceList, 0, len(nodeTypes.Items))
	for i := range nodeTypes.Items {
		resources = append(resources, nodeTypes.Items[i].Spec.Resources)
	}
	return resources, nil
}
