// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// keepJournal tells, as it happens, what becomes of all hosts and Machines, until the test ends or the function that it
// returns is called.
func (w *world) keepJournal(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	followers.Go(func() { w.follow(ctx, &bmov1alpha1.BareMetalHostList{}, stack.HostsNamespace) })
	followers.Go(func() { w.follow(ctx, &v1alpha1.MachineList{}, stack.MachinesNamespace) })
	return func() { cancel(); followers.Wait() }
}

// follow says something whenever an object can be described in other words than before.
func (w *world) follow(ctx context.Context, list client.ObjectList, namespace string) {
	last := map[string]string{}
	for ctx.Err() == nil {
		watching, err := w.Client.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			continue // the context has ended, or the API server is being stopped
		}
		for event := range watching.ResultChan() {
			name, words := describe(event)
			if name != "" && last[name] != words {
				last[name] = words
				w.say("  %s %s", name, words)
			}
		}
	}
}

// describe names an object, and says in a few words how it is.
func describe(event watch.Event) (name, words string) {
	switch object := event.Object.(type) {
	case *bmov1alpha1.BareMetalHost:
		name, words = "BareMetalHost "+object.Name+":", describeHost(object)
	case *v1alpha1.Machine:
		name, words = "Machine "+object.Name+":", describeMachine(object)
	default:
		return "", ""
	}
	if event.Type == watch.Deleted {
		return name, "gone"
	}
	return name, words
}

func describeHost(host *bmov1alpha1.BareMetalHost) string {
	state := string(host.Status.Provisioning.State)
	if state == "" {
		state = "new"
	}
	if host.Spec.ConsumerRef != nil {
		state += fmt.Sprintf(", claimed by %s", host.Spec.ConsumerRef.Name)
	}
	if host.Status.PoweredOn {
		state += ", on"
	}
	if host.Status.ErrorType != "" {
		state += fmt.Sprintf(", %s: %s", host.Status.ErrorType, short(host.Status.ErrorMessage))
	}
	return state
}

func describeMachine(machine *v1alpha1.Machine) string {
	phase := string(machine.Status.Phase)
	if phase == "" {
		phase = "new"
	}
	if ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		phase += fmt.Sprintf(", %s: %s", ready.Reason, short(ready.Message))
	}
	return phase
}

// short is the first line of a message, and not all of it.
func short(message string) string {
	const most = 300
	message, _, _ = strings.Cut(message, "\n")
	if len(message) > most {
		message = message[:most] + "..."
	}
	return message
}
