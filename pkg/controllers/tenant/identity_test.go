// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/identity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// TestWhoSaysThatItIsGone has all collectors of a provider look at its objects while its kubeconfig leads to something else than
// the tenant's cluster. Whatever that answers, nothing is deleted.
func TestWhoSaysThatItIsGone(t *testing.T) {
	right := tenanttest.APIServer(t, environment.Config)
	another := tenanttest.APIServer(t, env.NewEnvironment(t).Config)
	part := func(contained string, special, otherwise tenanttest.Backend) tenanttest.Backend {
		return func(request *http.Request) (*http.Response, error) {
			if strings.Contains(request.URL.Path, contained) {
				return special(request)
			}
			return otherwise(request)
		}
	}
	forbidden := tenanttest.Answer(metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
	for name, tc := range map[string]struct {
		reason  string
		backend tenanttest.Backend
		// orphan: the NodeClaim of one Machine is gone.
		orphan      bool
		wantDeleted int
	}{
		"AnotherCluster": {reason: "the Secrets of two tenants were swapped", backend: another},
		"EmptyCluster": {reason: "it was restored without NodeClaims, and has its UID",
			backend: part("/namespaces/kube-system", right, another)},
		"Unauthorized":       {reason: "the credentials have expired", backend: tenanttest.Answer(apierrors.NewUnauthorized("expired").Status())},
		"Forbidden":          {reason: "the rights were taken away", backend: forbidden},
		"ForbiddenInPart":    {reason: "the right to read NodeClaims was taken away", backend: part("/nodeclaims", forbidden, right)},
		"MissingDefinitions": {reason: "Karpenter's definitions are not installed yet", backend: part("karpenter.sh", notServed, right)},
		"Outage": {reason: "it does not answer",
			backend: func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }},
		"UnknownIdentity": {reason: "the right to read the identity was taken away", orphan: true,
			backend: part("/namespaces/kube-system", forbidden, right)},
		"Right": {reason: "it is the tenant's, and all is well", backend: right},
		"RightWithOrphan": {reason: "a NodeClaim is gone in the tenant's cluster", orphan: true, backend: right,
			wantDeleted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 4, true)
			service := tenanttest.NewService(right)
			guard, err := identity.NewGuard(service.Config(), environment.Config, f.key, environment.Scheme, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			toTenant, err := client.New(guard.Guarded(service.Config()), client.Options{Scheme: environment.Scheme})
			if err != nil {
				t.Fatal(err)
			}
			toManagement, err := client.New(guard.Guarded(environment.Config), client.Options{Scheme: environment.Scheme})
			if err != nil {
				t.Fatal(err)
			}
			identified(t, f, guard)

			if tc.orphan {
				f.vanish(0)
			}
			service.LeadsTo(tc.backend)
			clusters := tenanttest.ClustersOf(f.key, toTenant, toManagement)
			machines := garbagecollection.NewMachineController(clock.RealClock{}, clusters)
			nodeClaims := garbagecollection.NewNodeClaimController(clusters, silent{})
			nodes := garbagecollection.NewNodeController(clusters)
			for i, machine := range f.machines {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Name, UID: "node"}}
				node.Spec.ProviderID = v1alpha1.ProviderID("metal3", "server", machine.Name)
				// Errors are right for most backends. What counts is what is left.
				_, _ = machines.Reconcile(t.Context(), machine.DeepCopy())
				_, _ = nodeClaims.Reconcile(t.Context(), f.nodeClaims[i].DeepCopy())
				_, _ = nodes.Reconcile(t.Context(), node)
			}
			_, _ = garbagecollection.NewLeftoverController(clusters).Reconcile(t.Context())
			deleted := 0
			for i, machine := range f.machines {
				if !exists(t, machine) {
					deleted++
				}
				if !exists(t, f.nodeClaims[i]) && (!tc.orphan || i > 0) {
					t.Errorf("%s: NodeClaim %s is deleted", tc.reason, machine.Name)
				}
			}
			if deleted != tc.wantDeleted {
				t.Errorf("%s: %d Machines are deleted, want %d", tc.reason, deleted, tc.wantDeleted)
			}
		})
	}
}

// notServed is the answer to a path that an API server does not know.
func notServed(request *http.Request) (*http.Response, error) {
	return &http.Response{Request: request, StatusCode: http.StatusNotFound, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: http.NoBody}, nil
}

// identified runs the guard of a provider whose cluster the manager has pinned, and returns when it has seen that.
func identified(t *testing.T, f *fleet, guard *identity.Guard) {
	t.Helper()
	cluster := f.cluster()
	uid, err := identity.UID(t.Context(), environment.Client)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Status.ClusterUID = uid
	if err := environment.Client.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		_ = guard.Start(ctx) // it ends with an error where the cluster is another one
		close(stopped)
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
	tenanttest.Eventually(t, "the guard has seen the cluster", func(context.Context) (bool, error) {
		return f.cluster().Status.ObservedClusterUID == uid, nil
	})
}
