// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/pem"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Certificates and their authority are renewed every few seconds, while two replicas see to it and objects are written
// all the time. No write fails, and the rules hold throughout.
func TestRotationUnderLoad(t *testing.T) {
	system.Only(t)
	fleet(t)
	// A minute for an authority, and a third of that for a certificate, so that a machine may stand still for some seconds.
	namespace := environment.Namespace(t) // others have the Secret's name in default
	environment.Grant(t, namespace, "webhook.yaml")
	flags := []string{"--ca-lifetime=48s", "--cert-lifetime=16s", "--ca-settle=4s", "--namespace=" + namespace}
	webhook := start(t, "", flags...)
	start(t, "", flags...) // this one gets no requests, but it renews too
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
		authorities[string(newest.Bytes)], certificates[string(served.Bytes)] = true, true
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
