// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory/feed"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/certs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
)

func run(ctx context.Context, o *options) error {
	host, port, err := o.complete()
	if err != nil {
		return err
	}
	ctx, config, err := o.cluster.RESTConfig(ctx, name)
	if err != nil {
		return err
	}
	kinds := operator.ManagementKinds("NodeProvider", "NodeType", "Machine", "NodeProfile", "OSImage", "SSHKey", "MachineConfigTemplate",
		"TenantCluster")
	if err := o.process.Preflight(ctx, config, o.cluster.Name, kinds...); err != nil {
		return err
	}
	callers, err := webhooks.NewCallers(o.clientCA, o.clientNames, int(o.inFlight))
	if err != nil {
		return fmt.Errorf("flag --client-ca-file, %w", err)
	}
	tlsOptions := []func(*tls.Config){callers.TLS}
	if !o.http2 {
		tlsOptions = append(tlsOptions, func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} })
	}
	var certificate *certs.Reader
	if o.certRotation {
		tlsOptions = append(tlsOptions, func(config *tls.Config) { config.GetCertificate = certificate.GetCertificate })
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: o.certDir, TLSOpts: tlsOptions})
	rights := operator.NewRights()
	mgr, err := o.newManager(config, server, rights)
	if err != nil {
		return err
	}
	if o.certRotation {
		certificate = certs.NewReader(mgr.GetClient(), clock.RealClock{}, o.secret)
		if err := errors.Join(certificate.Register(ctx, mgr), mgr.AddReadyzCheck("certificates", certificate.Ready)); err != nil {
			return fmt.Errorf("setting up the certificate, %w", err)
		}
	}
	if err := o.register(ctx, mgr, callers); err != nil {
		return err
	}
	leaving := func(*http.Request) error {
		if ctx.Err() != nil {
			return errors.New("the process is shutting down")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("staying", leaving); err != nil {
		return fmt.Errorf("setting up the probes, %w", err)
	}
	lasting, stop := linger(ctx, clock.RealClock{}, o.shutdownDelay)
	defer stop()
	if err := rights.Start(lasting, mgr); err != nil {
		return fmt.Errorf("running the webhook, %w", err)
	}
	return nil
}

// linger returns a context that ends the given delay after ctx.
func linger(ctx context.Context, clk clock.Clock, delay time.Duration) (context.Context, context.CancelFunc) {
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		timer := clk.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-lasting.Done():
		}
		stop()
	})
	return lasting, stop
}

func (o *options) newManager(config *rest.Config, server webhook.Server, rights *operator.Rights) (manager.Manager, error) {
	return o.process.NewManager(config, manager.Options{
		Scheme: operator.ManagementScheme(),
		Cache: cache.Options{DefaultWatchErrorHandler: rights.Handler(o.cluster.Name, config), ByObject: map[client.Object]cache.ByObject{
			&bmov1alpha1.BareMetalHost{}: feed.Hosts(config),
			&corev1.Secret{}:             certs.CachedSecret(o.secret),

			kube.MetadataOf(names.ClaimKind):    {Transform: operator.TrimAlso(cluster.Trim)},
			kube.MetadataOf(names.TemplateKind): {Transform: operator.TrimAlso(cluster.Trim)},
			&resourcev1.DeviceClass{}:           {Transform: operator.TrimAlso(cluster.TrimClass)},
		}},
		WebhookServer: server,
	}, nil)
}

// register adds the handlers to the webhook server, and the informers that they read from to the manager.
func (o *options) register(ctx context.Context, mgr manager.Manager, callers *webhooks.Callers) error {
	server := mgr.GetWebhookServer() // GetWebhookServer adds the server to the manager
	hosts := inventory.NewInventory(inventory.Options{Topology: &o.mapping})
	if err := cluster.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	// The handlers read these kinds only by name. Without this loop, the first request would wait for their caches.
	for _, kind := range []client.Object{&v1alpha1.NodeProfile{}, &v1alpha1.OSImage{}, &v1alpha1.SSHKey{},
		&v1alpha1.MachineConfigTemplate{}, kube.NamespaceMetadata(), kube.MetadataOf(names.ClaimKind),
		kube.MetadataOf(names.TemplateKind), &resourcev1.DeviceClass{}} {
		_, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil && !meta.IsNoMatchError(err) { // Kubernetes before 1.34 does not serve this version of claims
			return fmt.Errorf("watching %T, %w", kind, err)
		}
	}
	err := errors.Join(mgr.Add(feed.New(mgr.GetCache(), hosts)), mgr.Add(feed.NewTypes(mgr.GetCache(), hosts)))
	if err != nil {
		return fmt.Errorf("feeding the inventory, %w", err)
	}
	handlers, err := webhooks.Handlers(cluster.New(mgr.GetClient(), hosts), clock.RealClock{})
	if err != nil {
		return err
	}
	for path, handler := range handlers {
		server.Register(path, callers.Limit(ctx, &admission.Webhook{Handler: handler}))
	}
	if err := errors.Join(
		mgr.AddReadyzCheck("servers", func(*http.Request) error {
			if !hosts.Synced() {
				return errors.New("the inventory is not synced yet")
			}
			return nil
		}),
		mgr.AddReadyzCheck("listening", server.StartedChecker()),
	); err != nil {
		return fmt.Errorf("setting up the probes, %w", err)
	}
	return nil
}
