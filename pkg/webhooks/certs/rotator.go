// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs issues the certificates of the webhook and renews them, without a failed request. They are in a Secret that
// all replicas share; the first replica writes it, and all serve its certificate.
//
// A new certificate authority is published beside the old one before it signs anything: as long as an API server may not
// trust it, the certificate is signed by the old one. This needs neither a restart nor files.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// conflictRetry is the delay after another replica has written first.
const conflictRetry = 100 * time.Millisecond

// Rotator issues and renews the certificates, publishes the authorities to trust, and returns the certificate to serve.
// Every replica has one; they need no leader, because each write is a compare-and-swap.
type Rotator struct {
	client        client.Client
	clock         clock.PassiveClock
	secret        types.NamespacedName
	configuration string
	settings      Settings

	mu sync.RWMutex
	// serving is the certificate to serve; nil as long as there is none.
	serving *tls.Certificate
	// published is whether the configuration has the authorities of the Secret.
	published bool
}

// NewRotator returns a rotator of the certificates in a Secret. configuration is the name of the
// ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration that are to trust them. The client reads all from a
// cache.
func NewRotator(client client.Client, clk clock.PassiveClock, secret types.NamespacedName, configuration string,
	settings Settings) *Rotator {
	return &Rotator{client: client, clock: clk, secret: secret, configuration: configuration, settings: settings}
}

// Name of the controller.
func (r *Rotator) Name() string { return "webhook.certificates" }

// Register adds the rotator to a manager. It works in every replica.
func (r *Rotator) Register(_ context.Context, mgr manager.Manager) error {
	request := []reconcile.Request{{NamespacedName: r.secret}}
	named := func(namespace, name string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(object client.Object) bool {
			return object.GetNamespace() == namespace && object.GetName() == name
		})
	}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return request })
	if err := builder.ControllerManagedBy(mgr).
		Named(r.Name()).
		Watches(&corev1.Secret{}, enqueue, builder.WithPredicates(named(r.secret.Namespace, r.secret.Name))).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue, builder.WithPredicates(named("", r.configuration))).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, enqueue, builder.WithPredicates(named("", r.configuration))).
		// There may be none of them yet.
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(request[0])
			return nil
		})).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(r); err != nil {
		return fmt.Errorf("starting controller %s, %w", r.Name(), err)
	}
	return nil
}

// Reconcile updates the Secret, the served certificate and the trusted authorities, in an order in which the served
// certificate is always trusted.
func (r *Rotator) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.secret.Namespace, Name: r.secret.Name}, Type: corev1.SecretTypeTLS}
	err := r.client.Get(ctx, r.secret, secret)
	missing := apierrors.IsNotFound(err)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading Secret %s, %w", r.secret, err)
	}
	// 1. The certificate of the Secret is trusted, and then served. Another replica may have written it.
	if !missing && len(secret.Data[CAKey]) > 0 {
		if err := r.publish(ctx, secret.Data[CAKey]); err != nil {
			return r.retry(err)
		}
		r.serve(ctx, secret)
	}
	// 2. Renewals are written. The write returns as an event, or as a conflict if another replica was faster.
	data, wait, err := next(secret.Data, r.clock.Now(), r.settings)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("renewing the certificates in Secret %s, %w", r.secret, err)
	}
	if maps.EqualFunc(data, secret.Data, bytes.Equal) {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	secret = secret.DeepCopy()
	secret.Data = data
	if missing {
		err = r.client.Create(ctx, secret)
	} else {
		err = r.client.Update(ctx, secret)
	}
	if err != nil {
		return r.retry(fmt.Errorf("writing Secret %s, %w", r.secret, err))
	}
	log.FromContext(ctx).Info("Renewed the certificates of the webhook", "secret", r.secret, "next", wait)
	return reconcile.Result{RequeueAfter: conflictRetry}, nil
}

// retry requeues soon if another replica has written first.
func (r *Rotator) retry(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	}
	return reconcile.Result{}, err
}

// publish writes the authorities to trust into the configurations.
func (r *Rotator) publish(ctx context.Context, bundle []byte) error {
	if _, err := r.trust(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{}, bundle); err != nil {
		return fmt.Errorf("writing the CA bundle into MutatingWebhookConfiguration %s, %w", r.configuration, err)
	}
	found, err := r.trust(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{}, bundle)
	if err != nil {
		return fmt.Errorf("writing the CA bundle into ValidatingWebhookConfiguration %s, %w", r.configuration, err)
	}
	r.set(func() { r.published = found })
	return nil
}

// trust writes the authorities to trust into a configuration, and returns whether there is one. If there is none, no API
// server calls its webhooks. Once it exists, there is an event.
func (r *Rotator) trust(ctx context.Context, configuration client.Object, bundle []byte) (found bool, err error) {
	if err := r.client.Get(ctx, types.NamespacedName{Name: r.configuration}, configuration); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	changed := configuration.DeepCopyObject().(client.Object)
	same := true
	for _, config := range clientConfigs(changed) {
		same = same && bytes.Equal(config.CABundle, bundle)
		config.CABundle = bundle
	}
	if same {
		return true, nil
	}
	return true, r.client.Update(ctx, changed)
}

func clientConfigs(configuration client.Object) (configs []*admissionregistrationv1.WebhookClientConfig) {
	switch configuration := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs = append(configs, &configuration.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs = append(configs, &configuration.Webhooks[i].ClientConfig)
		}
	}
	return configs
}

// serve starts to serve the certificate of the Secret. One that does not parse is renewed right afterwards.
func (r *Rotator) serve(ctx context.Context, secret *corev1.Secret) {
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		log.FromContext(ctx).Error(fmt.Errorf("reading the certificate, %w", err), "the certificate cannot be served", "secret", r.secret)
		return
	}
	r.set(func() { r.serving = &pair })
}

func (r *Rotator) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// GetCertificate is for tls.Config.
func (r *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.serving == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return r.serving, nil
}

// Ready is a readiness probe: it fails until the certificate is published, and again if it expires.
func (r *Rotator) Ready(*http.Request) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch {
	case r.serving == nil:
		return errors.New("there is no certificate yet")
	case !r.published:
		return fmt.Errorf("the CA bundle is not in ValidatingWebhookConfiguration %s yet", r.configuration)
	case r.serving.Leaf != nil && !r.clock.Now().Before(r.serving.Leaf.NotAfter):
		return fmt.Errorf("the certificate has expired at %s", r.serving.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}
