// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"slices"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Changing is a fleet that a test changes. It has the methods of a view.Live.
type Changing struct {
	mu       sync.Mutex
	snapshot *view.Snapshot
	changed  chan struct{}
	lost     string
}

// NewChanging returns a Changing that starts as this snapshot.
func NewChanging(snapshot *view.Snapshot) *Changing {
	return &Changing{snapshot: snapshot, changed: make(chan struct{})}
}

// Snapshot returns the present.
func (c *Changing) Snapshot() *view.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot
}

// Changed returns a channel that is closed at the next change.
func (c *Changing) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Lost names the cluster that does not answer.
func (c *Changing) Lost() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Change replaces the fleet by this snapshot. From now on, Lost returns lost.
func (c *Changing) Change(to *view.Snapshot, lost string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snapshot, c.lost = to, lost
	close(c.changed)
	c.changed = make(chan struct{})
}

// Quarantined returns a fleet of that size with its first free server in quarantine, and the name of this server.
func Quarantined(t testing.TB, servers int) (changed *view.Snapshot, name string) {
	t.Helper()
	changed = New(servers)
	for _, server := range view.New(changed).Servers() {
		if server.State != view.State(inventory.StateAvailable) {
			continue
		}
		index := slices.IndexFunc(changed.Management.Hosts, func(host bmov1alpha1.BareMetalHost) bool { return host.Name == server.Name })
		changed.Management.Hosts[index].Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: "{}"}
		return changed, server.Name
	}
	t.Fatal("no server is free")
	return nil, ""
}
