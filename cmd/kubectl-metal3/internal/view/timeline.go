// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Step is a step in the life of a server or a Machine.
type Step struct {
	Name  string      `json:"name"`
	Start metav1.Time `json:"start"`
	// End is nil until the step is over.
	End *metav1.Time `json:"end,omitempty"`
	// TypicalSeconds is how long the step usually takes for the type; 0 if unknown. For the whole way from the claim
	// to the node it is the estimate of the NodeType. For a part of the way it is the median of the other servers of
	// the type.
	TypicalSeconds int64 `json:"typicalSeconds,omitempty"`
	// Note has details: the Machine, or the current step.
	Note string `json:"note,omitempty"`
}

// Duration is the time from the start to the end of the step, or until now.
func (s Step) Duration(now time.Time) time.Duration {
	if s.End != nil {
		return s.End.Sub(s.Start.Time)
	}
	return now.Sub(s.Start.Time)
}

// StepNode is the name of the step that lasts while the server is a node.
const StepNode = "is a node"

// Timeline returns the steps of a host or a Machine, in the order of their start.
func (f *Fleet) Timeline(kind, name string) ([]Step, error) {
	switch kind {
	case "machine":
		machine, err := f.Machine(name)
		if err != nil {
			return nil, err
		}
		steps := f.stepsOf(machine)
		if host, has := machine.Host(); has && machine.Status.NodeTypeRef != nil {
			f.addTypical(steps, machine.Status.NodeTypeRef.Name, host.UID)
		}
		return inOrder(steps), nil
	case "host":
		host, err := f.Host(name)
		if err != nil {
			return nil, err
		}
		steps := append(operations(host), f.pastUses(host.Namespace+"/"+host.Name)...)
		known, _ := f.inventory.Server(keyOf(host))
		nodeTypes := known.Types
		if machine := f.MachineOn(host); machine != nil {
			steps = append(steps, f.stepsOf(machine)...)
			if machine.Status.NodeTypeRef != nil {
				nodeTypes = []string{machine.Status.NodeTypeRef.Name}
			}
		}
		if len(nodeTypes) > 0 {
			f.addTypical(steps, nodeTypes[0], host.UID)
		}
		return inOrder(steps), nil
	}
	return nil, fmt.Errorf("%q has no timeline: name host or machine", kind)
}

func inOrder(steps []Step) []Step {
	slices.SortStableFunc(steps, func(a, b Step) int { return a.Start.Compare(b.Start.Time) })
	return steps
}

// operations returns the operations in Metal3's history of a host: the last of each kind.
func operations(host *bmov1alpha1.BareMetalHost) []Step {
	history := host.Status.OperationHistory
	var steps []Step
	for _, operation := range []struct {
		name   string
		metric bmov1alpha1.OperationMetric
	}{
		{"Metal3 registers it", history.Register}, {"Metal3 inspects it", history.Inspect}, {provisions, history.Provision},
		{deprovisions, history.Deprovision},
	} {
		if operation.metric.Start.IsZero() {
			continue
		}
		step := Step{Name: operation.name, Start: operation.metric.Start}
		if !operation.metric.End.IsZero() {
			step.End = operation.metric.End.DeepCopy()
		}
		steps = append(steps, step)
	}
	return steps
}

// Steps that take the same time on all servers of a type. The wait of a Machine is no such step: it depends on free
// servers.
const (
	provisions   = "Metal3 provisions it"
	deprovisions = "Metal3 deprovisions it"

	installed = "is installed"
	boots     = "boots and joins"
)

// addTypical sets the usual time of a server's steps: the median of the same steps of the other servers of the type
// that were read. No object has these medians: the NodeType estimates only the whole way.
func (f *Fleet) addTypical(steps []Step, nodeType string, but types.UID) {
	var others []*bmov1alpha1.BareMetalHost
	for _, server := range f.servers {
		host := f.hosts[types.NamespacedName{Namespace: server.Namespace, Name: server.Name}]
		if host.UID != but && slices.Contains(server.Types, nodeType) {
			others = append(others, host)
		}
	}
	took := f.took(others)
	for i := range steps {
		if typical := median(took[steps[i].Name]); typical > 0 {
			steps[i].TypicalSeconds = typical
		}
	}
}

