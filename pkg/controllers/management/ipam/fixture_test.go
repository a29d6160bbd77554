// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"go4.org/netipx"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

var networks atomic.Int32

// newPool makes a pool of a number of addresses that no other test has.
func newPool(t testing.TB, size int) ipam.Pool {
	t.Helper()
	n := networks.Add(1)
	return mustParse(t, fmt.Sprintf("10.%d.0.1/16", n), fmt.Sprintf("10.%d.1.1-10.%d.1.%d", n, n, size))
}

func mustParse(t testing.TB, network, ranges string) ipam.Pool {
	t.Helper()
	var parsed []netipx.IPRange
	if ranges != "" {
		parsed = append(parsed, netipx.MustParseIPRange(ranges))
	}
	pool, err := ipam.NewPool(netip.MustParsePrefix(network), netip.Addr{}, parsed...)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// first is an address of the pool.
func first(pool ipam.Pool) netip.Addr {
	for address := range pool.Free(v1alpha1.MachineReference{}, nil) {
		return address
	}
	return netip.Addr{}
}

func newOwner(name string) v1alpha1.MachineReference {
	return v1alpha1.MachineReference{Namespace: "tenant", Name: name, UID: uuid.NewUUID()}
}

// direct is an allocator that reads nothing from a cache.
func direct() Allocator { return Allocator{Client: environment.Client, Live: environment.Client} }

// addressesOf reads the owners of a pool's addresses.
func addressesOf(t testing.TB, pool ipam.Pool) map[string]types.UID {
	t.Helper()
	list := &v1alpha1.IPAddressList{}
	if err := environment.Client.List(context.Background(), list); err != nil {
		t.Fatal(err)
	}
	taken := map[string]types.UID{}
	for _, object := range list.Items {
		if object.Spec.Pool == pool.String() {
			taken[object.Spec.Address] = object.Spec.MachineRef.UID
		}
	}
	return taken
}

// stale reads what the API server had when it was made, as an informer that has lost its watch does.
func stale(t testing.TB, connection client.Client) client.Client {
	t.Helper()
	old := &v1alpha1.IPAddressList{}
	if err := environment.Client.List(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	withWatch, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(withWatch, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			addresses, ok := list.(*v1alpha1.IPAddressList)
			if !ok {
				return errors.New("not a list of addresses")
			}
			addresses.Items = slices.Clone(old.Items)
			return nil
		},
		Create: func(ctx context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return connection.Create(ctx, object, options...)
		},
		Delete: func(ctx context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return connection.Delete(ctx, object, options...)
		},
	})
}

var errDead = errors.New("the process is dead")

// fault is what happens at a write.
type fault string

const (
	// crash: the process dies before the write.
	crash fault = "Crash"
	// refused: the API server is not there for this write.
	refused fault = "Refused"
	// answerLost: the write is done, and the process never hears of it.
	answerLost fault = "AnswerLost"
	// diesAfter: the write is done, and the process dies before it does anything else.
	diesAfter fault = "DiesAfter"
)

// faulty is a connection with a fault at its n-th write, counted from one.
type faulty struct {
	kind           fault
	failAt, writes int
	dead           bool
}

func (f *faulty) write(do func() error) error {
	if f.dead {
		return errDead
	}
	f.writes++
	if f.writes != f.failAt {
		return do()
	}
	switch f.kind {
	case crash:
		f.dead = true
		return errDead
	case refused:
		return apierrors.NewServiceUnavailable("not there")
	case answerLost:
		return errors.Join(do(), apierrors.NewTimeoutError("no answer", 0))
	default:
		f.dead = true
		return errors.Join(do(), errDead)
	}
}

// allocator makes a process with this connection.
func (f *faulty) allocator(t testing.TB) Allocator {
	t.Helper()
	withWatch, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	connection := interceptor.NewClient(withWatch, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if f.dead {
				return errDead
			}
			return c.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return f.write(func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return f.write(func() error { return c.Delete(ctx, object, options...) })
		},
	})
	return Allocator{Client: connection, Live: connection}
}
