// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/whatif"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

type question struct {
	file     string
	replicas int
	topology []string
}

func (o *options) whatIfCommand() *cobra.Command {
	q := &question{topology: topology.Defaults()}
	command := &cobra.Command{
		Use:   "what-if -f FILE",
		Short: "Say what a workload would take, or a change of the fleet would do",
		Long: "Plans with Karpenter's own scheduler and the instance types of the provider on what was read, and writes nothing: which\n" +
			"servers would be taken and for which pods, when these would run, which pods would not fit and why, and what would be left.\n\n" +
			"FILE has Pods, Deployments, ReplicaSets, StatefulSets and Jobs; - is the standard input. drain, without and add change the\n" +
			"fleet first, and -f is optional there. The exit code is 1 if a pod would not fit.",
		Example: "  kubectl metal3 what-if -f workload.yaml --replicas 4 --tenant-kubeconfig acme.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if q.file == "" {
				return errors.New("what-if needs a workload: name its file with -f, or ask drain, without or add")
			}
			return o.whatIf(command.Context(), q, nil)
		},
	}
	flags := command.PersistentFlags()
	flags.StringVarP(&q.file, "filename", "f", "", "File of the workload; - is the standard input.")
	flags.IntVar(&q.replicas, "replicas", 0, "Pods of each document, instead of what it says.")
	flags.StringSliceVar(&q.topology, "topology-labels", q.topology, "The same flag of the programs.")
	change := func(use, short, example string, arguments int, parse func([]string) (whatif.Change, error)) *cobra.Command {
		return o.addOutput(&cobra.Command{
			Use: use, Short: short, Example: example, Args: cobra.ExactArgs(arguments),
			RunE: func(command *cobra.Command, arguments []string) error {
				change, err := parse(arguments)
				if err != nil {
					return err
				}
				return o.whatIf(command.Context(), q, change)
			},
		})
	}
	command.AddCommand(
		change("drain HOST", "Say where the pods of a server would go", "  kubectl metal3 what-if drain server-07", 1,
			func(arguments []string) (whatif.Change, error) { return whatif.Drain(arguments[0]), nil }),
		change("without SELECTOR", "Say what would be if the servers with some labels were gone", "  kubectl metal3 what-if without rack=r2", 1,
			func(arguments []string) (whatif.Change, error) {
				selector, err := labels.Parse(arguments[0])
				if err != nil {
					return nil, fmt.Errorf("%q does not select labels: write KEY=VALUE, as in rack=r2", arguments[0])
				}
				if selector.Empty() {
					return nil, errors.New("the selector is empty, and would select all servers: write KEY=VALUE, as in rack=r2")
				}
				return whatif.Without(selector), nil
			}),
		change("add NUMBER NODETYPE", "Say what more servers would do", "  kubectl metal3 what-if add 2 h100-8x", 2,
			func(arguments []string) (whatif.Change, error) {
				count, err := strconv.Atoi(arguments[0])
				if err != nil {
					return nil, fmt.Errorf("%q is not a number of servers: write it first, as in what-if add 2 h100-8x", arguments[0])
				}
				return whatif.Add(count, arguments[1]), nil
			}),
	)
	command.AddCommand(o.rolloutCommand(q))
	return o.addOutput(command)
}

func (o *options) rolloutCommand(q *question) *cobra.Command {
	var image string
	command := &cobra.Command{
		Use: "rollout NODETYPE --os-image IMAGE", Short: "Say which nodes another image would replace, and how", Args: cobra.ExactArgs(1),
		Long: "Says what becomes of each server of a NodeType if that names another OSImage: SpareFirst is replaced by a free server,\n" +
			"Removed needs no replacement, DrainFirst is installed again because no server is free, Blocked is not replaced, Starting is\n" +
			"no node yet, and Stays has the image or another from its class. The exit code is 1 if a node would be Blocked.",
		Example: "  kubectl metal3 what-if rollout h100-8x --os-image noble-2",
		RunE: func(command *cobra.Command, arguments []string) error {
			if image == "" {
				return errors.New("rollout needs the name of an OSImage: give it with --os-image")
			}
			if q.file != "" {
				return errors.New("rollout plans no workload: leave -f out")
			}
			mapping, err := topology.Parse(q.topology)
			if err != nil {
				return err
			}
			o.planning = true
			snapshot, err := o.read(command.Context())
			if err != nil {
				return err
			}
			rollout, err := whatif.PredictRollout(command.Context(), snapshot, arguments[0], image, mapping)
			if err != nil {
				return err
			}
			if err := o.drawRollout(rollout); err != nil {
				return err
			}
			if slices.ContainsFunc(rollout.Replacements, func(replacement whatif.Replacement) bool { return replacement.Way == whatif.Blocked }) {
				return errWrong
			}
			return nil
		},
	}
	command.Flags().StringVar(&image, "os-image", "", "Name of the OSImage that the NodeType would name.")
	return o.addOutput(command)
}

func (o *options) drawRollout(rollout *whatif.Rollout) error {
	if !o.output.isForPeople() {
		return o.print(listing{kind: "Rollout", items: []item{{value: rollout}}})
	}
	list := listing{columns: columns("Machine", "Server", "Way", "By", "Pods", "Why")}
	for _, replacement := range rollout.Replacements {
		list.add(nil, replacement.Machine, replacement.Server, string(replacement.Way), replacement.By, fmt.Sprint(replacement.Pods),
			replacement.Why)
	}
	if err := o.print(list); err != nil {
		return err
	}
	for _, pool := range slices.Sorted(maps.Keys(rollout.AtOnce)) {
		fmt.Fprintf(o.Out, "NodePool %s lets %s go at a time\n", pool, count(rollout.AtOnce[pool], "node"))
	}
	if rollout.LeastSeconds > 0 {
		fmt.Fprintf(o.Out, "It takes at least %s\n", duration.HumanDuration(time.Duration(rollout.LeastSeconds)*time.Second))
	}
	return nil
}

