// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// memoryLimit is the limit of the webhook's container in the chart.
const memoryLimit = 512 << 20

// TestOverload: a pod without any credentials sends the costliest requests that it can, sixteen at a time and again
// and again. What tenants write through the API server is admitted all the same, and the webhook stays within the
// memory that the chart gives it.
func TestOverload(t *testing.T) {
	system.Only(t)
	fleet(t)
	t.Setenv("GOMEMLIMIT", fmt.Sprint(memoryLimit))
	namespace := environment.Namespace(t) // others have the Secret's name in default
	environment.Grant(t, namespace, "webhook.yaml")
	webhook := start(t, "", "--namespace="+namespace)
	configure(t, webhook.address)
	rotate(t, namespace, settings)
	webhook.await(t)
	awaitAsked(t)

	list := func(count int, item func(n int) string) string {
		var text strings.Builder
		for n := range count {
			text.WriteString(item(n) + ",")
		}
		return "[" + strings.TrimSuffix(text.String(), ",") + "]"
	}
	empty := func(int) string { return "{}" }
	taint := func(n int) string { return fmt.Sprintf(`{"key":"a%05d","effect":"NoSchedule"}`, n) }
	claim := func(n int) string { return fmt.Sprintf(`{"name":"c%d","resourceClaimName":"v%013d"}`, n, n) }
	racks := func(n int) string {
		names := list(20, func(v int) string { return fmt.Sprintf(`"r%d-%d"`, n, v) })
		return fmt.Sprintf(`{"key":"rack","operator":"NotIn","values":%s}`, names)
	}
	const pods, machines, tenants = "/mutate/pods", "/validate/machines", "/validate/tenantclusters"
	for name, tc := range map[string]struct{ reason, path, operation, object string }{
		"Containers": {"3 bytes become hundreds", pods, "CREATE", `{"spec":{"containers":` + list(2<<20, empty) + `}}`},
		"AlmostMany": {"just below the bound", "/mutate/spelling", "CREATE", `{"spec":{"a":` + list(99_000, empty) + `}}`},
		"AlmostLong": {"just below the bound", tenants, "CREATE",
			`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 6<<20) + `"}}}`},
		"Taints": {"each was compared with each", machines, "CREATE", `{"spec":{"taints":` + list(100_000, taint) + `}}`},
		"Claims": {"each was read from the API server", pods, "CREATE",
			`{"metadata":{"labels":{"vcluster.loft.sh/managed-by":"inference"}},"spec":{"resourceClaims":` + list(500, claim) + `}}`},
		"Requirements": {"each was compared with each server", machines, "CREATE",
			`{"spec":{"resources":{"nvidia.com/gpu":"8"},"tenantClusterRef":{"name":"team-b"},"requirements":` + list(100, racks) + `}}`},
		"Operations": {"each became a label of metrics for ever", machines, strings.Repeat("x", 1<<20) + "NUMBER", `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			var answered atomic.Int64
			for range 16 {
				clients.Go(func() {
					c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
					defer c.CloseIdleConnections()
					for ctx.Err() == nil {
						review := fmt.Sprintf(`{"request":{"uid":"u","operation":%q,"name":"x","namespace":"inference","object":%s}}`,
							strings.ReplaceAll(tc.operation, "NUMBER", fmt.Sprint(answered.Load())), tc.object)
						url := "https://" + webhook.address + tc.path
						request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(review))
						if err != nil {
							t.Error(err)
							return
						}
						request.Header.Set("Content-Type", "application/json")
						if response, err := c.Do(request); err == nil {
							_, _ = io.Copy(io.Discard, response.Body) // it is refused while it is read, or answered
							_ = response.Body.Close()
						}
						answered.Add(1)
					}
				})
			}
			poll.Eventually(t, "requests are answered", func(context.Context) error {
				if count := answered.Load(); count < 32 {
					return fmt.Errorf("%d are", count)
				}
				return nil
			})
			var slowest time.Duration
			for n := range 20 {
				begin := time.Now()
				if err := write(t.Context(), t, fmt.Sprintf("beside-overload-%d", n)); err != nil {
					t.Errorf("write %d: %v; %s", n, err, tc.reason)
				}
				pod := hostPod(t, "research", "beside", "gpu")
				if err := environment.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
					t.Errorf("pod %d: %v; %s", n, err, tc.reason)
				}
				slowest = max(slowest, time.Since(begin))
			}
			stop()
			clients.Wait()
			peak := peakMemory(t, webhook.command.Process.Pid)
			if peak > memoryLimit {
				t.Errorf("the webhook has had %d MiB: %s", peak>>20, tc.reason)
			}
			t.Logf("%d requests; the slowest of 20 times three Machines and a pod took %v; the webhook has had %d MiB",
				answered.Load(), slowest, peak>>20)
		})
	}
}

// peakMemory is the most memory that a process has had.
func peakMemory(t *testing.T, pid int) (size int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &size); err == nil {
			return size << 10
		}
	}
	t.Fatalf("the status of process %d has no VmHWM", pid)
	return 0
}
