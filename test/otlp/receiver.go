// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package otlp takes traces as an OpenTelemetry collector does: by OTLP over gRPC.
package otlp

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // collectors compress
)

// Receiver has the spans that it was sent.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	// Endpoint is its URL.
	Endpoint string

	mu    sync.Mutex
	spans []Span
}

// Span is a span with the name of the program that has sent it.
type Span struct {
	*trace.Span
	Service string
}

// Listen starts a Receiver on loopback. It ends with the test.
func Listen(t testing.TB) *Receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	receiver := &Receiver{Endpoint: "http://" + listener.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, receiver)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return receiver
}

// Export implements the service.
func (r *Receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		service := ""
		for _, attribute := range resource.Resource.GetAttributes() {
			if attribute.Key == "service.name" {
				service = attribute.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				r.spans = append(r.spans, Span{Span: span, Service: service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans returns what has come so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}
