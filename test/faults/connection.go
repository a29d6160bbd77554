// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults injects one fault into the connection to an API server: at the n-th write of a process, or at its n-th
// read from a cache. A test runs the same cycle once for every point, with the same checks at the end.
package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ErrDead is the error of all requests of a dead process.
var ErrDead = errors.New("the process is dead")

// roundsDown is how many rounds the API server is down.
const roundsDown = 5

// Fault is what happens at the n-th write of a process.
type Fault string

const (
	// Crash: the process dies right after the write; nothing that it does afterwards reaches the API server.
	Crash Fault = "Crash"
	// Conflict: another client wrote the object just before.
	Conflict Fault = "Conflict"
	// Refused: the API server is down for this one write.
	Refused Fault = "Refused"
	// AnswerLost: the write succeeds, but the response is lost.
	AnswerLost Fault = "AnswerLost"
	// Outage: the API server is down from this write on, for several rounds.
	Outage Fault = "Outage"
	// Overtaken: Meanwhile happens just before the write.
	Overtaken Fault = "Overtaken"
)

// AtWrites are the faults that need only the number of the write.
var AtWrites = []Fault{Crash, Conflict, Refused, AnswerLost, Outage}

// Connection is the connection of a process to its API servers, with one fault; the zero Connection has none. A process
// makes all its clients with one Connection, so that its writes are counted together and it dies as a whole.
type Connection struct {
	// Kind of the fault.
	Kind Fault
	// Other is the client that makes a Conflict, if that of the process may not write everything. Unset: that of the process.
	Other client.Writer
	// At is the number of the write that is hit, from 1. A Crash is after the write, so that 0 is a process that never
	// got to write.
	At int
	// Meanwhile is what happens when Kind is Overtaken.
	Meanwhile func()
	// ThenDies makes a process that is overtaken die right after the write.
	ThenDies bool

	lock  sync.Mutex
	dead  bool
	down  int      // how many more rounds the API server is down
	names []string // of the writes, for messages
}

// Dead returns whether the process has died.
func (c *Connection) Dead() bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.dead
}

// Writes returns what the process has tried to write, in order.
func (c *Connection) Writes() []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.names[:len(c.names):len(c.names)]
}

// PassTime ends a round of an outage.
func (c *Connection) PassTime() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.down = max(0, c.down-1)
}

// write counts a write and lets it through, or not.
func (c *Connection) write(name string, touch, do func() error) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.dead || (c.Kind == Crash && len(c.names) == c.At) {
		c.dead = true
		return ErrDead
	}
	if c.down > 0 {
		return notThere()
	}
	c.names = append(c.names, name)
	if len(c.names) != c.At {
		return do()
	}
	switch c.Kind {
	case Conflict:
		if err := touch(); err != nil {
			return err
		}
	case Overtaken:
		c.Meanwhile()
		c.dead = c.ThenDies
	case Refused:
		return notThere()
	case Outage:
		c.down = roundsDown
		return notThere()
	case AnswerLost:
		if err := do(); err != nil {
			return err
		}
		return apierrors.NewTimeoutError("no answer", 0)
	case Crash: // it is after this write
	}
	return do()
}

func (c *Connection) read(do func() error) error {
	c.lock.Lock()
	dead, down := c.dead, c.down > 0
	c.lock.Unlock()
	switch {
	case dead:
		return ErrDead
	case down:
		return notThere()
	}
	return do()
}

func notThere() error { return apierrors.NewServiceUnavailable("not there") }

// Client returns a client of the process, which reaches the API server by the direct one.
func (c *Connection) Client(direct client.WithWatch) client.WithWatch {
	// touch writes an object as another client, so that its resource version changes.
	touch := func(object client.Object) func() error {
		return func() error {
			other, ok := object.DeepCopyObject().(client.Object)
			if !ok {
				return errors.New("not an object")
			}
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, c.At))
			writer := client.Writer(direct)
			if c.Other != nil {
				writer = c.Other
			}
			return client.IgnoreNotFound(writer.Patch(context.Background(), other, patch))
		}
	}
	untouched := func() error { return nil }
	name := func(verb string, object client.Object) string { return fmt.Sprintf("%s %T", verb, object) }
	return interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, direct client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return c.read(func() error { return direct.Get(ctx, key, object, options...) })
		},
		List: func(ctx context.Context, direct client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return c.read(func() error { return direct.List(ctx, list, options...) })
		},
		Create: func(ctx context.Context, direct client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return c.write(name("create", object), untouched, func() error { return direct.Create(ctx, object, options...) })
		},
		Update: func(ctx context.Context, direct client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return c.write(name("update", object), touch(object), func() error { return direct.Update(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, direct client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return c.write(name("delete", object), touch(object), func() error { return direct.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, direct client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return c.write(name("patch", object), touch(object), func() error { return direct.Patch(ctx, object, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, direct client.Client, sub string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			return c.write(name("patch "+sub+" of", object), touch(object),
				func() error { return direct.SubResource(sub).Patch(ctx, object, patch, options...) })
		},
	})
}
