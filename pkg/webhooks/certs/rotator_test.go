// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var key = types.NamespacedName{Namespace: "default", Name: "certs"}

// fixture is a manager and replicas of the webhook on one API server in memory.
type fixture struct {
	client.Client
	clock   *clocktesting.FakeClock
	rotator *Rotator
	readers []*Reader
}

func newFixture(replicas int) *fixture {
	f := &fixture{Client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(),
		clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	f.rotator = NewRotator(f, f, f.clock, key, "config", testSettings)
	for range replicas {
		f.readers = append(f.readers, NewReader(f, f.clock, key))
	}
	return f
}

// settle has the rotator reconcile until it has nothing to do, and then the readers.
func (f *fixture) settle(t *testing.T) {
	t.Helper()
	for range 4 {
		if _, err := f.rotator.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range f.readers {
		if result, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil || result.RequeueAfter <= 0 {
			t.Fatalf("%v, it looks again after %s", err, result.RequeueAfter)
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
	f := newFixture(3)
	c, clk, all := f.Client, f.clock, f.readers
	unready := func(what string) {
		t.Helper()
		for _, r := range all {
			if err := r.Ready(nil); err == nil || !strings.Contains(err.Error(), "--webhook-cert-rotation") {
				t.Errorf("ready %s: %v", what, err)
			}
		}
	}
	unready("without a certificate")
	f.settle(t)
	unready("although the API server is not told to ask")
	if err := c.Create(t.Context(), podsConfiguration("a", "b")); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
	unready("although its own kinds are not asked about")
	if err := c.Create(t.Context(), configuration("a", "b")); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
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
	f.settle(t)
	if second := check("renewed"); bytes.Equal(first, second) {
		t.Error("it has not been renewed")
	}
	clk.Step(testSettings.Lifetime * 2)
	for _, r := range all {
		if r.Ready(nil) == nil {
			t.Error("ready with a certificate that has expired")
		}
	}
	f.settle(t)
	check("after a long sleep")
}

// A configuration that is applied again without a CA bundle, as by a package manager, gets the CA bundle again.
func TestBundleIsRestored(t *testing.T) {
	f := newFixture(0)
	c := f.Client
	if err := errors.Join(c.Create(t.Context(), configuration("a")), c.Create(t.Context(), podsConfiguration("a"))); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
	stored := configuration()
	if err := c.Get(t.Context(), types.NamespacedName{Name: "config"}, stored); err != nil {
		t.Fatal(err)
	}
	bundle := stored.Webhooks[0].ClientConfig.CABundle
	stored.Webhooks[0].ClientConfig.CABundle = nil
	if err := c.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
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
	f.settle(t)
	if err := c.Get(t.Context(), types.NamespacedName{Name: "config"}, pods); err != nil ||
		!bytes.Equal(pods.Webhooks[0].ClientConfig.CABundle, bundle) {
		t.Errorf("for pods: %v, %d bytes, want %d", err, len(pods.Webhooks[0].ClientConfig.CABundle), len(bundle))
	}
}

// An authority signs only what all API servers trust, whatever happens to the manager in between: it fails at any write, sleeps for any
// time, and starts again without what it knew.
func TestSignsWhatIsTrusted(t *testing.T) {
	type bundle struct {
		text  string
		since time.Time
	}
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 0))
		clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		bundles, pair, signed := map[string]bundle{}, map[string][]byte{}, 0
		// trusted is whether both configurations have had an authority since a time.
		trusted := func(authority *x509.Certificate, since time.Time) bool {
			for _, kind := range []string{"*v1.ValidatingWebhookConfiguration", "*v1.MutatingWebhookConfiguration"} {
				if bundle := bundles[kind]; !strings.Contains(bundle.text, string(encode(authority.Raw))) || bundle.since.After(since) {
					return false
				}
			}
			return true
		}
		written := func(object client.Object) {
			for _, config := range clientConfigs(object) {
				if kind := fmt.Sprintf("%T", object); bundles[kind].text != string(config.CABundle) {
					bundles[kind] = bundle{string(config.CABundle), clk.Now()}
				}
			}
			secret, is := object.(*corev1.Secret)
			if !is || bytes.Equal(secret.Data[corev1.TLSCertKey], pair[corev1.TLSCertKey]) {
				return
			}
			_, before := serving(pair, parseBundle(pair[CAKey]), clk.Now())
			_, signer := serving(secret.Data, parseBundle(secret.Data[CAKey]), clk.Now())
			pair, signed = secret.Data, signed+1
			switch {
			case signer == nil || !trusted(signer, clk.Now()):
				t.Fatalf("seed %d: no API server has been told to trust what has signed the certificate", seed)
			case before != nil && !before.Equal(signer) && !trusted(signer, clk.Now().Add(-testSettings.Settle)):
				t.Fatalf("seed %d: an API server may not have heard of what has signed the certificate", seed)
			}
		}
		writes := -1 // until it fails
		fails := func() error {
			if writes--; writes == 0 {
				return errors.New("it is killed")
			}
			return nil
		}
		c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				err := fails()
				if err == nil {
					err = c.Create(ctx, object, options...)
				}
				if err == nil {
					written(object)
				}
				return err
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				err := fails()
				if err == nil {
					err = c.Update(ctx, object, options...)
				}
				if err == nil {
					written(object)
				}
				return err
			},
		}).Build()
		if err := errors.Join(c.Create(t.Context(), configuration("a")), c.Create(t.Context(), podsConfiguration("a", "b"))); err != nil {
			t.Fatal(err)
		}
		rotator := NewRotator(c, c, clk, key, "config", testSettings)
		for range 300 {
			writes = random.IntN(6)
			if _, err := rotator.Reconcile(t.Context(), reconcile.Request{}); err != nil || random.IntN(10) == 0 {
				rotator = NewRotator(c, c, clk, key, "config", testSettings)
			}
			clk.Step([]time.Duration{0, time.Second, testSettings.Settle / 2, testSettings.Settle, testSettings.Lifetime / 2}[random.IntN(5)])
		}
		if signed < 10 {
			t.Errorf("seed %d: only %d certificates were signed", seed, signed)
		}
	}
}

