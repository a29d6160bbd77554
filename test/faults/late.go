// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/client-go/transport"
)

// LateWatches returns a wrapper for the transport of a client: what a watch says arrives up to a while later, as from a busy API
// server. The order stays, and other requests are not delayed, so a cache of the client is behind what the client has written.
func LateWatches(most time.Duration) transport.WrapperFunc {
	return lateWatches(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(most)):
		}
	})
}

// lateWatches calls wait with the context of the watch before each part of it is handed on.
func lateWatches(wait func(context.Context)) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && request.URL.Query().Get("watch") == "true" {
				response.Body = &lateBody{ReadCloser: response.Body, wait: func() { wait(request.Context()) }}
			}
			return response, err
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// lateBody waits after each read, before the reader gets what was read.
type lateBody struct {
	io.ReadCloser
	wait func()
}

// Read implements io.Reader.
func (b *lateBody) Read(buffer []byte) (int, error) {
	count, err := b.ReadCloser.Read(buffer)
	b.wait()
	return count, err
}
