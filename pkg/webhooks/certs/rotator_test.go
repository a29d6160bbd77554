// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var key = types.NamespacedName{Namespace: "default", Name: "certs"}

// replicas are rotators on one API server in memory.
func replicas(t *testing.T, count int, now time.Time) (client.Client, *clocktesting.FakeClock, []*Rotator) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	clk := clocktesting.NewFakeClock(now)
	var all []*Rotator
	for range count {
		all = append(all, NewRotator(c, clk, key, "config", testSettings))
	}
	return c, clk, all
}

func round(t *testing.T, rotators ...*Rotator) {
	t.Helper()
	for _, r := range rotators {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
}

func configuration(hooks ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "config"}}
	for _, name := range hooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: name})
	}
	return c
}

func podsConfiguration(hooks ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "config"}}
	for _, name := range hooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{Name: name})
	}
	return c
}

func TestReplicasConverge(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c, clk, all := replicas(t, 3, now)
	for _, r := range all {
		if r.Ready(nil) == nil {
			t.Error("ready without a certificate")
		}
	}
	round(t, all...)
	round(t, all...)
	for _, r := range all {
		if err := r.Ready(nil); err == nil {
			t.Error("ready although the webhook configuration does not exist")
		}
		if _, err := r.GetCertificate(nil); err != nil {
			t.Errorf("a certificate that is not needed yet can be served: %v", err)
		}
	}
	if err := c.Create(t.Context(), podsConfiguration("a", "b")); err != nil {
		t.Fatal(err)
	}
	round(t, all...)
	for _, r := range all {
		if r.Ready(nil) == nil {
			t.Error("ready although its own kinds are not asked about")
		}
	}
	if err := c.Create(t.Context(), configuration("a", "b")); err != nil {
		t.Fatal(err)
	}
	round(t, all...)
	check := func(what string) []byte {
		t.Helper()
		secret, stored := &corev1.Secret{}, configuration()
		if err := c.Get(context.Background(), key, secret); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(context.Background(), types.NamespacedName{Name: "config"}, stored); err != nil {
			t.Fatal(err)
		}
		for _, hook := range stored.Webhooks {
			if !bytes.Equal(hook.ClientConfig.CABundle, secret.Data[CAKey]) {
				t.Errorf("%s: webhook %s does not trust what is in the Secret", what, hook.Name)
			}
		}
		pods := podsConfiguration()
		if err := c.Get(context.Background(), types.NamespacedName{Name: "config"}, pods); err != nil {
			t.Fatal(err)
		}
		for _, hook := range pods.Webhooks {
			if !bytes.Equal(hook.ClientConfig.CABundle, secret.Data[CAKey]) {
				t.Errorf("%s: mutating webhook %s does not trust what is in the Secret", what, hook.Name)
			}
		}
		for n, r := range all {
			served, err := r.GetCertificate(nil)
			if err != nil || r.Ready(nil) != nil {
				t.Fatalf("%s: replica %d: %v, %v", what, n, err, r.Ready(nil))
			}
			if !bytes.Equal(encode(served.Certificate[0]), secret.Data[corev1.TLSCertKey]) {
				t.Errorf("%s: replica %d serves something else than the others", what, n)
			}
		}
		return secret.Data[corev1.TLSCertKey]
	}
	first := check("at first")

	clk.Step(testSettings.Lifetime * 2 / 3)
	round(t, all...)
	round(t, all...)
	if second := check("renewed"); bytes.Equal(first, second) {
		t.Error("it has not been renewed")
	}
	clk.Step(testSettings.Lifetime * 2)
	for _, r := range all {
		if r.Ready(nil) == nil {
			t.Error("ready with a certificate that has expired")
		}
	}
	round(t, all...)
	round(t, all...)
	check("after a long sleep")
}

// A configuration that is applied again without a CA bundle, as by a package manager, gets the CA bundle again.
func TestBundleIsRestored(t *testing.T) {
	c, _, all := replicas(t, 1, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err := errors.Join(c.Create(t.Context(), configuration("a")), c.Create(t.Context(), podsConfiguration("a"))); err != nil {
		t.Fatal(err)
	}
	round(t, all...)
	round(t, all...)
	stored := configuration()
	if err := c.Get(t.Context(), types.NamespacedName{Name: "config"}, stored); err != nil {
		t.Fatal(err)
	}
	bundle := stored.Webhooks[0].ClientConfig.CABundle
	stored.Webhooks[0].ClientConfig.CABundle = nil
	if err := c.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	round(t, all...)
	if err := c.Get(t.Context(), types.NamespacedName{Name: "config"}, stored); err != nil ||
		!bytes.Equal(stored.Webhooks[0].ClientConfig.CABundle, bundle) || len(bundle) == 0 {
		t.Errorf("%v, %d bytes, want %d", err, len(stored.Webhooks[0].ClientConfig.CABundle), len(bundle))
	}
	pods := podsConfiguration()
	if err := c.Get(t.Context(), types.NamespacedName{Name: "config"}, pods); err != nil {
		t.Fatal(err)
	}
	pods.Webhooks[0].ClientConfig.CABundle = nil
	if err := c.Update(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	round(t, all...)
	if err := c.Get(t.Context(), types.NamespacedName{Name: "config"}, pods); err != nil ||
		!bytes.Equal(pods.Webhooks[0].ClientConfig.CABundle, bundle) {
		t.Errorf("for pods: %v, %d bytes, want %d", err, len(pods.Webhooks[0].ClientConfig.CABundle), len(bundle))
	}
}
