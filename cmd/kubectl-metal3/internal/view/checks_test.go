// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/preflight"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestReadChecks: an issue has the words of preflight, and none claims what the reader may not read.
func TestReadChecks(t *testing.T) {
	forbidden := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("User \"reader\" cannot list it"))
	}
	const denied = `cannot check, a right is missing: User "reader" cannot list it`
	open := env.OpenWebhook()
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		refused client.ObjectList
		err     error
		want    string // the problem; empty: there is no issue
		remedy  bool
	}{
		"Open":        {reason: "as the chart has it", objects: open, want: "every pod of the cluster can ask the webhook", remedy: true},
		"Certificate": {reason: "others get 403", objects: env.OpenWebhook("--client-ca-file=/clients/ca.crt")},
		"NoWebhook":   {reason: "nobody can ask it"},
		"NoDeployments": {reason: "the flags are unknown", objects: open, refused: &appsv1.DeploymentList{},
			err: forbidden("deployments"), want: denied},
		"NoPolicies": {reason: "the network is unknown", objects: open, refused: &networkingv1.NetworkPolicyList{},
			err: forbidden("networkpolicies"), want: denied},
		"Outage": {reason: "nothing is known", objects: open, refused: &appsv1.DeploymentList{},
			err: errors.New("connection refused"), want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(tc.objects...).Build(), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if tc.refused != nil && fmt.Sprintf("%T", list) == fmt.Sprintf("%T", tc.refused) {
						return tc.err
					}
					return c.List(ctx, list, options...)
				}})
			s := NewSnapshot(metav1.Now())
			s.ReadChecks(t.Context(), cluster)
			issues := New(s).Issues()
			if tc.want == "" {
				if len(issues) > 0 {
					t.Errorf("%s: got %+v, want none", tc.reason, issues)
				}
				return
			}
			found := (&preflight.Cluster{Reader: cluster}).Callers(t.Context())
			if len(issues) != 1 || len(found) != 1 || issues[0] != (Issue{Info, found[0].Check, found[0].Message, found[0].Remedy}) ||
				!strings.HasPrefix(issues[0].Problem, tc.want) || (issues[0].Remedy != "") != tc.remedy {
				t.Fatalf("%s: got %+v, want %q as preflight says it: %+v", tc.reason, issues, tc.want, found)
			}
			// A file of it says the same, and so does a copy.
			var file bytes.Buffer
			if err := s.DeepCopy().Save(&file); err != nil {
				t.Fatal(err)
			}
			loaded, err := Load(&file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(issues, New(loaded).Issues()); diff != "" {
				t.Errorf("the file says something else (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMissingOSImage: a NodeType whose OSImage does not exist is an issue, in the words of preflight.
func TestMissingOSImage(t *testing.T) {
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	nodeType.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "nobel"}
	cluster := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(nodeType).Build()
	s := NewSnapshot(metav1.Now())
	s.ReadChecks(t.Context(), cluster)
	found := (&preflight.Cluster{Reader: cluster}).OSImages(t.Context())
	if len(found) != 1 {
		t.Fatalf("preflight says %+v", found)
	}
	if diff := cmp.Diff([]Issue{{Critical, "NodeType gpu", found[0].Message, found[0].Remedy}}, New(s).Issues()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFollowChecks: who can ask the webhook is asked for at the start and from time to time, and not again when the fleet changes.
func TestFollowChecks(t *testing.T) { synctest.Test(t, testFollowChecks) }

func testFollowChecks(t *testing.T) {
	var reads atomic.Int32
	cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(env.OpenWebhook()...).Build(),
		interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, isDeployments := list.(*appsv1.DeploymentList); isDeployments {
					reads.Add(1)
				}
				return c.List(ctx, list, options...)
			},
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				if asked := (&client.ListOptions{}).ApplyOptions(options); asked.Raw.SendInitialEvents != nil { // the fake cannot
					return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
				}
				return c.Watch(ctx, list, options...)
			},
		})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	live, err := Follow(ctx, cluster, nil, Scope{}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // until it watches
	if got := reads.Load(); got != 0 {
		t.Errorf("it was asked for %d times before anybody wanted to know", got)
	}
	reports := func(s *Snapshot) error {
		issues := New(s).Issues()
		if !slices.ContainsFunc(issues, func(issue Issue) bool { return issue.Object == "callers of the webhook" }) {
			return fmt.Errorf("the issues are %+v", issues)
		}
		return nil
	}
	live.FollowChecks(ctx, cluster)
	await(t, live, "it is said who can ask the webhook", reports)
	for i := range 3 {
		if err := cluster.Create(ctx, env.AvailableHost("metal3", fmt.Sprint("server-", i), nil)); err != nil {
			t.Fatal(err)
		}
		await(t, live, "a server is there", func(s *Snapshot) error {
			if got := len(s.Management.Hosts); got != i+1 {
				return fmt.Errorf("there are %d", got)
			}
			return reports(s)
		})
	}
	if got := reads.Load(); got != 1 {
		t.Errorf("it was asked for %d times, want once", got)
	}
	// Nothing happens, so the clock of the test goes on to the next question.
	if err := cluster.Delete(ctx, env.OpenWebhook()[1]); err != nil {
		t.Fatal(err)
	}
	await(t, live, "the webhook is seen to be gone", func(s *Snapshot) error {
		if issues := New(s).Issues(); reports(s) == nil {
			return fmt.Errorf("the issues are %+v", issues)
		}
		return nil
	})
}
