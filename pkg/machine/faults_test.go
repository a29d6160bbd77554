// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	errDead = errors.New("the process is dead")
	errDown = apierrors.NewServiceUnavailable("not there")
)

// roundsDown is how many times everything is tried while the API server is not there.
const roundsDown = 5

// fault is what happens at the n-th write of a process.
type fault string

const (
	// crash: the process dies right after the write; nothing that it does afterwards reaches the API server.
	crash fault = "Crash"
	// conflict: somebody else has written the object just before.
	conflict fault = "Conflict"
	// refused: the API server is not there for this one write.
	refused fault = "Refused"
	// answerLost: the write is done, but the answer never arrives.
	answerLost fault = "AnswerLost"
	// outage: the API server is not there from this write on, until much else has been tried in vain.
	outage fault = "Outage"
)

// faulty is a connection with one fault in it. Zero writes before the fault means that the first write is hit; a crash
// is after the write, so that "after 0 writes" is a process that never got to write.
type faulty struct {
	lock   sync.Mutex
	kind   fault
	at     int
	writes int
	dead   bool
	down   int      // how many more rounds the API server is not there
	names  []string // of the writes, for messages
}

// write counts a write and lets it through, or not.
func (f *faulty) write(name string, touch, do func() error) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.dead || (f.kind == crash && f.writes == f.at) {
		f.dead = true
		return errDead
	}
	if f.down > 0 {
		return errDown
	}
	f.writes++
	f.names = append(f.names, name)
	hit := f.writes == f.at
	switch {
	case hit && f.kind == conflict:
		if err := touch(); err != nil {
			return err
		}
	case hit && f.kind == refused:
		return apierrors.NewServiceUnavailable("not there")
	case hit && f.kind == outage:
		f.down = roundsDown
		return errDown
	case hit && f.kind == answerLost:
		if err := do(); err != nil {
			return err
		}
		return apierrors.NewTimeoutError("no answer", 0)
	}
	return do()
}

func (f *faulty) read(do func() error) error {
	f.lock.Lock()
	dead, down := f.dead, f.down > 0
	f.lock.Unlock()
	switch {
	case dead:
		return errDead
	case down:
		return errDown
	}
	return do()
}

// passTime brings an API server that is not there nearer to its return.
func (f *faulty) passTime() {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.down = max(0, f.down-1)
}

// staleReads is a cache that is behind, once: its n-th read answers with the version before the one that it answered
// with last, or with nothing, if it has seen no other.
type staleReads struct {
	lock  sync.Mutex
	at    int
	reads int
	seen  map[string][]client.Object
}

func (s *staleReads) connect(to client.Client) client.Client {
	direct, ok := to.(client.WithWatch)
	if !ok {
		return nil
	}
	s.seen = map[string][]client.Object{}
	return interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			s.lock.Lock()
			defer s.lock.Unlock()
			s.reads++
			name := fmt.Sprintf("%T %s", object, key)
			err := c.Get(ctx, key, object, options...)
			if err == nil {
				if versions := s.seen[name]; len(versions) == 0 || versions[len(versions)-1].GetResourceVersion() != object.GetResourceVersion() {
					copied, _ := object.DeepCopyObject().(client.Object)
					s.seen[name] = append(versions, copied)
				}
			}
			if s.reads != s.at {
				return err
			}
			if versions := s.seen[name]; len(versions) > 1 {
				return s.copy(versions[len(versions)-2], object)
			}
			return apierrors.NewNotFound(schema.GroupResource{}, key.String())
		},
	})
}

func (s *staleReads) copy(from, into client.Object) error {
	unstructured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(unstructured, into)
}

var (
	connecting sync.Once
	connection client.WithWatch
	refusal    error
)

// sharedConnection is one connection for all tests: discovery takes longer than a whole cycle.
func sharedConnection(t *testing.T) client.WithWatch {
	t.Helper()
	connecting.Do(func() {
		connection, refusal = client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
	return connection
}

// connect makes a connection to the API server that has the fault.
func (f *faulty) connect(t *testing.T) client.WithWatch {
	t.Helper()
	direct := sharedConnection(t)
	// touch is what another writer does to an object: it gets a new version and nothing else of importance.
	touch := func(object client.Object) func() error {
		return func() error {
			other, ok := object.DeepCopyObject().(client.Object)
			if !ok {
				return errors.New("not an object")
			}
			patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, f.at)))
			return client.IgnoreNotFound(direct.Patch(context.Background(), other, patch))
		}
	}
	name := func(verb string, object client.Object) string { return fmt.Sprintf("%s %T", verb, object) }
	return interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return f.read(func() error { return c.Get(ctx, key, object, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return f.read(func() error { return c.List(ctx, list, options...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return f.write(name("create", object), func() error { return nil }, func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return f.write(name("delete", object), touch(object), func() error { return c.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return f.write(name("patch", object), touch(object), func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return f.write(name("patch "+sub+" of", object), touch(object), func() error { return c.SubResource(sub).Patch(ctx, object, patch, options...) })
		},
	})
}
