// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// verb is a command that changes one object of the management cluster.
type verb struct {
	*options
	client   client.Client
	snapshot *view.Snapshot
	fleet    *view.Fleet
}

// verb reads the fleet, to find the object by its name and to know what runs on it.
func (o *options) verb(ctx context.Context) (*verb, error) {
	cluster, err := o.connectToWrite()
	if err != nil {
		return nil, err
	}
	snapshot, err := o.readClusters(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return &verb{options: o, client: cluster, snapshot: snapshot, fleet: view.New(snapshot)}, nil
}

func (o *options) connectToWrite() (client.Client, error) {
	if o.snapshot != "" {
		return nil, errors.New("--snapshot is set, and this command changes a cluster: leave it out")
	}
	return o.connect(o.management, "management cluster")
}

// patchHost changes annotations of a host, and fails if the host has changed since it was read. It updates the host
// in the snapshot, too.
func (v *verb) patchHost(ctx context.Context, host *bmov1alpha1.BareMetalHost, change func()) error {
	before := host.DeepCopy()
	change()
	if err := v.client.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing to host %s, %w", nameOf(host), err)
	}
	return nil
}

// patchMachine changes a Machine and notes the reason, if any. It fails if the Machine has changed since it was read.
func (v *verb) patchMachine(ctx context.Context, machine *v1alpha1.Machine, reason string, change func()) error {
	before := machine.DeepCopy()
	change()
	if reason != "" {
		setAnnotation(machine, v1alpha1.ReasonAnnotationKey, reason)
	}
	if err := v.client.Patch(ctx, machine, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing to Machine %s, %w", nameOf(machine), err)
	}
	return nil
}

func (v *verb) say(format string, args ...any) { fmt.Fprintf(v.Out, format+"\n", args...) }

func nameOf(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// userOf says what uses a host now; empty if nothing does.
func (v *verb) userOf(host *bmov1alpha1.BareMetalHost) string {
	machine := v.fleet.MachineOn(host)
	switch {
	case machine != nil && machine.Status.NodeName != "":
		return fmt.Sprintf("Machine %s, node %s,", nameOf(machine), machine.Status.NodeName)
	case machine != nil:
		return "Machine " + nameOf(machine)
	}
	return ""
}

func setAnnotation(object metav1.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
}

func (o *options) maintenanceCommand() *cobra.Command {
	return o.keepOutCommand("maintenance", v1alpha1.MaintenanceAnnotationKey, "Take a server out of the pool for work on it",
		"  kubectl metal3 maintenance server-07 --reason 'DIMM 3 is replaced'")
}

func (o *options) quarantineCommand() *cobra.Command {
	return o.keepOutCommand("quarantine", v1alpha1.QuarantinedAnnotationKey,
		"Keep a server out of the pool until it has been checked",
		"  kubectl metal3 quarantine server-07 --reason 'GPU 3 falls off the bus'")
}

// keepOutCommand returns a command named like a state. It sets the annotation key, and a host in this state is not
// claimed.
func (o *options) keepOutCommand(state, key, short, example string) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: state + " HOST", Short: short, Args: cobra.ExactArgs(1), Example: example, ValidArgsFunction: o.completeName("host"),
		Long: short + ": no Machine claims it until 'kubectl metal3 return' takes it back. A Machine that has the server keeps it.\n" +
			"It sets the annotation " + key + ", unless the manager has set it.",
		RunE: func(command *cobra.Command, arguments []string) error {
			v, host, err := o.hostVerb(command.Context(), arguments[0])
			if err != nil {
				return err
			}
			record, recorded := inventory.QuarantineOf(host)
			switch before, is := host.Annotations[key]; {
			case is && before == reason:
				v.say("server %s is in %s already", nameOf(host), state)
			case recorded && key == v1alpha1.QuarantinedAnnotationKey:
				// The manager's record names the previous user, for quotas and NVLink domains. A person's text would
				// replace it.
				v.say("server %s is in quarantine already, by the manager: %s. Its record stays as it is, and nothing was written", nameOf(host),
					record.Reason)
			default:
				if err := v.patchHost(command.Context(), host, func() { setAnnotation(host, key, reason) }); err != nil {
					return err
				}
				v.say("server %s is in %s: %s", nameOf(host), state, reason)
			}
			if user := v.userOf(host); user != "" {
				v.say("%s keeps it. To drain it, delete the NodeClaim of that name in the tenant cluster, or the Machine if it has none", user)
			}
			return nil
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "Why, for the next person. Required.")
	_ = command.MarkFlagRequired("reason") // the flag is there
	return command
}

func (o *options) returnCommand() *cobra.Command {
	return &cobra.Command{
		Use: "return HOST", Short: "Take a server back into the pool after maintenance or quarantine", Args: cobra.ExactArgs(1),
		Long: "Takes a server back into the pool: it removes the annotations " + v1alpha1.MaintenanceAnnotationKey + " and\n" +
			v1alpha1.QuarantinedAnnotationKey + ", and says what else keeps the server from being claimed.",
		Example: "  kubectl metal3 return server-07", ValidArgsFunction: o.completeName("host"),
		RunE: func(command *cobra.Command, arguments []string) error {
			v, host, err := o.hostVerb(command.Context(), arguments[0])
			if err != nil {
				return err
			}
			var removed []string
			if err := v.patchHost(command.Context(), host, func() {
				for _, key := range []string{v1alpha1.MaintenanceAnnotationKey, v1alpha1.QuarantinedAnnotationKey} {
					if value, is := host.Annotations[key]; is {
						removed = append(removed, fmt.Sprintf("%s (%s)", key, value))
						delete(host.Annotations, key)
					}
				}
			}); err != nil {
				return err
			}
			if len(removed) == 0 {
				v.say("server %s is neither in maintenance nor in quarantine", nameOf(host))
			} else {
				v.say("removed from server %s: %s", nameOf(host), strings.Join(removed, ", "))
			}
			cause, err := view.New(v.snapshot).Explain("host", nameOf(host))
			if err != nil {
				return err
			}
			draw(v.Out, cause, "", "", isColoured(v.Out))
			return nil
		},
	}
}

