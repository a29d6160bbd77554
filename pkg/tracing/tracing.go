// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing sends the way from a pod to its node to an OpenTelemetry collector, as one trace for each NodeClaim.
//
// Manager and provider each see a part of the way, and pass no context to each other. So nothing in a trace is random:
// the ID of a trace is a hash of the tenant's namespace and the UID of the NodeClaim, and the ID of a span is a hash of
// the trace and the name of the span. A span is sent when its end is seen, with the times in the objects. If it is sent
// twice, after a restart or by both of two leaders, it is the same span.
package tracing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/version"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// NodeClaimSpan is the name of the first span of a trace: from the NodeClaim to its initialized node. MachineSpan is
// the name of the manager's part, which is the first span for a Machine without a NodeClaim.
const NodeClaimSpan, MachineSpan = "NodeClaim", "Machine"

// Span is a finished part of the way.
type Span struct {
	// Namespace of the tenant's Machines. A tenant may write any UID on its Machines, but not get into others' traces.
	Namespace string
	// Trace is the UID of the NodeClaim, or of a Machine without one.
	Trace types.UID
	// Name of the span. It is unique within a trace.
	Name string
	// Parent is the name of the enclosing span. Empty for the first span of a trace.
	Parent string
	// Start and End of the part.
	Start, End time.Time
	// Failure is why the way has ended here. Empty if it goes on.
	Failure string
	// Attributes are names, types and reasons; never user data.
	Attributes []attribute.KeyValue
}

// Tracer sends spans. It is a Runnable of a manager, and sends the remaining spans when the manager ends.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// shutdownTimeout limits how long a program that ends waits for the collector.
const shutdownTimeout = 5 * time.Second

// New returns a Tracer for a program. The endpoint is the URL of a collector that takes OTLP by gRPC: http without TLS,
// https with TLS. The variables OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE, and OpenTelemetry's
// others, apply. If the collector does not answer, spans are dropped without an error.
func New(ctx context.Context, endpoint, program string) (*Tracer, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("creating the exporter of traces to %s, %w", properties.PublicURL(endpoint), err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(hashes{}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "karpenter-metal3-"+program), attribute.String("service.version", version.Get().GitVersion))),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/karpenter-provider-metal3/karpenter-provider-metal3")}, nil
}

const flag = "tracing-endpoint"

// AddFlag adds the flag for the endpoint.
func AddFlag(flags *pflag.FlagSet, endpoint *string) {
	flags.StringVar(endpoint, flag, *endpoint,
		"URL of an OpenTelemetry collector that takes traces by OTLP over gRPC, for example http://otel-collector.monitoring:4317, or "+
			"https:// "+
			"with TLS. There is one trace for each NodeClaim. OpenTelemetry's variables OTEL_EXPORTER_OTLP_* hold. Empty: no traces.")
}

// CheckFlag returns an error that names the flag if its value cannot be an endpoint.
func CheckFlag(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return fmt.Errorf("--%s is %q: it must be the http or https URL of a collector, for example "+
			"http://otel-collector.monitoring:4317", flag,
			properties.PublicURL(endpoint))
	}
	return nil
}

// Start implements manager.Runnable.
func (t *Tracer) Start(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the collector may be gone
	return nil
}

// AddTo adds to a manager the Tracer and the runnable that watches for spans.
func (t *Tracer) AddTo(mgr manager.Manager, watch manager.Runnable) error {
	if err := errors.Join(mgr.Add(t), mgr.Add(watch)); err != nil {
		return fmt.Errorf("adding the watch for traces, %w", err)
	}
	return nil
}

// SendAll queues spans.
func (t *Tracer) SendAll(spans []Span) {
	for _, span := range spans {
		t.Send(span)
	}
}

// Send queues a span. It does not wait for the collector.
func (t *Tracer) Send(span Span) {
	traceID := traceID(span.Namespace, span.Trace)
	ctx := context.WithValue(context.Background(), idsKey{}, ids{trace: traceID, span: spanID(traceID, span.Name)})
	if span.Parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: traceID, SpanID: spanID(traceID, span.Parent), TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	_, started := t.tracer.Start(ctx, span.Name, trace.WithTimestamp(span.Start), trace.WithAttributes(span.Attributes...))
	if span.Failure != "" {
		started.SetStatus(codes.Error, span.Failure)
	}
	started.End(trace.WithTimestamp(span.End))
}

// traceID returns the trace ID of an object of a tenant. docs/metrics.md has the command that computes it.
func traceID(namespace string, uid types.UID) trace.TraceID {
	return trace.TraceID(hash(namespace + "/" + string(uid))[:16])
}

func spanID(id trace.TraceID, name string) trace.SpanID {
	return trace.SpanID(hash(id.String() + name)[:8])
}

func hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// hashes is an sdktrace.IDGenerator that returns the IDs in the context.
type hashes struct{}

type idsKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements sdktrace.IDGenerator.
func (hashes) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	given, _ := ctx.Value(idsKey{}).(ids)
	return given.trace, given.span
}

// NewSpanID implements sdktrace.IDGenerator.
func (h hashes) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := h.NewIDs(ctx)
	return span
}
