// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// errNotSynced: the caches of the management cluster are filling. After an empty list Karpenter would delete live
// nodes.
var errNotSynced = errors.New("the cache of the management cluster is not filled yet")

// Management reads and writes the management cluster. A Management that NewManagement has not made sees no changes:
// Create then finds the manager's decision only if it is in the Machine that Client has created.
type Management struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Catalog is the catalog of NodeTypes. The watch keeps it up to date.
	Catalog *instancetypes.Catalog

	machines subscriptions
	handlers []toolscache.ResourceEventHandlerRegistration
}

// NewManagement adds the catalog and the subscriptions of Create to the informers of the cache. Call it before the
// cache starts, or with a cache that can reach its API server. An error names the kind that cannot be watched.
func NewManagement(ctx context.Context, informers cache.Cache, writer client.Client, live client.Reader,
	catalog *instancetypes.Catalog) (*Management, error) {
	m := &Management{Client: writer, Live: live, Catalog: catalog}
	for _, watch := range []struct {
		kind    client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&v1alpha1.NodeType{}, kube.Handler(catalog.Set, func(nodeType *v1alpha1.NodeType) { catalog.Delete(nodeType.Name) })},
		{&v1alpha1.Machine{}, m.machines.handler(catalog)},
		{&v1alpha1.TenantCluster{}, toolscache.ResourceEventHandlerFuncs{}},
		{&v1alpha1.NodeProfile{}, toolscache.ResourceEventHandlerFuncs{}},
	} {
		registration, _, err := kube.Watch(ctx, informers, watch.kind, watch.handler)
		if err != nil {
			return nil, fmt.Errorf("in the management cluster, %w", err)
		}
		m.handlers = append(m.handlers, registration)
	}
	return m, nil
}

// Synced returns an error until all objects that existed at the start have been handled.
func (m *Management) Synced() error {
	for _, registration := range m.handlers {
		if !registration.HasSynced() {
			return errNotSynced
		}
	}
	return nil
}

// subscriptions deliver changes of Machines to waiting calls of Create, from the informer that exists anyway. A watch
// for each NodeClaim would cost the API server one connection each.
type subscriptions struct {
	mu sync.Mutex
	// waiting are the channels by the name of the Machine, in one namespace. A channel holds only the newest state.
	waiting map[string]map[chan change]struct{}
}

// change is a change of a Machine.
type change struct {
	machine *v1alpha1.Machine // shared with the cache: do not change it
	deleted bool
}

// subscribe returns the channel of changes, and the function that ends the subscription.
func (s *subscriptions) subscribe(name string) (<-chan change, func()) {
	changes := make(chan change, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = map[string]map[chan change]struct{}{}
	}
	if s.waiting[name] == nil {
		s.waiting[name] = map[chan change]struct{}{}
	}
	s.waiting[name][changes] = struct{}{}
	return changes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting[name], changes)
		if len(s.waiting[name]) == 0 {
			delete(s.waiting, name)
		}
	}
}

// publish never blocks: it replaces a state that Create has not received yet.
func (s *subscriptions) publish(update change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for changes := range s.waiting[update.machine.Name] {
		select {
		case <-changes:
		default:
		}
		changes <- update
	}
}

// handler returns the handler of the informer.
func (s *subscriptions) handler(catalog *instancetypes.Catalog) toolscache.ResourceEventHandler {
	return kube.Handler(func(machine *v1alpha1.Machine) {
		catalog.Observe(machine)
		s.publish(change{machine: machine})
		catalog.Notify()
	}, func(machine *v1alpha1.Machine) {
		catalog.Forget(machine)
		s.publish(change{machine: machine, deleted: true})
		catalog.Notify()
	})
}
