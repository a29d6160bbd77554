// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenanttest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// Backend answers requests in the place of an API server.
type Backend func(*http.Request) (*http.Response, error)

// Service is what a kubeconfig leads to, as a Service or a DNS name does: the backend behind it may change at any time.
type Service struct{ backend atomic.Pointer[Backend] }

// NewService returns a service in front of a backend.
func NewService(backend Backend) *Service {
	s := &Service{}
	s.LeadsTo(backend)
	return s
}

// LeadsTo changes the backend.
func (s *Service) LeadsTo(backend Backend) { s.backend.Store(&backend) }

// RoundTrip implements http.RoundTripper.
func (s *Service) RoundTrip(request *http.Request) (*http.Response, error) {
	return (*s.backend.Load())(request)
}

// Config returns the configuration of clients of the service.
func (s *Service) Config() *rest.Config {
	return &rest.Config{Host: "http://service.example.com", Transport: s, QPS: -1}
}

// APIServer is a backend that forwards requests to an API server.
func APIServer(t testing.TB, config *rest.Config) Backend {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return func(request *http.Request) (*http.Response, error) {
		forwarded := request.Clone(request.Context())
		forwarded.URL.Scheme, forwarded.URL.Host, forwarded.Host = host.Scheme, host.Host, ""
		return transport.RoundTrip(forwarded)
	}
}

// Answer is a backend that answers with an error of an API server.
func Answer(status metav1.Status) Backend {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status = metav1.StatusFailure
	return constant(int(status.Code), status)
}

// Version is a backend that answers all with the version of an API server.
func Version(major, minor string) Backend {
	return constant(http.StatusOK, version.Info{Major: major, Minor: minor})
}

func constant(code int, answer any) Backend {
	body, err := json.Marshal(answer)
	return func(request *http.Request) (*http.Response, error) {
		if request.Body != nil {
			_ = request.Body.Close() // what it has is not read
		}
		return &http.Response{Request: request, StatusCode: code, ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
	}
}
