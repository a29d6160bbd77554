// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

func TestJoinSecret(t *testing.T) {
	w := newFixture(t)
	w.reconcile()
	join := w.mustHaveJoin()
	if join.NodeName != w.machine.Name || join.ProviderID != w.get().Status.ProviderID || join.APIServerEndpoint != "192.0.2.10:6443" {
		t.Errorf("the server would join as %s with %s at %s", join.NodeName, join.ProviderID, join.APIServerEndpoint)
	}
	if diff := cmp.Diff(map[string]string{"rack": "a", "team": "blue"}, join.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.Taint{karpv1.UnregisteredNoExecuteTaint}, join.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

func TestWhichMachinesGetAJoin(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.Machine)
	}{
		"NotClaimed":    {"without a server there is nothing to join with", func(m *v1alpha1.Machine) { m.Status.Conditions = nil }},
		"NoProviderID":  {"without it the Node could not be told from others", func(m *v1alpha1.Machine) { m.Status.ProviderID = "" }},
		"AnotherTenant": {"it would join the wrong cluster", func(m *v1alpha1.Machine) { m.Spec.TenantClusterRef.Name = "red" }},
		"StandAlone":    {"it joins nothing", func(m *v1alpha1.Machine) { m.Spec.TenantClusterRef = nil }},
		"Elsewhere":     {"another namespace is another tenant's, whatever the name", func(m *v1alpha1.Machine) { m.Namespace = "default" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			machine := w.get()
			tc.change(machine)
			if _, err := w.controller(&faults.Connection{Kind: faults.Crash}).Reconcile(t.Context(), machine); err != nil {
				t.Errorf("%s: the controller tried to write: %v", tc.reason, err)
			}
		})
	}
}

// TestTokenFollowsTheAPIServer: who checks a token is the tenant's API server, so its clock says how long a token is valid. No other
// clock has a say: the provider's may be hours off.
func TestTokenFollowsTheAPIServer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"Behind": -5 * time.Hour, "Ahead": 5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.clock.SetTime(time.Now().Add(ahead))
			w.reconcile()
			if left := expiryOf(t, w.tokens()[0]).Sub(w.clock.Now()); left < tokenValidity-time.Second || left > tokenValidity+tokenRenewal {
				t.Errorf("by the API server the token is valid for %s, want between %s and %s", left, tokenValidity, tokenValidity+tokenRenewal)
			}
		})
	}
}

// TestTimeIsReadOnce: servers that join at the same time cost one request for the time of the tenant's API server. What is known is not
// used for longer than timeValidity, nor after the provider's clock was set back.
func TestTimeIsReadOnce(t *testing.T) {
	w := newFixture(t)
	local, server := testclock.NewFakePassiveClock(time.Unix(1000, 0)), w.clock.Now()
	requests := 0
	controller := NewController(local, tenant.Clusters{Tenant: tenant.Cluster{Client: interceptor.NewClient(
		environment.Client, interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				requests++
				object.SetCreationTimestamp(metav1.NewTime(server))
				return nil
			}})}}, nil, nil)
	for _, step := range []struct {
		reason       string
		local        time.Duration
		server, want time.Duration
		requests     int
	}{
		{"nothing is known", 0, 0, 0, 1},
		{"it was read just now", timeValidity - 1, time.Hour, timeValidity - 1, 1},
		{"it was read long ago, and the server's clock was set", 1, time.Hour, time.Hour, 2},
		{"the provider's clock was set back", -time.Hour, 2 * time.Hour, 2 * time.Hour, 3},
	} {
		local.SetTime(local.Now().Add(step.local))
		server = w.clock.Now().Add(step.server)
		got, err := controller.now(t.Context())
		if err != nil || got.Sub(w.clock.Now()) != step.want || requests != step.requests {
			t.Errorf("%s: %s after %d requests (%v), want %s after %d", step.reason, got.Sub(w.clock.Now()), requests, err, step.want, step.requests)
		}
	}
}

func TestTokenIsRenewed(t *testing.T) {
	w := newFixture(t)
	result := w.reconcile()
	join, expiry := w.mustHaveJoin(), expiryOf(t, w.tokens()[0])
	if left := expiry.Sub(w.clock.Now()); left < time.Hour {
		t.Errorf("the token is valid for %s, want at least an hour", left)
	}
	w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	w.reconcile()
	if renewed := expiryOf(t, w.tokens()[0]); !renewed.After(expiry) || renewed.Sub(w.clock.Now()) < time.Hour {
		t.Errorf("the token expires at %s, before at %s, now is %s", renewed, expiry, w.clock.Now())
	}
	if w.mustHaveJoin().Token != join.Token {
		t.Errorf("the token has changed, and the server may be booting with the old one")
	}
}