// took returns how long the finished steps of hosts took, by name. It leaves out Machines that an error interrupted.
func (f *Fleet) took(hosts []*bmov1alpha1.BareMetalHost) map[string][]time.Duration {
	took := map[string][]time.Duration{}
	add := func(name string, start, end metav1.Time) {
		if d := end.Sub(start.Time); d >= 0 {
			took[name] = append(took[name], d)
		}
	}
	for _, host := range hosts {
		for _, step := range operations(host) {
			if step.End != nil {
				add(step.Name, step.Start, *step.End)
			}
		}
		machine := f.MachineOn(host)
		if machine == nil || machine.Status.Progress != nil && machine.Status.Progress.Interrupted {
			continue // an hour in error is no measure
		}
		claimed, provisioned, joined := reached(machine)
		if claimed != nil && provisioned != nil {
			add(installed, *claimed, *provisioned)
		}
		if provisioned != nil && joined != nil {
			add(boots, *provisioned, *joined)
		}
	}
	return took
}

// median returns the median of durations in seconds; 0 if there are none. It sorts all.
func median(all []time.Duration) int64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return int64(all[(len(all)-1)/2].Round(time.Second) / time.Second)
}

// reached returns when a Machine was claimed, provisioned and joined; nil for a state that it has not reached.
func reached(machine *v1alpha1.Machine) (claimed, provisioned, joined *metav1.Time) {
	since := func(conditionType string) *metav1.Time {
		if condition := conditions.Find(machine.Status.Conditions, conditionType); condition.Status == metav1.ConditionTrue {
			return &condition.LastTransitionTime
		}
		return nil
	}
	return since(v1alpha1.ConditionClaimed), since(v1alpha1.ConditionProvisioned), since(v1alpha1.ConditionJoined)
}

func (f *Fleet) stepsOf(machine *v1alpha1.Machine) []Step {
	name := machine.Namespace + "/" + machine.Name
	claimed, provisioned, joined := reached(machine)
	steps := []Step{{Name: "waits for a server", Start: machine.CreationTimestamp, End: claimed, Note: "Machine " + name}}
	if claimed == nil {
		steps[0].Note += ": " + conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady).Message
		return append(steps, released(machine)...)
	}
	// A deleted Machine does not reach its remaining states any more.
	steps = append(steps, Step{Name: installed, Start: *claimed, End: cmp.Or(provisioned, machine.DeletionTimestamp)})
	if provisioned != nil && machine.Spec.TenantClusterRef != nil {
		steps = append(steps, Step{Name: boots, Start: *provisioned, End: cmp.Or(joined, machine.DeletionTimestamp)})
	}
	whole := Step{Name: "from the claim to the node", Start: *claimed, End: cmp.Or(joined, machine.DeletionTimestamp)}
	if machine.Status.NodeTypeRef != nil {
		if nodeType := f.nodeTypes[machine.Status.NodeTypeRef.Name]; nodeType != nil && nodeType.Status.Provisioning != nil {
			whole.TypicalSeconds = nodeType.Status.Provisioning.TypicalSeconds
		}
	}
	if joined == nil {
		if progress := machine.Status.Progress; progress != nil {
			whole.Note = fmt.Sprintf("step %d of %d, %s", progress.Step, progress.Steps, progress.Description)
		}
	} else {
		steps = append(steps, Step{Name: StepNode, Start: *joined, End: machine.DeletionTimestamp, Note: machine.Status.NodeName})
	}
	if machine.Spec.TenantClusterRef != nil {
		steps = append(steps, whole)
	}
	return append(steps, released(machine)...)
}

func released(machine *v1alpha1.Machine) []Step {
	if machine.DeletionTimestamp.IsZero() {
		return nil
	}
	return []Step{{Name: "is released", Start: *machine.DeletionTimestamp,
		Note: conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReleased).Message}}
}
