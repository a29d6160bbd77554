// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing has the trace of one pod: manager and provider send it to a collector.
package tracing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/gangstories"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/otlp"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

var binaries = cluster.Binaries{filepath.Join("..", "..", "bin")}

// TestTrace: a pod gets a server. Its wait, the NodeClaim, the claim on the server and the stages of Metal3 are one trace, which has the
// UID of the NodeClaim for its ID.
func TestTrace(t *testing.T) {
	system.Only(t)
	receiver := otlp.Listen(t)
	flag := []string{"--tracing-endpoint=" + startCollector(t, receiver.Endpoint)}
	_, _, tenant := gangstories.Start(t, sandbox.Config{Fleet: gangstories.Servers(map[string]int{"n1": 1}), ManagerArgs: flag,
		ProviderArgs: flag})
	if _, err := examples.Apply(t.Context(), tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	if err := tenant.Create(t.Context(), gangstories.Pod("train", func(*corev1.Pod) {})); err != nil {
		t.Fatal(err)
	}

	want := map[string]string{ // the parents
		"NodeClaim": "", "Launch": "NodeClaim", "Register": "NodeClaim", "Initialize": "NodeClaim", "Pod default/train": "NodeClaim",
		"Machine": "NodeClaim", "Claim": "Machine", "Booting": "Machine",
	}
	var spans map[string]otlp.Span
	poll.Eventually(t, "all spans have come", func(context.Context) error {
		spans = map[string]otlp.Span{}
		for _, span := range receiver.Spans() {
			spans[span.Name] = span
		}
		for name := range want {
			if _, found := spans[name]; !found {
				return fmt.Errorf("%s is missing beside %v", name, slices.Sorted(maps.Keys(spans)))
			}
		}
		return nil
	})
	claims := &karpv1.NodeClaimList{}
	if err := tenant.List(t.Context(), claims); err != nil || len(claims.Items) != 1 {
		t.Fatalf("there are %d NodeClaims, %v", len(claims.Items), err)
	}
	computed := sha256.Sum256([]byte(sandbox.DefaultTenant + "/" + string(claims.Items[0].UID)))
	id16 := hex.EncodeToString(computed[:16])
	t.Log(picture(receiver.Spans()))
	for _, span := range receiver.Spans() {
		if id := hex.EncodeToString(span.TraceId); id != id16 {
			t.Errorf("%s is of trace %s, want %s", span.Name, id, id16)
		}
		parent, known := want[span.Name]
		if !known {
			parent = "Machine" // another stage
		}
		if parent != "" && string(span.ParentSpanId) != string(spans[parent].SpanId) {
			t.Errorf("the parent of %s is %x, want %s, which is %x", span.Name, span.ParentSpanId, parent, spans[parent].SpanId)
		}
		if span.EndTimeUnixNano < span.StartTimeUnixNano {
			t.Errorf("%s ends before it begins", span.Name)
		}
	}
}

// picture of a trace, as docs/metrics.md has it: a chart in Mermaid's language, by milliseconds since its first span began.
func picture(spans []otlp.Span) string {
	slices.SortFunc(spans, func(a, b otlp.Span) int {
		return cmp.Or(strings.Compare(b.Service, a.Service), cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano),
			cmp.Compare(b.EndTimeUnixNano, a.EndTimeUnixNano))
	})
	begin := slices.MinFunc(spans, func(a, b otlp.Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) }).StartTimeUnixNano
	chart, service := &strings.Builder{}, ""
	chart.WriteString("\n```mermaid\ngantt\n    dateFormat x\n    axisFormat %M:%S\n")
	for _, span := range spans {
		if span.Service != service {
			service = span.Service
			fmt.Fprintf(chart, "    section %s\n", service)
		}
		fmt.Fprintf(chart, "    %s :%d, %d\n", span.Name, (span.StartTimeUnixNano-begin)/1e6, (span.EndTimeUnixNano-begin)/1e6)
	}
	chart.WriteString("```")
	return chart.String()
}

// startCollector starts a collector that sends on what it gets, and returns its URL.
func startCollector(t *testing.T, target string) string {
	t.Helper()
	address := freeport.ForTest(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "collector.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}
exporters: {otlp_grpc: {endpoint: %q, tls: {insecure: true}}}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_grpc]}}
  telemetry: {metrics: {level: none}}
`, address, target), 0o600); err != nil {
		t.Fatal(err)
	}
	processes, err := process.NewSupervisor(process.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(processes.Close)
	if err := binaries.Start(processes, "otel-collector", process.Spec{Args: []string{"--config=file:" + file}}); err != nil {
		t.Fatalf("starting the collector (run `make otel-tools` first), %v", err)
	}
	return "http://" + address
}
