// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"sync"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// subscriptions deliver changes of Machines to the calls of Create that wait for them, from the informer that exists
// anyway: a watch for each NodeClaim would cost the API server a connection each.
type subscriptions struct {
	mu      sync.Mutex
	waiting map[string]map[*subscription]struct{} // by name: all Machines are in one namespace
}

// subscription gets the changes of one Machine. The channel holds at most the newest state.
type subscription struct {
	changes chan change
}

// change is a change of a Machine.
type change struct {
	machine *v1alpha1.Machine // shared with the cache: not to be changed
	deleted bool
}

func newSubscriptions() *subscriptions {
	return &subscriptions{waiting: map[string]map[*subscription]struct{}{}}
}

// subscribe returns what to receive from, and what to call when done.
func (s *subscriptions) subscribe(name string) (<-chan change, func()) {
	subscriber := &subscription{changes: make(chan change, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[name] == nil {
		s.waiting[name] = map[*subscription]struct{}{}
	}
	s.waiting[name][subscriber] = struct{}{}
	return subscriber.changes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting[name], subscriber)
		if len(s.waiting[name]) == 0 {
			delete(s.waiting, name)
		}
	}
}

// publish never blocks: a state that has not been received yet is replaced.
func (s *subscriptions) publish(update change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subscriber := range s.waiting[update.machine.Name] {
		select {
		case <-subscriber.changes:
		default:
		}
		subscriber.changes <- update
	}
}

// handler of the informer. released is called when a Machine that had a server is gone.
func (s *subscriptions) handler(released func()) toolscache.ResourceEventHandler {
	return controllers.Handler(func(machine *v1alpha1.Machine) { s.publish(change{machine: machine}) },
		func(machine *v1alpha1.Machine) {
			if machine.Status.HostRef != nil {
				released()
			}
			s.publish(change{machine: machine, deleted: true})
		})
}
