// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql/parser"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
)

// recorder is a server that answers a range query as Prometheus does on the wire, with these values of each series at each step of the last
// day. It is not Prometheus: that the queries are right PromQL its parser says.
func recorder(t *testing.T, series map[string][]map[string]string, broken *bool) *Prometheus {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		if _, err := parser.ParseExpr(query); err != nil {
			t.Errorf("the query %s: %v", query, err)
		}
		w.Header().Set("Content-Type", "application/json")
		if *broken {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":"error","errorType":"unavailable","error":"the storage is not ready"}`)
			return
		}
		end, errEnd := strconv.ParseFloat(r.FormValue("end"), 64)
		step, errStep := strconv.ParseFloat(r.FormValue("step"), 64)
		if errEnd != nil || errStep != nil || r.URL.Path != "/api/v1/query_range" {
			t.Errorf("%s is asked for %v", r.URL.Path, r.Form)
		}
		var result []any
		for metric, all := range series {
			if !strings.Contains(query, "("+metric) {
				continue
			}
			for _, labels := range all {
				var values []any
				for moment := end - 86400; moment <= end; moment += step {
					values = append(values, []any{moment, labels["value"]})
				}
				result = append(result, map[string]any{"metric": labels, "values": values})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": result}})
	}))
	t.Cleanup(server.Close)
	asked, err := NewPrometheus(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return asked
}

func TestPrometheus(t *testing.T) {
	broken := false
	asked := recorder(t, map[string][]map[string]string{
		"karpenter_metal3_hosts": {{"nodetype": "cpu", "state": "claimed", "value": "7"}, {"nodetype": "cpu", "state": "available", "value": "3"},
			{"nodetype": "cpu", "state": "quarantined", "value": "1"}, {"nodetype": "cpu", "state": "error", "value": "1"},
			{"nodetype": "gone", "state": "unavailable", "value": "4"}},
		"karpenter_metal3_machines": {{"nodetype": "cpu", "phase": "Joined", "value": "4"},
			{"nodetype": "cpu", "phase": "Provisioning", "value": "1"}, {"nodetype": "cpu", "phase": "Releasing", "value": "1"},
			{"nodetype": "cpu", "phase": "Failed", "value": "1"}},
	}, &broken)
	samples, err := asked.read(t.Context(), fleettest.Now)
	if err != nil || len(samples) != 49 {
		t.Fatalf("%d samples of a day (%v)", len(samples), err)
	}
	if !samples[0].time.Equal(fleettest.Now.Add(-24*time.Hour)) ||
		!slices.IsSortedFunc(samples, func(a, b sample) int { return a.time.Compare(b.time) }) {
		t.Errorf("they begin at %s, or are not sorted", samples[0].time)
	}
	// Used, in transit, broken, out of the pool, free: a claimed server is where its Machine is.
	if diff := cmp.Diff(map[string]counts{"cpu": {4, 2, 3, 0, 3}, "gone": {0, 0, 0, 4, 0}}, samples[0].byType); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	clock := clocktesting.NewFakeClock(fleettest.Now)
	screen := New(fleettest.NewChanging(fleettest.New(60)), Options{Token: token, Prometheus: asked, Clock: clock})
	page := get(t, screen, "/token/capacity", nil).Body.String()
	// The plot of a type begins a day ago; those of all servers and of types that were not recorded begin now.
	if strings.Count(page, `<time datetime="2026-01-01T15:00:00Z">`) != 1 ||
		strings.Count(page, `<time datetime="2026-01-02T15:00:00Z">`) != 7 ||
		!strings.Contains(page, "is from Prometheus") {
		t.Errorf("the page does not show what was recorded: %s", page)
	}
	broken = true
	clock.Step(time.Minute)
	page = get(t, screen, "/token/capacity", nil).Body.String()
	if !strings.Contains(page, "server error: 503") ||
		strings.Contains(page, "2026-01-01T15:00:00Z") || strings.Contains(page, "is from Prometheus") ||
		!strings.Contains(page, `class="plots"`) {
		t.Errorf("the page does not say that Prometheus does not answer: %s", page)
	}
}

func TestNewPrometheus(t *testing.T) {
	for name, address := range map[string]string{"no scheme": "prometheus:9090", "a path": "/prometheus", "no host name": "http://a b",
		"a file": "file:///tmp"} {
		if _, err := NewPrometheus(address); err == nil || !strings.Contains(err.Error(), "--prometheus is") {
			t.Errorf("%s: %q: %v", name, address, err)
		}
	}
}
