// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs manages the certificates of the webhook and renews them without a failed request. The leading manager
// writes them to a Secret, with a Rotator. Each webhook replica serves from it, with a Reader, and writes nothing.
//
// A new certificate authority is published beside the old one before it signs anything. As long as an API server may
// not trust it, the old one signs the certificate. This needs neither a restart nor files.
package certs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// SecretName is the default name of the Secret.
const SecretName = "karpenter-metal3-webhook-certs"

// Rotator issues and renews the certificates, and publishes the authorities to trust. Each write is a compare-and-swap.
type Rotator struct {
	client        client.Client
	live          client.Reader
	clock         clock.PassiveClock
	secret        types.NamespacedName
	configuration string
	settings      Settings

	// bundle has the authorities in the configurations. published is since when this process knows that: a process may
	// end after any write, and the next one waits again.
	bundle    []byte
	published time.Time
}

// NewRotator returns a rotator of the certificates in a Secret. configuration is the name of the
// ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration that must trust them. The rotator reads the
// Secret live: a stale one would revert what is published.
func NewRotator(client client.Client, live client.Reader, clk clock.PassiveClock, secret types.NamespacedName, configuration string,
	settings Settings) *Rotator {
	return &Rotator{client: client, live: live, clock: clk, secret: secret, configuration: configuration, settings: settings}
}

// CachedSecret returns the cache options for the Secret.
func CachedSecret(secret types.NamespacedName) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{
		secret.Namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, secret.Name)}}}
}

// Cached returns the kinds in the cache for a Rotator, restricted to its objects.
func Cached(secret types.NamespacedName, configuration string) map[client.Object]cache.ByObject {
	named := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, configuration)}
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: CachedSecret(secret),
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: named,
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   named,
	}
}

// Name returns the name of the controller.
func (r *Rotator) Name() string { return "webhook.certificates" }

// Register adds the rotator to a manager, whose cache has only the objects of these kinds in Cached. Leaders run it.
func (r *Rotator) Register(_ context.Context, mgr manager.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.secret}}
	})
	if err := builder.ControllerManagedBy(mgr).
		Named(r.Name()).
		For(&corev1.Secret{}, builder.OnlyMetadata).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, enqueue).
		WatchesRawSource(once(r.secret)). // there may be none of them yet
		Complete(r); err != nil {
		return fmt.Errorf("starting controller %s, %w", r.Name(), err)
	}
	return nil
}

// once makes a controller reconcile the Secret at the start.
func once(secret types.NamespacedName) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: secret})
		return nil
	})
}

// Reconcile updates the trusted authorities and the Secret, in an order that keeps the certificate trusted.
func (r *Rotator) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.secret.Namespace, Name: r.secret.Name}, Type: corev1.SecretTypeTLS}
	exists, err := kube.Find(ctx, r.live, r.secret, secret)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Secret %s, %w", r.secret, err)
	}
	// 1. Publish the authorities. Without a configuration no API server asks the webhook, and nothing is signed. The
	// creation of the configuration is an event.
	if len(secret.Data[CAKey]) > 0 {
		if found, err := r.publish(ctx, secret.Data[CAKey]); err != nil || !found {
			return kube.RetryConflict(err)
		}
	}
	// 2. Write renewals. A conflict comes from an earlier write.
	data, wait, err := next(secret.Data, r.clock.Now(), r.published, r.settings)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("renewing the certificates in Secret %s, %w", r.secret, err)
	}
	if maps.EqualFunc(data, secret.Data, bytes.Equal) {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	secret.Data = data
	write := func() error { return r.client.Create(ctx, secret) }
	if exists {
		write = func() error { return r.client.Update(ctx, secret) }
	}
	if err := write(); err != nil {
		return kube.RetryConflict(fmt.Errorf("writing Secret %s, %w", r.secret, err))
	}
	log.FromContext(ctx).Info("Renewed the certificates of the webhook", "secret", r.secret, "next", wait)
	return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
}

// publish writes the trusted authorities into the configurations, and reports whether there is one for our own kinds.
func (r *Rotator) publish(ctx context.Context, bundle []byte) (found bool, err error) {
	changed := !bytes.Equal(bundle, r.bundle)
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		var written bool
		if found, written, err = r.trust(ctx, configuration, bundle); err != nil {
			return false, fmt.Errorf("writing the CA bundle into %T %s, %w", configuration, r.configuration, err)
		}
		changed = changed || written
	}
	if changed {
		r.bundle, r.published = bundle, r.clock.Now()
	}
	return found, nil
}

// trust writes the trusted authorities into a configuration, and reports whether it exists, and whether they are new.
func (r *Rotator) trust(ctx context.Context, configuration client.Object, bundle []byte) (found, written bool, err error) {
	if err := r.client.Get(ctx, types.NamespacedName{Name: r.configuration}, configuration); err != nil {
		return false, false, client.IgnoreNotFound(err)
	}
	changed := configuration.DeepCopyObject().(client.Object)
	for _, config := range clientConfigs(changed) {
		written = written || !bytes.Equal(config.CABundle, bundle)
		config.CABundle = bundle
	}
	if written {
		err = r.client.Update(ctx, changed)
	}
	return true, written, err
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
