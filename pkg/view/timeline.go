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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
)

// Step is one step in the life of a server or a Machine.
type Step struct {
	Name  string      `json:"name"`
	Start metav1.Time `json:"start"`
	// End is nil as long as the step is not over.
	End *metav1.Time `json:"end,omitempty"`
	// TypicalSeconds is how long the step usually takes for the type; 0 if that is not known.
	TypicalSeconds int64 `json:"typicalSeconds,omitempty"`
	// Note says more: the Machine, or what is written now.
	Note string `json:"note,omitempty"`
}

// Duration of the step until now.
func (s Step) Duration(now time.Time) time.Duration {
	if s.End != nil {
		return s.End.Sub(s.Start.Time)
	}
	return now.Sub(s.Start.Time)
}

// Timeline returns the steps of a host or a Machine, in the order in which they began.
func (f *Fleet) Timeline(kind, name string) ([]Step, error) {
	switch kind {
	case "machine":
		machine, err := f.Machine(name)
		if err != nil {
			return nil, err
		}
		return inOrder(f.stepsOf(machine)), nil
	case "host":
		host, err := f.Host(name)
		if err != nil {
			return nil, err
		}
		steps := operations(host)
		if machine := f.MachineOn(host); machine != nil {
			steps = append(steps, f.stepsOf(machine)...)
		}
		return inOrder(steps), nil
	}
	return nil, fmt.Errorf("%q has no timeline: name host or machine", kind)
}

func inOrder(steps []Step) []Step {
	slices.SortStableFunc(steps, func(a, b Step) int { return a.Start.Compare(b.Start.Time) })
	return steps
}

// operations are those that Metal3 has noted of a host: the last of each kind.
func operations(host *bmov1alpha1.BareMetalHost) []Step {
	history := host.Status.OperationHistory
	var steps []Step
	for _, one := range []struct {
		name   string
		metric bmov1alpha1.OperationMetric
	}{
		{"Metal3 registers it", history.Register}, {"Metal3 inspects it", history.Inspect}, {"Metal3 provisions it", history.Provision},
		{"Metal3 deprovisions it", history.Deprovision},
	} {
		if one.metric.Start.IsZero() {
			continue
		}
		step := Step{Name: one.name, Start: one.metric.Start}
		if !one.metric.End.IsZero() {
			step.End = one.metric.End.DeepCopy()
		}
		steps = append(steps, step)
	}
	return steps
}

func (f *Fleet) stepsOf(machine *v1alpha1.Machine) []Step {
	name := machine.Namespace + "/" + machine.Name
	at := func(conditionType string) *metav1.Time {
		if one := conditions.Find(machine.Status.Conditions, conditionType); one.Status == metav1.ConditionTrue {
			return &one.LastTransitionTime
		}
		return nil
	}
	claimed, provisioned, joined := at(v1alpha1.ConditionClaimed), at(v1alpha1.ConditionProvisioned), at(v1alpha1.ConditionJoined)
	steps := []Step{{Name: "waits for a server", Start: machine.CreationTimestamp, End: claimed, Note: "Machine " + name}}
	if claimed == nil {
		steps[0].Note += ": " + conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady).Message
		return append(steps, released(machine)...)
	}
	// What a Machine has not reached when it is deleted, it does not reach any more.
	steps = append(steps, Step{Name: "is installed", Start: *claimed, End: cmp.Or(provisioned, machine.DeletionTimestamp)})
	if provisioned != nil && machine.Spec.TenantClusterRef != nil {
		steps = append(steps, Step{Name: "boots and joins", Start: *provisioned, End: cmp.Or(joined, machine.DeletionTimestamp)})
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
		steps = append(steps, Step{Name: "is a node", Start: *joined, End: machine.DeletionTimestamp, Note: machine.Status.NodeName})
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
