// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/whatif"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// signs are the signs of verdicts, with their colours on a terminal.
var signs = map[view.Verdict]struct{ sign, colour string }{
	view.Good: {"✓", "32"}, view.Waiting: {"…", "33"}, view.Wrong: {"✗", "31"}, view.Note: {"·", dim},
}

// Styles of text on a terminal.
const (
	bold    = "1"
	dim     = "2"
	reverse = "7"
)

func paint(style, text string) string { return "\x1b[" + style + "m" + text + "\x1b[0m" }

func (o *options) explainCommand() *cobra.Command {
	labels := topology.Defaults()
	command := &cobra.Command{
		Use:   "explain KIND NAME",
		Short: "Say why a pod or a group of pods, a NodeClaim, a Machine, a server or a NodeType is as it is, and what to do",
		Long: "Draws a tree from an object to the causes of its state. KIND is " + strings.Join(view.Explainable, ", ") + ".\n" +
			"NAME may have its namespace and a slash in front; KIND/NAME is the same. ✓ is as it should be, … is on its way, ✗ stays\n" +
			"like this until something is changed. The exit code is 1 if the object itself is ✗.",
		Example: "  kubectl metal3 explain pod default/training-0 --tenant-kubeconfig acme.kubeconfig\n  kubectl metal3 explain host " +
			"server-07\n" +
			"  kubectl metal3 explain podgroup/train --tenant-kubeconfig acme.kubeconfig\n  kubectl metal3 explain nodetype h100-8x",
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 1 && strings.Contains(arguments[0], "/") {
				return nil
			}
			return cobra.ExactArgs(2)(command, arguments)
		}, ValidArgsFunction: o.completeKind(view.Explainable...),
		RunE: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 1 {
				arguments = strings.SplitN(arguments[0], "/", 2)
			}
			kind := singular(arguments[0])
			o.events = view.IsGroup(kind)
			fleet, err := o.fleetFor(command.Context(), kind, arguments[1], labels)
			if err != nil {
				return err
			}
			cause, err := fleet.Explain(kind, arguments[1])
			if err != nil {
				return err
			}
			if !o.output.isForPeople() {
				err = o.print(listing{kind: "Cause", items: []item{{value: cause}}})
			} else {
				draw(o.Out, cause, "", "", isColoured(o.Out))
			}
			if err == nil && cause.Verdict == view.Wrong {
				return errWrong
			}
			return err
		},
	}
	command.Flags().StringSliceVar(&labels, "topology-labels", labels, "The same flag of the programs, for a pod that waits.")
	return o.addOutput(command)
}

// fleetFor reads the objects that an answer about an object needs. Karpenter's scheduler answers for a waiting pod,
// and needs all pods of the tenant cluster. A caller who may read only the pods of the pod's namespace gets the
// answer without the plan.
func (o *options) fleetFor(ctx context.Context, kind, name string, labels []string) (*view.Fleet, error) {
	if kind != "pod" {
		o.readFor(kind, name)
		return o.fleet(ctx)
	}
	mapping, err := topology.Parse(labels)
	if err != nil {
		return nil, err
	}
	o.planning = true
	snapshot, err := o.read(ctx)
	if apierrors.IsForbidden(err) {
		o.planning = false
		o.readFor(kind, name)
		return o.fleet(ctx)
	}
	if err != nil {
		return nil, err
	}
	fleet := view.New(snapshot)
	if snapshot.Tenant == nil || len(snapshot.More) > 0 || snapshot.TenantCluster() == nil {
		return fleet, nil
	}
	plans, err := whatif.Plans(ctx, snapshot, mapping)
	if err != nil {
		return nil, err
	}
	fleet.PlanWith(plans)
	return fleet, nil
}

// singular returns the kind for a name of its resource, such as "pods", "po" or "bmh".
func singular(kind string) string {
	switch name := strings.ToLower(kind); name {
	case "po", "pods":
		return "pod"
	case "podgroups", "podgroups.scheduling.k8s.io":
		return "podgroup"
	case "jobs", "jobsets":
		return strings.TrimSuffix(name, "s")
	case "nodeclaims":
		return "nodeclaim"
	case "machines", "machines.karpenter.metal3.io":
		return "machine"
	case "hosts", "baremetalhost", "baremetalhosts", "bmh", "server", "servers":
		return "host"
	case "nodetypes", "nodetypes.karpenter.metal3.io":
		return "nodetype"
	default:
		return name
	}
}

