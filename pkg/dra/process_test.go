// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// errDead is what a dead process gets for an answer.
var errDead = errors.New("the process is dead")

// process is one life of the controllers: it counts their writes, can die before one of them, and can be cut off from
// the tenant.
type process struct {
	mu sync.Mutex
	// writes are all that were done, as "host create ResourceClaim".
	writes []string
	// last is how many writes it may do; none if negative.
	last int
	dead bool
	died chan struct{}
	// away is what reads and writes of the tenant end with.
	away error
	// before is called before each write.
	before func(write string)
	// mapper replaces the tenant's, if set.
	mapper meta.RESTMapper
}

func immortal() *process { return dyingAfter(-1) }

func dyingAfter(writes int) *process { return &process{last: writes, died: make(chan struct{})} }

func (p *process) cutOff(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = err
}

// beforeWrite sets what is called before each write; nothing if nil.
func (p *process) beforeWrite(before func(write string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
}

func (p *process) written() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.writes...)
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// spy wraps one cluster's client.
type spy struct {
	client.Client
	*process
	cluster string
}

func (s spy) read() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errDead
	}
	if s.cluster == "tenant" {
		return s.away
	}
	return nil
}

func (s spy) write(verb string, object client.Object) error {
	kind, err := s.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	write := fmt.Sprintf("%s %s %s", s.cluster, verb, kind.Kind)
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(write)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == "tenant" && s.away != nil {
		return s.away
	}
	if !s.dead && len(s.writes) == s.last {
		s.dead = true
		close(s.died)
	}
	if s.dead {
		return errDead
	}
	s.writes = append(s.writes, write)
	return nil
}

func (s spy) RESTMapper() meta.RESTMapper {
	if s.mapper != nil && s.cluster == "tenant" {
		return s.mapper
	}
	return s.Client.RESTMapper()
}

func (s spy) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := s.read(); err != nil {
		return err
	}
	return s.Client.Get(ctx, key, object, opts...)
}

func (s spy) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := s.read(); err != nil {
		return err
	}
	return s.Client.List(ctx, list, opts...)
}

func (s spy) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if err := s.write("create", object); err != nil {
		return err
	}
	return s.Client.Create(ctx, object, opts...)
}

func (s spy) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	if err := s.write("update", object); err != nil {
		return err
	}
	return s.Client.Update(ctx, object, opts...)
}

func (s spy) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := s.write("patch", object); err != nil {
		return err
	}
	return s.Client.Patch(ctx, object, patch, opts...)
}

func (s spy) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	if err := s.write("delete", object); err != nil {
		return err
	}
	return s.Client.Delete(ctx, object, opts...)
}

func (s spy) Status() client.SubResourceWriter { return spyStatus{s.Client.Status(), s} }

type spyStatus struct {
	client.SubResourceWriter
	spy spy
}

func (s spyStatus) Update(ctx context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := s.spy.write("status", object); err != nil {
		return err
	}
	return s.SubResourceWriter.Update(ctx, object, opts...)
}

func (s spyStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := s.spy.write("status", object); err != nil {
		return err
	}
	return s.SubResourceWriter.Patch(ctx, object, patch, opts...)
}

// liveSpy reads live.
type liveSpy struct {
	client.Reader
	spy spy
}

func (s liveSpy) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := s.spy.read(); err != nil {
		return err
	}
	return s.Reader.Get(ctx, key, object, opts...)
}

func (p *process) watch(cluster tenant.Cluster, name string) tenant.Cluster {
	s := spy{Client: cluster.Client, process: p, cluster: name}
	return tenant.Cluster{Client: s, Live: liveSpy{cluster.Live, s}, Cache: cluster.Cache}
}

// eventLog keeps the events that were published.
type eventLog struct {
	mu     sync.Mutex
	events []events.Event
}

// Publish implements Karpenter's recorder.
func (l *eventLog) Publish(all ...events.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, all...)
}

func (l *eventLog) all() []events.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]events.Event(nil), l.events...)
}