func (o *options) rebootCommand() *cobra.Command {
	var reason string
	var hard, yes bool
	command := &cobra.Command{
		Use: "reboot MACHINE", Short: "Reboot the server of a Machine once", Args: cobra.ExactArgs(1),
		Long: "Reboots the server of a Machine once: softly, and with a reset if the operating system does not answer, or at once with " +
			"--hard.\n" +
			"It sets the annotation " + v1alpha1.RebootAnnotationKey + ", which the manager removes once it has told Metal3.",
		Example: "  kubectl metal3 reboot acme/default-x7f2k --reason 'GPU driver hangs'", ValidArgsFunction: o.completeName("machine"),
		RunE: func(command *cobra.Command, arguments []string) error {
			v, machine, err := o.machineVerb(command.Context(), arguments[0], "reboots it", yes)
			if err != nil {
				return err
			}
			how := v1alpha1.RebootSoft
			if hard {
				how = v1alpha1.RebootHard
			}
			if err := v.patchMachine(command.Context(), machine, reason, func() {
				setAnnotation(machine, v1alpha1.RebootAnnotationKey, how)
			}); err != nil {
				return err
			}
			v.say("Metal3 will be told to reboot the server of Machine %s (%s). status.power.lastReboot says when it was", nameOf(machine), how)
			return nil
		},
	}
	command.Flags().BoolVar(&hard, "hard", false, "Reset it at once.")
	addConfirmation(command, &reason, &yes)
	return command
}

func (o *options) powerCommand() *cobra.Command {
	var reason string
	var yes bool
	command := &cobra.Command{
		Use: "power MACHINE on|off", Short: "Switch the server of a Machine on or off", Args: cobra.ExactArgs(2),
		Long:              "Switches the server of a Machine on or off: it sets spec.power.state of the Machine.",
		Example:           "  kubectl metal3 power acme/default-x7f2k off --reason 'heat in rack r2'",
		ValidArgsFunction: o.completeName("machine", "on", "off"),
		RunE: func(command *cobra.Command, arguments []string) error {
			states := map[string]v1alpha1.PowerState{"on": v1alpha1.PowerOn, "off": v1alpha1.PowerOff}
			state, known := states[strings.ToLower(arguments[1])]
			if !known {
				return fmt.Errorf("the power is %q: it must be on or off", arguments[1])
			}
			v, machine, err := o.machineVerb(command.Context(), arguments[0], "switches it "+strings.ToLower(arguments[1]),
				yes || state == v1alpha1.PowerOn)
			if err != nil {
				return err
			}
			if err := v.patchMachine(command.Context(), machine, reason, func() {
				machine.Spec.Power = &v1alpha1.MachinePower{State: state}
			}); err != nil {
				return err
			}
			v.say("spec.power.state of Machine %s is %s. status.power.state says when its server is", nameOf(machine), state)
			return nil
		},
	}
	addConfirmation(command, &reason, &yes)
	return command
}

func addConfirmation(command *cobra.Command, reason *string, yes *bool) {
	command.Flags().StringVar(reason, "reason", "", "Why, for the next person: it is written to the annotation "+
		""+v1alpha1.ReasonAnnotationKey+" of the Machine.")
	command.Flags().BoolVarP(yes, "yes", "y", false, "Do not ask, although a node is in use.")
}

func (o *options) hostVerb(ctx context.Context, name string) (*verb, *bmov1alpha1.BareMetalHost, error) {
	o.readFor("host", name)
	v, err := o.verb(ctx)
	if err != nil {
		return nil, nil, err
	}
	host, err := v.fleet.Host(name)
	return v, host, err
}

// machineVerb returns the verb and a Machine with a server. It asks for confirmation if the node is in use.
func (o *options) machineVerb(ctx context.Context, name, does string, yes bool) (*verb, *v1alpha1.Machine, error) {
	o.scope.Resources = machineResources
	if namespace, _, qualified := strings.Cut(name, "/"); qualified {
		o.scope.Machines = namespace
	}
	v, err := o.verb(ctx)
	if err != nil {
		return nil, nil, err
	}
	machine, err := v.fleet.Machine(name)
	if err != nil {
		return nil, nil, err
	}
	if machine.Status.HostRef == nil {
		return nil, nil, fmt.Errorf("there is no server of Machine %s: see %s", nameOf(machine),
			shell.Command("kubectl metal3 explain machine %s", nameOf(machine)))
	}
	if machine.Status.Phase == v1alpha1.MachineJoined && !yes {
		if err := v.confirm(fmt.Sprintf("node %s runs on server %s, and this %s", machine.Status.NodeName, machine.Status.HostRef.Name,
			does)); err != nil {
			return nil, nil, err
		}
	}
	return v, machine, nil
}

// confirm asks a person, and fails if the input is no terminal.
func (v *verb) confirm(what string) error {
	if _, isFile := v.In.(*os.File); isFile && !isTerminal(v.In) {
		return fmt.Errorf("%s: confirm it by --yes", what)
	}
	fmt.Fprintf(v.ErrOut, "%s. Type yes to go on: ", what)
	answer, err := bufio.NewReader(v.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}
