// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/otlp"
)

const uid types.UID = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"

// send has a program of its own send the spans, and end.
func send(t *testing.T, receiver *otlp.Receiver, program string, spans ...Span) []otlp.Span {
	t.Helper()
	tracer, err := New(t.Context(), receiver.Endpoint, program)
	if err != nil {
		t.Fatal(err)
	}
	sent := len(receiver.Spans())
	for _, span := range spans {
		tracer.Send(span)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := tracer.Start(ended); err != nil {
		t.Fatal(err)
	}
	return receiver.Spans()[sent:]
}

// TestTwoPrograms: the spans of two programs that know nothing of each other are one trace, whatever their order, and what is sent again
// after a restart is the same span.
func TestTwoPrograms(t *testing.T) {
	receiver := otlp.Listen(t)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	part := Span{Namespace: "acme", Trace: uid, Name: MachineSpan, Parent: NodeClaimSpan, Start: begin, End: begin.Add(time.Minute),
		Failure: "Because"}
	whole := Span{Namespace: "acme", Trace: uid, Name: NodeClaimSpan, Start: begin, End: begin.Add(time.Hour)}
	child, root := send(t, receiver, "manager", part), send(t, receiver, "provider", whole)
	again := send(t, receiver, "manager", part)
	if len(child) != 1 || len(root) != 1 || len(again) != 1 {
		t.Fatalf("there are %d, %d and %d spans, want one each", len(child), len(root), len(again))
	}
	computed := sha256.Sum256([]byte("acme/" + uid)) // as docs/metrics.md does
	if id := hex.EncodeToString(root[0].TraceId); id != hex.EncodeToString(computed[:16]) {
		t.Errorf("the ID of the trace is %s, want %x", id, computed[:16])
	}
	// Another tenant writes the UID on a Machine of its own.
	part.Namespace = "thief"
	if foreign := send(t, receiver, "manager", part); string(foreign[0].TraceId) == string(root[0].TraceId) {
		t.Error("a tenant has a part in the trace of another")
	}
	if string(child[0].TraceId) != string(root[0].TraceId) || string(child[0].ParentSpanId) != string(root[0].SpanId) ||
		len(root[0].ParentSpanId) != 0 {
		t.Errorf("the spans %v and %v are not parent and child", root[0], child[0])
	}
	if string(again[0].SpanId) != string(child[0].SpanId) {
		t.Errorf("the span is %v, and sent again %v", child[0], again[0])
	}
	if child[0].Service != "karpenter-metal3-manager" || root[0].Service != "karpenter-metal3-provider" {
		t.Errorf("the spans are of %q and %q", child[0].Service, root[0].Service)
	}
	if child[0].StartTimeUnixNano != uint64(part.Start.UnixNano()) || child[0].EndTimeUnixNano != uint64(part.End.UnixNano()) {
		t.Errorf("the span is from %d to %d, want %v to %v", child[0].StartTimeUnixNano, child[0].EndTimeUnixNano, part.Start, part.End)
	}
	if status := child[0].Status; status.Code != trace.Status_STATUS_CODE_ERROR || status.Message != "Because" {
		t.Errorf("the status is %v, want an error with the reason", status)
	}
}

// TestNoCollector: a collector that is not there costs spans, and neither a wait nor an error.
func TestNoCollector(t *testing.T) {
	tracer, err := New(t.Context(), "http://127.0.0.1:1", "manager")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10000 { // more than are queued
		tracer.Send(Span{Trace: uid, Name: fmt.Sprint(n), Start: time.Now(), End: time.Now()})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := tracer.Start(ended); err != nil {
		t.Fatal(err)
	}
}

// TestIDs: a text that is no UUID has a trace, too, and none is zero, which OpenTelemetry takes for no trace.
func TestIDs(t *testing.T) {
	for _, tc := range []struct {
		uid    types.UID
		reason string
	}{{uid, "of an API server"}, {"", "missing"}, {"nodeclaim", "of a test"}} {
		if id := traceID("acme", tc.uid); !id.IsValid() || !spanID(id, MachineSpan).IsValid() {
			t.Errorf("%s: the ID of %q is %s", tc.reason, tc.uid, id)
		}
	}
}

// TestCheckFlag: what cannot be an endpoint is refused at the start.
func TestCheckFlag(t *testing.T) {
	for _, tc := range []struct {
		endpoint, reason string
		valid            bool
	}{
		{"", "no traces", true},
		{"http://otel-collector.monitoring:4317", "without TLS", true},
		{"https://traces.example.com", "with TLS, and the default port", true},
		{"otel-collector:4317", "it has no scheme: TLS or not?", false},
		{"grpc://otel-collector:4317", "another scheme", false},
		{"http://", "no host", false},
		{"http://%zz", "no URL", false},
	} {
		if err := CheckFlag(tc.endpoint); (err == nil) != tc.valid {
			t.Errorf("%s: %q: the error is %v", tc.reason, tc.endpoint, err)
		}
	}
}
