// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/certs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Certificates and their authority are renewed every few seconds, the manager starts again after each of its steps, and objects are written
// all the time. No write fails, and the rules hold throughout.
func TestRotationUnderLoad(t *testing.T) {
	system.Only(t)
	fleet(t)
	// A minute for an authority, and not much less for a certificate: both are renewed when a third is left, so that a machine may stand
	// still for some seconds.
	namespace := environment.Namespace(t) // others have the Secret's name in default
	environment.Grant(t, namespace, "webhook.yaml")
	short := certs.Settings{Names: settings.Names, AuthorityLifetime: 54 * time.Second, Lifetime: 42 * time.Second, Settle: 3 * time.Second}
	webhook := start(t, "", "--namespace="+namespace)
	stopManager := rotate(t, namespace, short)
	configure(t, webhook.address)
	webhook.await(t)
	awaitAsked(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writes atomic.Int64
	var writers sync.WaitGroup
	faults := make(chan error, 1)
	for n := range 4 {
		writers.Go(func() {
			for m := 0; ctx.Err() == nil; m++ {
				if err := write(ctx, t, fmt.Sprintf("rotated-%d-%d", n, m)); err != nil && ctx.Err() == nil {
					select {
					case faults <- err:
					default:
					}
					return
				}
				writes.Add(1)
			}
		})
	}

	authorities, certificates := map[string]bool{}, map[string]bool{}
	poll.Eventually(t, "the authority has been renewed three times", func(ctx context.Context) error {
		select {
		case err := <-faults:
			t.Fatalf("a write failed: %v", err)
		default:
		}
		secret := &corev1.Secret{}
		if err := environment.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "karpenter-metal3-webhook-certs"},
			secret); err != nil {
			return err
		}
		newest, _ := pem.Decode(secret.Data["ca.crt"])
		served, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
		if steps := len(authorities) + len(certificates); newest != nil && served != nil {
			authorities[string(newest.Bytes)], certificates[string(served.Bytes)] = true, true
			if steps < len(authorities)+len(certificates) {
				stopManager()
				stopManager = rotate(t, namespace, short)
			}
		}
		if len(authorities) < 4 {
			return fmt.Errorf("seen are %d", len(authorities))
		}
		return nil
	})
	stop()
	writers.Wait()
	select {
	case err := <-faults:
		t.Fatalf("a write failed: %v", err)
	default:
	}
	if len(certificates) < 4 {
		t.Errorf("%d certificates by %d authorities", len(certificates), len(authorities))
	}
	t.Logf("%d writes, %d authorities, %d certificates", writes.Load(), len(authorities), len(certificates))
}

// The webhook may be there before the manager: it waits, and says for what. It may also find what another manager has left.
func TestWebhookBeforeManager(t *testing.T) {
	fleet(t)
	namespace := environment.Namespace(t)
	environment.Grant(t, namespace, "webhook.yaml")
	first := start(t, "", "--namespace="+namespace)
	configure(t, first.address)
	waits := fmt.Sprintf("there is no certificate in Secret %s/%s yet: a manager with --webhook-cert-rotation writes it", namespace,
		certs.SecretName)
	poll.Eventually(t, "it says what it waits for", func(ctx context.Context) error {
		probe, err := get(ctx, first.health+"/readyz/certificates")
		if err == nil {
			t.Fatalf("it is ready: %s", probe)
		}
		if logged := first.log(t); !strings.Contains(logged, waits) {
			return fmt.Errorf("it says:\n%s", logged)
		}
		return nil
	})
	stop := rotate(t, namespace, settings)
	first.await(t)
	awaitAsked(t)
	stop()
	first.kill(t)
	start(t, first.address, "--namespace="+namespace).await(t)
	if err := write(t.Context(), t, "without-manager"); err != nil {
		t.Errorf("the manager is away: %v", err)
	}
}

// What the webhook answers with is the manager's, and it can change neither that nor whom the API server asks.
func TestWebhookWritesNothing(t *testing.T) {
	namespace := environment.Namespace(t)
	environment.Grant(t, namespace, "webhook.yaml")
	configure(t, "127.0.0.1:1")
	rotate(t, namespace, settings)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certs.SecretName}}
	poll.Eventually(t, "there is a certificate", func(ctx context.Context) error {
		err := environment.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if err == nil && len(secret.Data[corev1.TLSCertKey]) == 0 {
			err = errors.New("it is empty")
		}
		return err
	})
	webhook := environment.As(t, "karpenter-metal3-webhook")
	for _, object := range []client.Object{
		secret,
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "karpenter-metal3"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "karpenter-metal3"}},
	} {
		if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		for verb, write := range map[string]func(client.Client) error{
			"update": func(c client.Client) error { return c.Update(t.Context(), object, client.DryRunAll) },
			"patch": func(c client.Client) error {
				return c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte("{}")), client.DryRunAll)
			},
			"delete": func(c client.Client) error { return c.Delete(t.Context(), object, client.DryRunAll) },
		} {
			if err := write(webhook); !apierrors.IsForbidden(err) {
				t.Errorf("the webhook may %s %T %s: %v", verb, object, object.GetName(), err)
			}
		}
	}
}

// write makes a Machine, deletes it again, and tries to make one that the webhook refuses.
func write(ctx context.Context, t *testing.T, name string) error {
	good := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: "+name+"}, spec: {nodeTypeRef: {name: cpu}}}")
	if err := environment.Client.Create(ctx, good); err != nil {
		return fmt.Errorf("creating a Machine, %w", err)
	}
	if err := environment.Client.Delete(ctx, good); err != nil {
		return fmt.Errorf("deleting a Machine, %w", err)
	}
	bad := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: "+name+"}, spec: {nodeTypeRef: {name: cpu}, labels: {'a b': c}}}")
	if err := environment.Client.Create(ctx, bad, client.DryRunAll); !apierrors.IsInvalid(err) {
		return fmt.Errorf("a Machine that is wrong: %w", err)
	}
	return nil
}
