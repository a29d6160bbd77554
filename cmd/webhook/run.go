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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cli"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/certs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/fleet"
)

func run(ctx context.Context, o *options) error {
	host, port, err := o.complete()
	if err != nil {
		return err
	}
	config, err := o.cluster.RESTConfig(name)
	if err != nil {
		return err
	}
	if err := cli.WaitForAPI(ctx, config, o.cluster.Name, o.startupTimeout); err != nil {
		return err
	}
	if err := cli.RequireKinds(config, o.cluster.Name, requiredKinds()...); err != nil {
		return err
	}
	var tlsOptions []func(*tls.Config)
	var rotator *certs.Rotator
	if o.certRotation {
		tlsOptions = append(tlsOptions, func(config *tls.Config) { config.GetCertificate = rotator.GetCertificate })
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: o.certDir, TLSOpts: tlsOptions})
	mgr, err := o.newManager(config, server)
	if err != nil {
		return err
	}
	if o.certRotation {
		rotator = certs.NewRotator(mgr.GetClient(), clock.RealClock{}, types.NamespacedName{Namespace: o.namespace, Name: o.secret}, o.configuration, certs.Settings{
			Names: o.certNames, AuthorityLifetime: o.caLifetime, Lifetime: o.certLifetime, Settle: o.settle,
		})
		if err := errors.Join(rotator.Register(ctx, mgr), mgr.AddReadyzCheck("certificates", rotator.Ready)); err != nil {
			return fmt.Errorf("setting up the certificates, %w", err)
		}
	}
	if err := o.register(ctx, mgr); err != nil {
		return err
	}
	leaving := func(*http.Request) error {
		if ctx.Err() != nil {
			return errors.New("the process is about to end")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("staying", leaving); err != nil {
		return fmt.Errorf("setting up the probes, %w", err)
	}
	lasting, stop := linger(ctx, clock.RealClock{}, o.shutdownDelay)
	defer stop()
	if err := mgr.Start(lasting); err != nil {
		return fmt.Errorf("running the webhook, %w", err)
	}
	return nil
}

// linger returns a context that ends a while after another.
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

func requiredKinds() []cli.Kind {
	kinds := []cli.Kind{{
		GroupVersionKind: bmov1alpha1.GroupVersion.WithKind("BareMetalHost"),
		Remedy:           "install baremetal-operator's CRDs",
	}}
	for _, kind := range []string{"NodeProvider", "NodeType", "Machine", "OSImage", "SSHKey", "MachineConfigTemplate", "TenantCluster"} {
		kinds = append(kinds, cli.Kind{
			GroupVersionKind: v1alpha1.GroupVersion.WithKind(kind),
			Remedy:           "install this project's CRDs (pkg/apis/crds)",
		})
	}
	return kinds
}

func (o *options) newManager(config *rest.Config, server webhook.Server) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(bmov1alpha1.AddToScheme(scheme))
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cli.TrimObject,
			ByObject: map[client.Object]cache.ByObject{
				&bmov1alpha1.BareMetalHost{}: {Transform: trimHost},
				&corev1.Secret{}: {
					Namespaces: map[string]cache.Config{o.namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", o.secret)}},
				},
				&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: fields.OneTermEqualSelector("metadata.name", o.configuration)},
			},
		},
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.healthAddress,
		WebhookServer:          server,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the webhook, %w", err)
	}
	return mgr, nil
}

// trimHost drops what of a host nobody here reads: with thousands of them, what inspection has found is most of the
// memory. How big the host is stays, which is compared with what types say.
func trimHost(object any) (any, error) {
	host, ok := object.(*bmov1alpha1.BareMetalHost)
	if !ok {
		return object, nil // a tombstone
	}
	if details := host.Status.HardwareDetails; details != nil {
		size := &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Arch: details.CPU.Arch, Count: details.CPU.Count}, RAMMebibytes: details.RAMMebibytes}
		for i := range details.Storage {
			size.Storage = append(size.Storage, bmov1alpha1.Storage{SizeBytes: details.Storage[i].SizeBytes})
		}
		host.Status.HardwareDetails = size
	}
	delete(host.Annotations, bmov1alpha1.HardwareDetailsAnnotation)
	return cli.TrimObject(host)
}

// register has the server answer, from caches that are fed from now on.
func (o *options) register(ctx context.Context, mgr manager.Manager) error {
	server := mgr.GetWebhookServer() // asking for it is what has it started
	inventory := hosts.NewInventory(hosts.Options{TopologyLabels: o.topologyLabels, IndexLabels: true})
	if err := fleet.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	// What is looked up by name is watched from the start too, and not from the first request on.
	for _, kind := range []client.Object{&v1alpha1.OSImage{}, &v1alpha1.SSHKey{}, &v1alpha1.MachineConfigTemplate{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T, %w", kind, err)
		}
	}
	if err := errors.Join(mgr.Add(hosts.NewFeed(mgr.GetCache(), inventory)), mgr.Add(fleet.NewTypeFeed(mgr.GetCache(), inventory))); err != nil {
		return fmt.Errorf("feeding the inventory, %w", err)
	}
	for path, handler := range webhooks.Handlers(fleet.New(mgr.GetClient(), inventory), clock.RealClock{}) {
		server.Register(path, &admission.Webhook{Handler: handler})
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", cli.CacheSynced(mgr.GetCache())),
		mgr.AddReadyzCheck("servers", func(*http.Request) error {
			if !inventory.Synced() {
				return errors.New("the servers are not known yet")
			}
			return nil
		}),
		mgr.AddReadyzCheck("listening", server.StartedChecker()),
	); err != nil {
		return fmt.Errorf("setting up the probes, %w", err)
	}
	return nil
}
