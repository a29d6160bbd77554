// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// lateInterval is how often a Reader logs that a certificate is missing or late.
const lateInterval = time.Minute

// Reader returns the certificate to serve: the last usable one of the Secret.
type Reader struct {
	reader client.Reader
	clock  clock.PassiveClock
	secret types.NamespacedName

	// serving is the certificate to serve; nil until there is one.
	serving atomic.Pointer[tls.Certificate]
}

// NewReader returns a reader of the certificate in a Secret.
func NewReader(reader client.Reader, clk clock.PassiveClock, secret types.NamespacedName) *Reader {
	return &Reader{reader: reader, clock: clk, secret: secret}
}

// Register adds the reader to a manager, whose cache has no other Secret. It works in every replica.
func (r *Reader) Register(_ context.Context, mgr manager.Manager) error {
	if err := builder.ControllerManagedBy(mgr).
		Named("webhook.certificate").
		For(&corev1.Secret{}).
		WatchesRawSource(once(r.secret)). // there may be none yet
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(r); err != nil {
		return fmt.Errorf("starting the controller of the certificate, %w", err)
	}
	return nil
}

// Reconcile begins to serve the certificate of the Secret. The authority that signed it is already published.
func (r *Reader) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.reader.Get(ctx, r.secret, secret)); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Secret %s, %w", r.secret, err)
	}
	if pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err == nil {
		r.serving.Store(&pair)
	} else if len(secret.Data[corev1.TLSCertKey]) > 0 { // the previous certificate stays in use
		log.FromContext(ctx).Error(err, "the certificate cannot be served", "secret", r.secret)
	}
	serving, err := r.GetCertificate(nil)
	if err != nil {
		log.FromContext(ctx).Info("Waiting for a certificate", "reason", err.Error())
		return reconcile.Result{RequeueAfter: lateInterval}, nil
	}
	renewed := renewal(serving.Leaf)
	late := renewed.Add(serving.Leaf.NotAfter.Sub(renewed) / 2).Sub(r.clock.Now())
	if late <= 0 {
		log.FromContext(ctx).Error(nil, "the manager has not renewed the certificate in time", "secret", r.secret, "end", serving.Leaf.NotAfter)
	}
	return reconcile.Result{RequeueAfter: max(late, lateInterval)}, nil
}

// GetCertificate is for tls.Config.
func (r *Reader) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := r.serving.Load(); serving != nil {
		return serving, nil
	}
	return nil, fmt.Errorf("there is no certificate in Secret %s yet: a manager with --webhook-cert-rotation writes it", r.secret)
}

// Ready is a readiness probe. It fails until there is a certificate, and again if the certificate expires.
func (r *Reader) Ready(*http.Request) error {
	serving, err := r.GetCertificate(nil)
	if err == nil && !r.clock.Now().Before(serving.Leaf.NotAfter) {
		err = fmt.Errorf("the certificate has expired at %s", serving.Leaf.NotAfter.Format(time.RFC3339))
	}
	return err
}
