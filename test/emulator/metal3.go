// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"errors"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNoUserData: a config drive has no user data.
var ErrNoUserData = errors.New("there is no user data on the config drive")

// Keys under which baremetal-operator looks for user data in a Secret, in this order.
const (
	userDataKey         = "userData"
	userDataFallbackKey = "value"
)

// Metal3Source takes power and config drives from the BareMetalHosts of one namespace, for a Metal3 that drives no BMCs
// (demo mode): a host that is provisioned and online is a server with power. A paused BareMetalHost, or a deleted one,
// changes nothing: Metal3 switches a server off before it removes the finalizer. Nor does one without a state, at which Metal3 has not
// looked: one that is restored has none until its status is written.
type Metal3Source struct {
	client    client.WithWatch
	namespace string
}

// NewMetal3Source reads the BareMetalHosts of the namespace through the management cluster's API.
func NewMetal3Source(config *rest.Config, namespace string) (*Metal3Source, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(metal3api.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme of BareMetalHosts, %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building a client of the management cluster, %w", err)
	}
	return &Metal3Source{client: c, namespace: namespace}, nil
}

// Watch implements Source. It returns once the informer has stopped, so changed is not called afterwards.
func (s *Metal3Source) Watch(ctx context.Context, changed func(server string, power Power)) error {
	// The informer retries for ever; a missing CRD should be an error at the start.
	err := s.client.List(ctx, &metal3api.BareMetalHostList{}, client.InNamespace(s.namespace), client.Limit(1))
	if meta.IsNoMatchError(err) {
		return errors.New("the management cluster has no BareMetalHosts: install Metal3's CRDs first")
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("listing BareMetalHosts, %w", err)
	}
	informer := cache.NewSharedIndexInformer(s.hosts(), &metal3api.BareMetalHost{}, 0, nil)
	report := func(obj any) {
		host, ok := obj.(*metal3api.BareMetalHost)
		if !ok {
			return
		}
		if !isSilent(host) {
			changed(host.Name, powerOf(host))
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    report,
		UpdateFunc: func(_, obj any) { report(obj) },
	}); err != nil {
		return fmt.Errorf("watching BareMetalHosts, %w", err)
	}
	informer.RunWithContext(ctx)
	return nil
}

// hosts lists and watches the BareMetalHosts of the namespace.
func (s *Metal3Source) hosts() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &metal3api.BareMetalHostList{}
			return list, s.client.List(ctx, list, client.InNamespace(s.namespace), &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return s.client.Watch(ctx, &metal3api.BareMetalHostList{}, client.InNamespace(s.namespace), &client.ListOptions{Raw: &options})
		},
	}
}

// isSilent returns whether a BareMetalHost says nothing about the power of its server.
func isSilent(host *metal3api.BareMetalHost) bool {
	_, paused := host.Annotations[metal3api.PausedAnnotation]
	return paused || host.Status.Provisioning.State == metal3api.StateNone
}

// powerOf derives the power of the server from the BareMetalHost. Metal3 in demo mode does not report power.
func powerOf(host *metal3api.BareMetalHost) Power {
	if host.Status.Provisioning.State != metal3api.StateProvisioned {
		return Power{}
	}
	return Power{
		On: host.Spec.Online,
		// Metal3 records when it began to write the image. That time differs for each installation on the same server,
		// and is kept when its BareMetalHost is restored with another UID.
		Install: fmt.Sprintf("%s/%d", host.Name, host.Status.OperationHistory.Provision.Start.UnixNano()),
	}
}

// UserData implements Source. It finds the Secret as baremetal-operator does.
func (s *Metal3Source) UserData(ctx context.Context, server string) ([]byte, error) {
	host := &metal3api.BareMetalHost{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: server}, host); err != nil {
		return nil, fmt.Errorf("reading host %s, %w", server, err)
	}
	ref := host.Spec.UserData
	if ref == nil || ref.Name == "" {
		return nil, fmt.Errorf("host %s refers to no secret, %w", server, ErrNoUserData)
	}
	if ref.Namespace != "" && ref.Namespace != host.Namespace {
		return nil, fmt.Errorf("host %s refers to a secret in namespace %s, which Metal3 refuses, %w", server, ref.Namespace, ErrNoUserData)
	}
	secret := &corev1.Secret{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: ref.Name}, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("secret %s of host %s does not exist, %w", ref.Name, server, ErrNoUserData)
		}
		return nil, fmt.Errorf("reading secret %s of host %s, %w", ref.Name, server, err)
	}
	for _, key := range []string{userDataKey, userDataFallbackKey} {
		if data, ok := secret.Data[key]; ok {
			return data, nil
		}
	}
	return nil, fmt.Errorf("secret %s of host %s has neither key %s nor %s, %w", ref.Name, server, userDataKey, userDataFallbackKey,
		ErrNoUserData)
}
