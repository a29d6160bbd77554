// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenanttest

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// ErrDead is the error of every request of a dead process.
var ErrDead = errors.New("the process is dead")

// Process is a process that crashes when it tries one write more than it may.
type Process struct {
	mortal bool
	writes int
	dead   bool
}

// Immortal returns a process that never crashes.
func Immortal() *Process { return &Process{} }

// DyingAfter returns a process that crashes at the write after so many.
func DyingAfter(writes int) *Process { return &Process{mortal: true, writes: writes} }

// Dead returns whether the process has crashed.
func (p *Process) Dead() bool { return p.dead }

func (p *Process) read() error {
	if p.dead {
		return ErrDead
	}
	return nil
}

func (p *Process) write() error {
	if p.dead || p.mortal && p.writes == 0 {
		p.dead = true
		return ErrDead
	}
	p.writes--
	return nil
}

// Client returns a client of the process. All its clients die with it.
func (p *Process) Client(t testing.TB, environment *env.Environment) client.Client {
	t.Helper()
	return interceptor.NewClient(WithWatch(t, environment), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if err := p.read(); err != nil {
				return err
			}
			return c.Get(ctx, key, object, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := p.read(); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if err := p.write(); err != nil {
				return err
			}
			return c.Create(ctx, object, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.UpdateOption) error {
			if err := p.write(); err != nil {
				return err
			}
			return c.Update(ctx, object, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := p.write(); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if err := p.write(); err != nil {
				return err
			}
			return c.Delete(ctx, object, opts...)
		},
	})
}