// Kubernetes deletes expired tokens. When the provider was away for long, the server must still be able to join.
func TestTokenIsRestored(t *testing.T) {
	w := newFixture(t)
	w.reconcile()
	join := w.mustHaveJoin()
	if err := environment.Client.Delete(t.Context(), &w.tokens()[0]); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(w.clock.Now().Add(24 * time.Hour))
	w.reconcile()
	if w.mustHaveJoin().Token != join.Token {
		t.Errorf("the token has changed, and the server may be booting with the old one")
	}
}

func expiryOf(t *testing.T, token corev1.Secret) time.Time {
	t.Helper()
	expiry, err := time.Parse(time.RFC3339, string(token.Data["expiration"]))
	if err != nil {
		t.Fatal(err)
	}
	return expiry
}

// What a server has been given stays, though the Machine's labels change: it may have booted already.
func TestIssuedUserDataDoesNotChange(t *testing.T) {
	w := newFixture(t)
	w.reconcile()
	before := w.secrets()[0].ResourceVersion
	machine := w.get()
	machine.Spec.Labels["team"] = "red"
	if err := environment.Client.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if after := w.secrets()[0].ResourceVersion; after != before {
		t.Errorf("the user data was written again")
	}
}

// TestAnotherServer: a Machine that gets another server before it has joined gets another Secret, because none is written twice. None has a
// token once it has joined, and nothing is in the way of a Secret: its name tells its content.
func TestAnotherServer(t *testing.T) {
	w := newFixture(t)
	w.reconcile()
	first, written := w.mustHaveJoin(), w.secrets()[0]
	machine := w.get()
	machine.Status.ProviderID = v1alpha1.ProviderID("metal3-system", "server-02", machine.Name)
	if err := environment.Client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: w.machine.Namespace, Name: w.get().Spec.Bootstrap.DataSecretName}
	if err := environment.Client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	join, err := emulator.ReadJoin(secret.Data[v1alpha1.UserDataSecretKey])
	if err != nil || join.ProviderID != machine.Status.ProviderID || join.Token != first.Token {
		t.Errorf("the Machine refers to the join %+v, %v", join, err)
	}
	if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(&written), secret); err != nil ||
		secret.ResourceVersion != written.ResourceVersion {
		t.Errorf("the Secret for the first server was written again (%v)", err)
	}
	w.register(w.machine.Name, machine.Status.ProviderID)
	w.reconcile()
	w.mustHaveJoined(w.machine.Name)
	if secrets := w.secrets(); len(secrets) != 2 {
		t.Errorf("there are %d secrets, want one for each server", len(secrets))
	}
}

func TestOnlyItsOwnNode(t *testing.T) {
	w := newFixture(t)
	w.reconcile()
	// A Node of the Machine's name with another server's provider ID, and one that is on its way out.
	w.register(w.machine.Name, v1alpha1.ProviderID("metal3-system", "server-02", w.machine.Name))
	leaving := w.register("leaving-"+w.machine.Name, w.get().Status.ProviderID)
	leaving.Finalizers = []string{"test.karpenter.metal3.io/stay"}
	if err := environment.Client.Update(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	if err := environment.Client.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if got := w.get().ReportedNode().Name; got != "" {
		t.Errorf("node %q was taken for the machine's", got)
	}
	w.mustHaveJoin()

	leaving.Finalizers = nil
	if err := environment.Client.Patch(t.Context(), leaving,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	w.register("real-"+w.machine.Name, w.get().Status.ProviderID)
	w.reconcile()
	w.mustHaveJoined("real-" + w.machine.Name)
}

// TestManagerWritesMeanwhile: the manager writes the status of a Machine at each stage. What the provider alone writes is not refused
// for it, and does not come a second late. A Machine of the same name that came later is another one.
func TestManagerWritesMeanwhile(t *testing.T) {
	w := newFixture(t)
	read := w.get()
	written := read.DeepCopy()
	written.Status.Phase = v1alpha1.MachineClaimed
	if err := environment.Client.Status().Update(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	c := w.controller(&faults.Connection{})
	if _, err := c.Reconcile(t.Context(), read.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	w.mustHaveJoin()

	written = w.get()
	written.Finalizers = nil
	if err := environment.Client.Update(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	if err := environment.Client.Delete(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	w.claimedMachine(read.Name)
	if _, err := c.Reconcile(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	if name := w.get().Spec.Bootstrap.DataSecretName; name != "" {
		t.Errorf("the Machine that came later refers to Secret %s of the earlier one", name)
	}
}
