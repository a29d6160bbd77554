// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is the longest answer of an API server, in bytes. A tenant controls its own API server, which may answer
// without an end.
const maxAnswer = 256 << 20

// boundAnswers turns answers that are too long into errors. It does not limit watches.
type boundAnswers struct {
	http.RoundTripper
	most int
}

// RoundTrip implements http.RoundTripper.
func (b boundAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err != nil || request.URL.Query().Has("watch") {
		return response, err
	}
	response.Body = &boundAnswer{response.Body, request.URL.Path, b.most, b.most}
	return response, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper: otherwise client-go would find no connections to close.
func (b boundAnswers) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

type boundAnswer struct {
	io.ReadCloser
	path       string
	most, left int
}

// Read implements io.Reader.
func (b *boundAnswer) Read(buffer []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer to %s has more than %d bytes: something else than an API server answers, or one that lies",
			b.path, b.most)
	}
	count, err := b.ReadCloser.Read(buffer[:min(len(buffer), b.left)])
	b.left -= count
	return count, err
}
