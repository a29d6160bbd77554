// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/ui"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

func run(ctx context.Context, o *options) error {
	config, mapping, err := o.complete()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return fmt.Errorf("listening, %w", err)
	}
	if o.certDir != "" {
		certificate, err := certwatcher.New(filepath.Join(o.certDir, "tls.crt"), filepath.Join(o.certDir, "tls.key"))
		if err != nil {
			listener.Close()
			return fmt.Errorf("--cert-dir is %q, %w: name a directory with tls.crt and tls.key", o.certDir, err)
		}
		group.Go(func() error { return certificate.Start(ctx) })
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate})
	}
	if o.healthAddress != operator.Disabled {
		health, err := net.Listen("tcp", o.healthAddress)
		if err != nil {
			listener.Close()
			return fmt.Errorf("listening for probes, %w", err)
		}
		group.Go(func() error { return ui.Serve(ctx, health, probes()) })
	}
	readers := ui.NewReaders(ctx, access{config, mapping}, int(o.maxReaders), clock.RealClock{})
	group.Go(func() error { return ui.Serve(ctx, listener, readers) })
	klog.FromContext(ctx).Info("Serving the page", "address", listener.Addr().String(), "tls", o.certDir != "", "server", config.Host)
	return group.Wait()
}

// probes answers those of kubelet. The page is ready once it listens: whether the API server answers, each reader is told.
func probes() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}
	return mux
}

// access reads the management cluster with the token of a reader, and no other credentials.
type access struct {
	config  *rest.Config
	mapping topology.Mapping
}

func (a access) configFor(token string) *rest.Config {
	config := rest.AnonymousClientConfig(a.config)
	config.BearerToken = token
	return config
}

// Check implements ui.Access.
func (a access) Check(ctx context.Context, token string) (string, error) {
	authentication, err := authenticationclient.NewForConfig(a.configFor(token))
	if err != nil {
		return "", fmt.Errorf("making a client, %w", err)
	}
	review, err := authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err): // the API server knows the user, who may not ask
		return "", nil
	case err != nil:
		return "", fmt.Errorf("asking the API server whose token it is, %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// Follow implements ui.Access.
func (a access) Follow(ctx context.Context, token, namespace string) (ui.Source, ui.Options, error) {
	management, err := client.NewWithWatch(a.configFor(token), client.Options{Scheme: view.Scheme()})
	if err != nil {
		return nil, ui.Options{}, fmt.Errorf("making a client, %w", err)
	}
	return ui.Follow(ctx, management, nil, view.Scope{Machines: namespace}, a.mapping)
}
