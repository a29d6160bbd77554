// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/plain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// A journal watches all hosts and Machines. It logs their changes, and notifies the goroutines that wait for one.
type journal struct {
	say func(format string, args ...any)

	mu       sync.Mutex
	hosts    map[string]*bmov1alpha1.BareMetalHost
	machines map[string]*v1alpha1.Machine
	words    map[string]string
	changed  chan struct{}
}

// keepJournal starts the watches. They end with the test, or when the returned function is called.
func (w *fixture) keepJournal(t *testing.T) (stop func()) {
	t.Helper()
	w.journal = &journal{
		say: w.say, hosts: map[string]*bmov1alpha1.BareMetalHost{}, machines: map[string]*v1alpha1.Machine{},
		words: map[string]string{}, changed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	followers.Go(func() {
		w.follow(ctx, &bmov1alpha1.BareMetalHostList{}, stack.HostsNamespace)
	})
	followers.Go(func() {
		w.follow(ctx, &v1alpha1.MachineList{}, "") // of all tenants
	})
	return func() { cancel(); followers.Wait() }
}

// follow watches until the context ends. The API server may end a watch at any time; the next begins with all objects.
func (w *fixture) follow(ctx context.Context, list client.ObjectList, namespace string) {
	for ctx.Err() == nil {
		watching, err := w.Client.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			continue // the context has ended, or the API server is being stopped
		}
		for event := range watching.ResultChan() {
			w.journal.record(event)
		}
	}
}

// record stores an object, and logs it if its description has changed.
func (j *journal) record(event watch.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var name, words string
	gone := event.Type == watch.Deleted
	switch object := event.Object.(type) {
	case *bmov1alpha1.BareMetalHost:
		name, words = "BareMetalHost "+object.Name, plain.Host(object)
		if j.hosts[object.Name] = object; gone {
			delete(j.hosts, object.Name)
		}
	case *v1alpha1.Machine:
		name, words = "Machine "+object.Name, plain.Machine(object)
		if j.machines[object.Name] = object; gone {
			delete(j.machines, object.Name)
		}
	default:
		return
	}
	if gone {
		words = "gone"
	}
	if j.words[name] != words {
		j.words[name] = words
		j.say("  %s: %s", name, words)
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

// look returns the last version of a host and a Machine, nil if there is none, and a channel that is closed with the
// next change of any object.
func (j *journal) look(host, machine string) (*bmov1alpha1.BareMetalHost, *v1alpha1.Machine, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.hosts[host], j.machines[machine], j.changed
}