// whatIf answers the question as if the change had been made. The change may be nil.
func (o *options) whatIf(ctx context.Context, q *question, change whatif.Change) error {
	mapping, err := topology.Parse(q.topology)
	if err != nil {
		return err
	}
	asked := whatif.Question{Change: change, Topology: mapping}
	if q.replicas != 0 && q.file == "" {
		return errors.New("--replicas is of a workload: name its file with -f")
	}
	if q.file != "" {
		if asked.Pods, err = o.workload(q); err != nil {
			return err
		}
	}
	o.planning = true
	snapshot, err := o.read(ctx)
	if err != nil {
		return err
	}
	prediction, err := whatif.Predict(ctx, snapshot, asked)
	if err != nil {
		return err
	}
	if !o.output.isForPeople() {
		err = o.print(listing{kind: "Prediction", items: []item{{value: prediction}}})
	} else {
		err = o.draw(prediction)
	}
	if err == nil && len(prediction.Unfit) > 0 {
		return errWrong
	}
	return err
}

func (o *options) workload(q *question) ([]corev1.Pod, error) {
	var replicas *int
	if q.replicas != 0 {
		replicas = &q.replicas
	}
	from, name := o.In, "the standard input"
	if q.file != "-" {
		file, err := os.Open(q.file)
		if err != nil {
			return nil, fmt.Errorf("reading the workload, %w", err)
		}
		defer file.Close()
		from, name = file, q.file
	}
	pods, err := whatif.Workload(from, "default", replicas, whatif.FileBounds)
	if err != nil {
		return nil, fmt.Errorf("reading the workload, %s: %w", name, err)
	}
	return pods, nil
}

func (o *options) draw(p *whatif.Prediction) error {
	for _, note := range p.Notes {
		fmt.Fprintf(o.Out, "%s\n", note)
	}
	servers := listing{columns: columns("Server", "Zone", "Rack", "Type", "Pool", "Runs", "Pods")}
	for _, server := range p.Servers {
		ready := ""
		if server.TypicalSeconds > 0 {
			ready = "in " + duration.HumanDuration(time.Duration(server.TypicalSeconds)*time.Second)
		}
		servers.add(nil, server.Name, server.Zone, server.Rack, server.NodeType, server.NodePool, ready, conditions.List(server.Pods, maxNamed))
	}
	placed := listing{columns: columns("Node", "Runs", "Pods")}
	for _, placement := range p.OnNodes() {
		runs := "now"
		switch {
		case placement.Runs == nil:
			runs = ""
		case placement.Runs.After(p.Time.Time):
			runs = "in " + duration.HumanDuration(placement.Runs.Sub(p.Time.Time))
		}
		placed.add(nil, placement.Node, runs, conditions.List(placement.Pods, maxNamed))
	}
	left := listing{columns: columns("Type", "Total", "Available", "After", "For")}
	for _, capacity := range p.Capacity {
		left.add(nil, capacity.NodeType, fmt.Sprint(capacity.Total), fmt.Sprint(capacity.Before), fmt.Sprint(capacity.After),
			strings.Join(capacity.Allowed, ", "))
	}
	fmt.Fprintf(o.Out, "%s would be taken\n", count(len(p.Servers), "server"))
	for _, section := range []struct {
		head string
		list listing
	}{{"", servers}, {"On nodes that there are, or that are on their way\n", placed}, {"Servers left\n", left}} {
		if len(section.list.items) == 0 {
			continue
		}
		fmt.Fprint(o.Out, section.head)
		if err := o.print(section.list); err != nil {
			return err
		}
	}
	for _, quota := range p.Quotas {
		var limits []string
		if quota.Servers != nil {
			limits = append(limits, count(int(*quota.Servers), "server"))
		}
		if quota.GPUs != nil {
			limits = append(limits, count(int(*quota.GPUs), "GPU"))
		}
		for _, name := range slices.Sorted(maps.Keys(quota.NodeTypes)) {
			limits = append(limits, count(int(quota.NodeTypes[name]), "server")+" of "+name)
		}
		fmt.Fprintf(o.Out, "The quota of TenantCluster %s would leave %s\n", quota.Tenant, strings.Join(limits, " and "))
	}
	o.drawUnfit(p)
	return nil
}

// drawUnfit writes why pods would not fit. It draws one tree for all pods with the same reason.
func (o *options) drawUnfit(p *whatif.Prediction) {
	if len(p.Unfit) == 0 {
		return
	}
	fmt.Fprintf(o.Out, "%s would not fit\n", count(len(p.Unfit), "pod"))
	for _, alike := range p.UnfitAlike() {
		cause := view.Cause{Text: conditions.List(alike.Pods, maxNamed) + ": " + alike.Reason, Verdict: view.Wrong, Causes: alike.Causes}
		draw(o.Out, cause, "", "", isTerminal(o.Out))
	}
}

// maxNamed is how many pods a line names.
const maxNamed = 3

func count(number int, noun string) string {
	if number != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", number, noun)
}