func isTerminal(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

func isColoured(out io.Writer) bool { return isTerminal(out) && os.Getenv("NO_COLOR") == "" }

// draw writes a tree. Its first line begins with first, and its other lines with rest.
func draw(out io.Writer, cause view.Cause, first, rest string, colour bool) {
	sign := signs[cause.Verdict].sign
	if colour {
		sign = paint(signs[cause.Verdict].colour, sign)
	}
	fmt.Fprintf(out, "%s%s %s\n", first, sign, view.Shown(cause.Text))
	below := rest + "│  "
	if len(cause.Causes) == 0 {
		below = rest + "   "
	}
	if cause.Remedy != "" {
		fmt.Fprintf(out, "%s→ %s\n", below, view.Shown(cause.Remedy))
	}
	for i, inner := range cause.Causes {
		if i == len(cause.Causes)-1 {
			draw(out, inner, rest+"└─ ", rest+"   ", colour)
		} else {
			draw(out, inner, rest+"├─ ", rest+"│  ", colour)
		}
	}
}

func (o *options) issuesCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "issues", Short: "List what is wrong in the fleet now, the worst first, with what mends it", Args: cobra.NoArgs,
		Long: "Lists what is wrong in the fleet now, the worst first, each with the command that mends it. The exit code is 1 if an issue is\n" +
			"Critical or a Warning.",
		Example: "  kubectl metal3 issues\n  kubectl metal3 issues --no-headers -o custom-columns=OBJECT:.object,REMEDY:.remedy",
		RunE: func(command *cobra.Command, _ []string) error {
			o.checks = true
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			issues := fleet.Issues()
			wrong := len(issues) > 0 && issues[0].Severity != view.Info
			if len(issues) == 0 && o.output.isForPeople() {
				fmt.Fprintln(o.Out, "nothing is wrong")
			} else {
				list := listing{kind: "Issue", columns: columns("Severity", "Object", "Problem", "Remedy")}
				for _, issue := range issues {
					list.add(issue, string(issue.Severity), issue.Object, issue.Problem, issue.Remedy)
				}
				err = o.print(list)
			}
			if err == nil && wrong {
				return errWrong
			}
			return err
		},
	}
	return o.addTable(command)
}

func (o *options) timelineCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "timeline KIND NAME", Short: "Show the steps of a server or a Machine, and how long each took", Args: cobra.ExactArgs(2),
		ValidArgsFunction: o.completeKind("host", "machine"),
		Long: "Shows the steps of a server or a Machine in the order in which they began. KIND is host or machine. TYPICAL is how long the " +
			"step\n" +
			"usually takes: of the way from the claim to the node the estimate of the NodeType, of the others the median of the other servers\n" +
			"of the NodeType. Of a host, it has the earlier uses that are recorded.",
		Example: "  kubectl metal3 timeline host server-07\n  kubectl metal3 timeline machine acme/default-x7f2k",
		RunE: func(command *cobra.Command, arguments []string) error {
			kind := singular(arguments[0])
			o.readFor(kind, arguments[1])
			if kind == "host" {
				o.usage = &arguments[1]
			}
			fleet, err := o.fleet(command.Context())
			if err != nil {
				return err
			}
			steps, err := fleet.Timeline(kind, arguments[1])
			if err != nil {
				return err
			}
			return o.print(timelineOf(steps, fleet.Now()))
		},
	}
	return o.addTable(command)
}

func timelineOf(steps []view.Step, now time.Time) listing {
	list := listing{kind: "Step", columns: columns("Start", "Step", "Took", "Typical", "Note")}
	for _, step := range steps {
		took, typical := step.Duration(now).Round(time.Second).String(), ""
		if step.End == nil {
			took += " so far"
		}
		if step.TypicalSeconds > 0 {
			typical = (time.Duration(step.TypicalSeconds) * time.Second).String()
		}
		list.add(step, step.Start.UTC().Format(time.RFC3339), step.Name, took, typical, step.Note)
	}
	return list
}

func (o *options) snapshotCommand() *cobra.Command {
	return &cobra.Command{
		Use: "snapshot FILE", Short: "Write what the other commands read to a file, for --snapshot", Args: cobra.ExactArgs(1),
		Long: "Writes what the other commands read of the clusters to a file, - for standard output. User data, network data, values of\n" +
			"properties that are not ours, the environment and arguments of pods and credentials in URLs are left out, and what is called a\n" +
			"password or has the form of a token is xxxxx. --snapshot FILE shows it again, without a cluster.",
		Example: "  kubectl metal3 snapshot fleet.json --tenant-kubeconfig acme.kubeconfig\n  kubectl metal3 fleet --snapshot fleet.json",
		RunE: func(command *cobra.Command, arguments []string) error {
			o.planning, o.usage, o.checks, o.events = true, new(string), true, true
			snapshot, err := o.read(command.Context())
			if err != nil {
				return err
			}
			if arguments[0] == "-" {
				return snapshot.Save(o.Out)
			}
			file, err := os.OpenFile(arguments[0], os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
			if err != nil {
				return fmt.Errorf("writing the snapshot, %w", err)
			}
			if err := snapshot.Save(file); err != nil {
				file.Close()
				return fmt.Errorf("writing the snapshot, %w", err)
			}
			if err := file.Close(); err != nil {
				return fmt.Errorf("writing the snapshot, %w", err)
			}
			fmt.Fprintf(o.ErrOut, "wrote %s, taken %s ago\n", arguments[0], duration.HumanDuration(time.Since(snapshot.Time.Time)))
			return nil
		},
	}
}
