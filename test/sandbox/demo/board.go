// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// board watches both clusters: it feeds the journal and notifies the goroutines that wait for a state.
type board struct {
	options          Options
	journal          *journal
	management       cache.Cache
	tenant           cache.Cache
	managementClient client.Client
	tenantClient     client.Client
	changed          chan struct{}
}

func newBoard(options Options) (*board, error) {
	b := &board{
		options: options,
		journal: newJournal(options.Out),
		changed: make(chan struct{}, 1),
	}
	scheme := env.Scheme()
	var err error
	if b.managementClient, err = client.New(options.Management, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connecting to the management cluster, %w", err)
	}
	if b.tenantClient, err = client.New(options.Tenant, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connecting to the tenant cluster, %w", err)
	}
	if b.management, err = cache.New(options.Management, cache.Options{
		Scheme: scheme,
		DefaultNamespaces: map[string]cache.Config{
			options.HostNamespace:   {},
			options.TenantNamespace: {},
		},
	}); err != nil {
		return nil, fmt.Errorf("watching the management cluster, %w", err)
	}
	if b.tenant, err = cache.New(options.Tenant, cache.Options{
		Scheme:            scheme,
		DefaultNamespaces: map[string]cache.Config{metav1.NamespaceDefault: {}},
	}); err != nil {
		return nil, fmt.Errorf("watching the tenant cluster, %w", err)
	}
	return b, nil
}

// start watches both clusters until the context ends, and returns once what exists now has been seen.
func (b *board) start(ctx context.Context) error {
	for _, watch := range []error{
		follow(ctx, b, b.tenant, kindPod, &corev1.Pod{}, describePod),
		follow(ctx, b, b.tenant, kindNodeClaim, &karpv1.NodeClaim{}, describeNodeClaim),
		follow(ctx, b, b.tenant, kindNode, &corev1.Node{}, describeNode),
		follow(ctx, b, b.tenant, "", &karpv1.NodePool{}, nil),
		follow(ctx, b, b.tenant, "", &v1alpha1.MetalNodeClass{}, nil),
		follow(ctx, b, b.management, kindMachine, &v1alpha1.Machine{}, describeMachine),
		follow(ctx, b, b.management, kindHost, &bmov1alpha1.BareMetalHost{}, describeHost),
		follow(ctx, b, b.management, "", &v1alpha1.NodeType{}, nil),
	} {
		if watch != nil {
			return watch
		}
	}
	for name, watched := range map[string]cache.Cache{"management": b.management, "tenant": b.tenant} {
		go func() {
			// Start returns when the context ends; its error is ignored.
			_ = watched.Start(ctx)
		}()
		if !watched.WaitForCacheSync(ctx) {
			return fmt.Errorf("watching the %s cluster, %w", name, ctx.Err())
		}
	}
	return nil
}

// follow writes a line into the journal for every change of the objects of one kind, if there is a description, and
// notifies the waiting goroutines in any case.
func follow[T client.Object](ctx context.Context, b *board, from cache.Cache, k kind, prototype T,
	describe func(T) (string, []step)) error {
	informer, err := from.GetInformer(ctx, prototype)
	if err != nil {
		return fmt.Errorf("watching %T, %w", prototype, err)
	}
	tell := func(object any) {
		if typed, ok := object.(T); ok && describe != nil {
			line, steps := describe(typed)
			b.journal.observe(subject{k, typed.GetName()}, line, steps...)
		}
		b.wake()
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		UpdateFunc: func(_, object any) { tell(object) },
		DeleteFunc: func(object any) {
			if final, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = final.Obj
			}
			if typed, ok := object.(T); ok && describe != nil {
				b.journal.observe(subject{k, typed.GetName()}, "gone", stepGone)
			}
			b.wake()
		},
	})
	if err != nil {
		return fmt.Errorf("watching %T, %w", prototype, err)
	}
	return nil
}

func (b *board) wake() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// until waits until done returns an empty string. It checks after each change of a watched object. After the timeout,
// the error has the last result of done.
func (b *board) until(ctx context.Context, goal string, done func(context.Context) (missing string, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
	defer cancel()
	for {
		missing, err := done(ctx)
		if err != nil {
			return fmt.Errorf("waiting until %s, %w", goal, err)
		}
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s, %w: %s", goal, errors.Join(context.Cause(ctx)), missing)
		case <-b.changed:
		}
	}
}

// kind of object that a line of the journal is about. The text is what is printed.
type kind string

const (
	kindPod       kind = "pod"
	kindNodeClaim kind = "nodeclaim"
	kindMachine   kind = "machine"
	kindHost      kind = "host"
	kindNode      kind = "node"
)

// step is a state of an object whose time is in the final table.
type step string

const (
	stepCreated     step = "created"
	stepClaimed     step = "claimed"
	stepProvisioned step = "provisioned"
	stepJoined      step = "joined"
	stepRunning     step = "running"
	stepDeleting    step = "deleting"
	stepGone        step = "gone"
	stepAvailable   step = "available"
)

type subject struct {
	kind kind
	name string
}

// journal prints a line when the description of an object changes, and records when each step was first seen.
type journal struct {
	out   io.Writer
	start time.Time

	mu      sync.Mutex
	printed map[subject]string
	times   map[subject]map[step]time.Time
}

func newJournal(out io.Writer) *journal {
	return &journal{out: out, start: time.Now(), printed: map[subject]string{}, times: map[subject]map[step]time.Time{}}
}

// observe records the description of an object and the steps that it has reached. The same description is printed once.
func (j *journal) observe(s subject, line string, steps ...step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if j.times[s] == nil {
		j.times[s] = map[step]time.Time{}
	}
	for _, reached := range steps {
		if _, seen := j.times[s][reached]; !seen {
			j.times[s][reached] = now
		}
	}
	if line == "" || j.printed[s] == line {
		return
	}
	j.printed[s] = line
	fmt.Fprintf(j.out, "%6.1fs  %-9s  %-22s  %s\n", now.Sub(j.start).Seconds(), s.kind, s.name, line)
}

// headline prints a line without an object.
func (j *journal) headline(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.out, "\n%6.1fs  == %s\n", time.Since(j.start).Seconds(), fmt.Sprintf(format, args...))
}

// forget clears steps, for objects that reach the same ones twice.
func (j *journal) forget(s subject, steps ...step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, step := range steps {
		delete(j.times[s], step)
	}
}

// between returns how long it took from one step to another, and false if either was not seen.
func (j *journal) between(from subject, fromStep step, to subject, toStep step) (time.Duration, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	begin, begun := j.times[from][fromStep]
	end, ended := j.times[to][toStep]
	return end.Sub(begin), begun && ended
}
