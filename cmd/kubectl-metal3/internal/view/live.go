// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Live is a snapshot that informers keep up to date. It is safe for concurrent use.
type Live struct {
	clock clock.PassiveClock
	// empty has what no informer follows.
	empty *Snapshot
	kinds []*followed

	mu sync.Mutex
	// last is the snapshot since the last change; nil if it must be built anew.
	last    *Snapshot
	changed chan struct{}
}

// followed is a kind and its informer.
type followed struct {
	kind
	// tenant is the index of the tenant cluster that has the objects; -1 for the management cluster.
	tenant   int
	informer cache.SharedIndexInformer
	// answered is closed after the first answer of the API server.
	answered chan struct{}
	// err is the API server's last error; nil if it sends objects.
	err error
}

// Follow follows the management cluster and tenant clusters until ctx ends. It returns once it has all objects. A
// kind is in Missing while the reader may not list and watch it. Follow returns an error if a cluster cannot be
// reached at the start. Lost reports later errors.
func Follow(ctx context.Context, management client.WithWatch, tenants []client.WithWatch, scope Scope, clk clock.PassiveClock) (*Live,
	error) {
	empty, err := newSnapshot(ctx, Readers(tenants), metav1.Time{})
	if err != nil {
		return nil, err
	}
	l := &Live{clock: clk, empty: empty, changed: make(chan struct{})}
	for _, kind := range managementKinds() {
		if !scope.reads(kind) {
			continue
		}
		if err := l.follow(ctx, &followed{kind: kind, tenant: -1}, management, scope); err != nil {
			return nil, err
		}
	}
	for i, tenant := range tenants {
		for _, kind := range tenantKinds() {
			if err := l.follow(ctx, &followed{kind: kind, tenant: i}, tenant, scope); err != nil {
				return nil, err
			}
		}
	}
	for _, kind := range l.kinds {
		select {
		case <-kind.answered:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch err := l.errorOf(kind); {
		case err == nil:
			if !cache.WaitForCacheSync(ctx.Done(), kind.informer.HasSynced) {
				return nil, ctx.Err()
			}
		case kind.missing(err) == nil:
			return nil, kind.unreachable(err)
		}
	}
	return l, nil
}

// Readers converts clients to readers.
func Readers(clients []client.WithWatch) []client.Reader {
	readers := make([]client.Reader, len(clients))
	for i := range clients {
		readers[i] = clients[i]
	}
	return readers
}

// checksInterval is the time between two runs of the checks in FollowChecks. Their results seldom change.
const checksInterval = time.Minute

// FollowChecks runs ReadChecks now and at intervals, and adds the issues that it finds.
func (l *Live) FollowChecks(ctx context.Context, management client.Reader) {
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		var asked Snapshot
		asked.ReadChecks(ctx, management)
		l.mu.Lock()
		l.empty.Issues = asked.Issues
		l.mu.Unlock()
		l.change()
	}, checksInterval)
}

func (k kind) unreachable(err error) error {
	return fmt.Errorf("reading %s in the %s cluster, %w", k.resource, k.cluster, err)
}

// Still returns a Live that never changes. Its time stays the time of the snapshot.
func Still(s *Snapshot) *Live {
	return &Live{clock: stopped(s.Time), last: s, changed: make(chan struct{})}
}

// stopped is a clock that shows one time.
type stopped metav1.Time

func (s stopped) Now() time.Time                  { return s.Time }
func (s stopped) Since(t time.Time) time.Duration { return s.Sub(t) }

// follow starts the informer of a kind.
func (l *Live) follow(ctx context.Context, kind *followed, from client.WithWatch, scope Scope) error {
	kind.answered = make(chan struct{})
	options := func(raw metav1.ListOptions) *client.ListOptions {
		return (&client.ListOptions{Raw: &raw, Limit: raw.Limit, Continue: raw.Continue}).ApplyOptions(kind.options(scope))
	}
	kind.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := kind.list()
			err := from.List(ctx, list, options(raw))
			l.note(ctx, kind, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			events, err := from.Watch(ctx, kind.list(), options(raw))
			// After most errors of a watch that streams all objects, or if its objects are too old, the informer
			// lists again.
			streams := raw.SendInitialEvents != nil && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
			if !streams && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				l.note(ctx, kind, err)
			}
			return events, err
		},
	}, kind.object, 0, nil)
	if err := errors.Join(
		kind.informer.SetTransform(func(object any) (any, error) {
			if object, is := object.(client.Object); is {
				kind.trim(object)
			}
			return object, nil
		}),
		// Lost reports the errors.
		kind.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}),
	); err != nil {
		return kind.unreachable(err)
	}
	if _, err := kind.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { l.change() }, UpdateFunc: func(any, any) { l.change() }, DeleteFunc: func(any) { l.change() },
	}); err != nil {
		return kind.unreachable(err)
	}
	l.kinds = append(l.kinds, kind)
	go kind.informer.RunWithContext(ctx)
	return nil
}

// note records the API server's last answer about a kind.
func (l *Live) note(ctx context.Context, kind *followed, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	differs := (err == nil) != (kind.err == nil)
	kind.err = err
	select {
	case <-kind.answered:
	default:
		close(kind.answered)
	}
	l.mu.Unlock()
	if differs {
		l.change()
	}
}

func (l *Live) errorOf(kind *followed) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return kind.err
}

func (l *Live) change() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = nil
	close(l.changed)
	l.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change.
func (l *Live) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Snapshot returns the present. Nothing may write to it. A channel that Changed returned before the call is closed
// when it is outdated.
func (l *Live) Snapshot() *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = l.snapshot()
	}
	now := *l.last
	now.Time = metav1.NewTime(l.clock.Now())
	return &now
}

func (l *Live) snapshot() *Snapshot {
	s := *l.empty
	s.Tenant, s.More = nil, nil
	for _, part := range l.empty.PerTenant() {
		tenant := *part.Tenant
		s.addTenant(&tenant)
	}
	var parts []*Snapshot
	for _, kind := range l.kinds {
		part := &s
		if kind.tenant >= 0 { // the management kinds come first and have the TenantClusters that name the tenants
			if parts == nil {
				parts = s.PerTenant()
			}
			part = parts[kind.tenant]
		}
		if missing := kind.missing(kind.err); missing != nil {
			missing.Live = true
			s.addMissing(part, *missing)
			continue // a reader who has lost the right must not see the earlier objects
		}
		keys := kind.informer.GetStore().ListKeys()
		slices.Sort(keys)
		for _, key := range keys {
			if object, found, _ := kind.informer.GetStore().GetByKey(key); found {
				kind.add(part, object.(client.Object))
			}
		}
	}
	return &s
}

// Lost says which cluster does not answer now and why; empty if all answer. The snapshot still has its objects.
func (l *Live) Lost() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range l.kinds {
		if kind.err != nil && kind.missing(kind.err) == nil {
			return kind.unreachable(kind.err).Error()
		}
	}
	return ""
}
