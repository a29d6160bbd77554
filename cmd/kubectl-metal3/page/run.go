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
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/ui"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

func run(ctx context.Context, o *options) error {
	access, err := o.complete()
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
	readers := ui.NewReaders(ctx, access, int(o.maxReaders), clock.RealClock{})
	group.Go(func() error { return ui.Serve(ctx, listener, readers) })
	klog.FromContext(ctx).Info("Serving the page", "address", listener.Addr().String(), "tls", o.certDir != "", "server", access.Config.Host)
	return group.Wait()
}

// probes answers kubelet's probes. The page is ready once it listens. If the API server does not answer, each reader
// is told.
func probes() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}
	return mux
}
