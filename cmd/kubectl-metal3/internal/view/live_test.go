// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// reader is a client of a person who may read all kinds in a list.
func reader(t *testing.T, environment *env.Environment, resources ...string) client.WithWatch {
	t.Helper()
	name := metav1.ObjectMeta{Name: "reader"}
	environment.Give(t,
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.Group, bmov1alpha1.GroupVersion.Group}, Resources: resources, Verbs: []string{"list", "watch"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}}},
	)
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "reader"}
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// await waits for a change after which the check returns nil.
func await(t *testing.T, live *Live, what string, check func(*Snapshot) error) {
	t.Helper()
	for {
		changed := live.Changed()
		err := check(live.Snapshot())
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("waiting until %s: %v", what, err)
		}
	}
}

// What a live snapshot shows follows the API server: objects that come and go, and rights that are granted. It has no more of an object
// than a snapshot that was read.
func TestFollow(t *testing.T) {
	environment, ctx := env.NewEnvironment(t), t.Context()
	first := env.AvailableHost(environment.Namespace(t), "server-01", nil)
	first.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: secret}
	environment.CreateHost(t, first)

	person := reader(t, environment, "baremetalhosts", "nodeproviders", "nodetypes", "tenantclusters")
	live, err := Follow(ctx, person, nil, Scope{}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	names := func(s *Snapshot) (all string) {
		for _, host := range s.Management.Hosts {
			all += host.Name + " "
		}
		return strings.TrimSpace(all)
	}
	have := func(want string) func(*Snapshot) error {
		return func(s *Snapshot) error {
			if got := names(s); got != want {
				return fmt.Errorf("the hosts are %q, want %q", got, want)
			}
			return nil
		}
	}

	before := live.Snapshot()
	if got := names(before); got != "server-01" {
		t.Errorf("Follow has returned with the hosts %q", got)
	}
	if host := before.Management.Hosts[0]; len(host.ManagedFields) > 0 || host.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("the host is not trimmed: %v", host.ObjectMeta)
	}
	want := "you may not list or not watch machines.karpenter.metal3.io in the management cluster, and what depends on them is not shown: " +
		`the rule that is missing is apiGroups ["karpenter.metal3.io"], resources ["machines"], verbs [list, watch]`
	if len(before.Missing) != 1 || before.Missing[0].String() != want {
		t.Errorf("missing is %v, want %s", before.Missing, want)
	}

	environment.CreateHost(t, env.AvailableHost(first.Namespace, "server-02", nil))
	await(t, live, "a new host is there", have("server-01 server-02"))
	if err := environment.Client.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	await(t, live, "a deleted host is gone", have("server-02"))
	if names(before) != "server-01" {
		t.Errorf("a snapshot has changed: it has the hosts %q", names(before))
	}

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	if err := environment.Client.Patch(ctx, role, client.RawPatch("application/json-patch+json",
		[]byte(`[{"op": "replace", "path": "/rules/0/resources", "value": ["*"]}]`))); err != nil {
		t.Fatal(err)
	}
	await(t, live, "the right to read Machines is seen", func(s *Snapshot) error {
		if len(s.Missing) > 0 {
			return fmt.Errorf("missing is %v", s.Missing)
		}
		return nil
	})
}

// A cluster that does not answer any more is Lost until it does, and what it had is still there.
func TestFollowLost(t *testing.T) {
	var down atomic.Bool
	watches := make(chan watch.Interface, 100)
	cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(env.AvailableHost("metal3", "server-01", nil)).
		Build(), interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			switch asked := (&client.ListOptions{}).ApplyOptions(options); {
			case asked.Raw.SendInitialEvents != nil:
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
			case down.Load():
				return nil, errors.New("connection refused")
			}
			events, err := c.Watch(ctx, list, options...)
			watches <- events
			return events, err
		},
	})
	live, err := Follow(t.Context(), cluster, nil, Scope{}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	(<-watches).Stop()
	await(t, live, "it is lost", func(s *Snapshot) error {
		if lost := live.Lost(); !strings.HasSuffix(lost, " in the management cluster, connection refused") {
			return fmt.Errorf("lost is %q", lost)
		}
		if len(s.Management.Hosts) != 1 || len(s.Missing) > 0 {
			t.Errorf("%d hosts, missing is %v", len(s.Management.Hosts), s.Missing)
		}
		return nil
	})
	down.Store(false)
	await(t, live, "it is back", func(*Snapshot) error {
		if lost := live.Lost(); lost != "" {
			return fmt.Errorf("lost is %q", lost)
		}
		return nil
	})
}

// What was read is not shown any more to who may not read it now.
func TestFollowForbidden(t *testing.T) {
	var revoked atomic.Bool
	watches := make(chan watch.Interface, 100)
	forbidden := func() error {
		if revoked.Load() {
			return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
		}
		return nil
	}
	cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(env.AvailableHost("metal3", "server-01", nil)).
		Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return errors.Join(forbidden(), c.List(ctx, list, options...))
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if asked := (&client.ListOptions{}).ApplyOptions(options); asked.Raw.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
			}
			events, err := c.Watch(ctx, list, options...)
			watches <- events
			return events, errors.Join(forbidden(), err)
		},
	})
	live, err := Follow(t.Context(), cluster, nil, Scope{Resources: []string{"baremetalhosts"}}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if hosts := live.Snapshot().Management.Hosts; len(hosts) != 1 {
		t.Fatalf("there are %d hosts", len(hosts))
	}
	revoked.Store(true)
	(<-watches).Stop()
	await(t, live, "the right is missing", func(s *Snapshot) error {
		if len(s.Missing) == 0 {
			return errors.New("nothing is missing")
		}
		if len(s.Management.Hosts) > 0 {
			t.Errorf("what may not be read is shown: %d hosts", len(s.Management.Hosts))
		}
		return nil
	})
}

// A cluster that cannot be reached at first is an error, and not an empty fleet.
func TestFollowUnreachable(t *testing.T) {
	absent, err := client.NewWithWatch(&rest.Config{Host: "http://127.0.0.1:1"}, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Follow(t.Context(), absent, nil, Scope{}, clock.RealClock{}); err == nil || !strings.Contains(err.Error(),
		"reading baremetalhosts in the management cluster, ") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

// A file shows the fleet of its time.
func TestStill(t *testing.T) {
	s := fixture()
	live := Still(s)
	if diff := cmp.Diff(s, live.Snapshot()); diff != "" {
		t.Errorf("it differs (-want +got):\n%s", diff)
	}
	select {
	case <-live.Changed():
		t.Error("it has changed")
	default:
	}
}