// What the webhook wrote before the manager did stays in force, whole or in the middle of a rotation.
func TestUpgrade(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// renewed is an authority that was made, and perhaps published, when the webhook was replaced.
		renewed bool
	}{
		"Whole":  {reason: "nothing is due"},
		"Middle": {reason: "nobody knows since when the new authority is published", renewed: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(1)
			old, err := newAuthority(f.clock.Now(), testSettings.AuthorityLifetime)
			if err != nil {
				t.Fatal(err)
			}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Type: corev1.SecretTypeTLS,
				Data: map[string][]byte{CAKey: encode(old.certificate.Raw)}}
			if secret.Data[caPrivateKey], err = keyutil.MarshalPrivateKeyToPEM(old.key); err != nil {
				t.Fatal(err)
			}
			if secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], err = old.sign(f.clock.Now(), testSettings.Lifetime,
				testSettings.Names); err != nil {
				t.Fatal(err)
			}
			published := secret.Data[CAKey]
			if tc.renewed {
				other, err := newAuthority(f.clock.Now(), testSettings.AuthorityLifetime)
				if err != nil {
					t.Fatal(err)
				}
				secret.Data[CAKey] = slices.Concat(encode(other.certificate.Raw), published)
				if secret.Data[caPrivateKey], err = keyutil.MarshalPrivateKeyToPEM(other.key); err != nil {
					t.Fatal(err)
				}
			}
			asked, pods := configuration("a"), podsConfiguration("a")
			for _, config := range slices.Concat(clientConfigs(asked), clientConfigs(pods)) {
				config.CABundle = published
			}
			if err := errors.Join(f.Create(t.Context(), secret), f.Create(t.Context(), asked), f.Create(t.Context(), pods)); err != nil {
				t.Fatal(err)
			}
			// The new webhook may come before the new manager.
			if _, err := f.readers[0].Reconcile(t.Context(), reconcile.Request{}); err != nil || f.readers[0].Ready(nil) != nil {
				t.Fatalf("%s: it does not serve what is in force: %v, %v", tc.reason, err, f.readers[0].Ready(nil))
			}
			served := func() []byte {
				if err := f.Get(t.Context(), key, secret); err != nil {
					t.Fatal(err)
				}
				return secret.Data[corev1.TLSCertKey]
			}
			before := served()
			f.clock.Step(testSettings.Settle * 2) // the manager was away
			f.settle(t)
			if !bytes.Equal(served(), before) {
				t.Errorf("%s: another certificate is served at once", tc.reason)
			}
			f.clock.Step(testSettings.Settle)
			f.settle(t)
			if bytes.Equal(served(), before) == tc.renewed {
				t.Errorf("%s: renewed %v after the authority has settled", tc.reason, !tc.renewed)
			}
		})
	}
}

// A certificate that the manager does not renew is served until it expires, and logged to be late long before.
func TestLate(t *testing.T) {
	f := newFixture(1)
	if err := errors.Join(f.Create(t.Context(), configuration("a")), f.Create(t.Context(), podsConfiguration("a"))); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration
		says   string
	}{
		"New":  {reason: "nothing is due", age: 0},
		"Due":  {reason: "the manager may be starting", age: testSettings.Lifetime * 2 / 3},
		"Late": {reason: "the manager does not work", age: testSettings.Lifetime * 6 / 7, says: "has not renewed the certificate in time"},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(f.clock.Now().Add(tc.age))
			reader, logged := NewReader(f, clk, key), ""
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged += args }, funcr.Options{}))
			if _, err := reader.Reconcile(ctx, reconcile.Request{}); err != nil || reader.Ready(nil) != nil {
				t.Fatal(err, reader.Ready(nil))
			}
			if tc.says == "" && logged != "" || !strings.Contains(logged, tc.says) {
				t.Errorf("%s: it says %q", tc.reason, logged)
			}
		})
	}
}
