// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestMetrics checks the metrics of one claim: a server is free, is claimed, becomes a node, and
// goes back.
func TestMetrics(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	managerURL, managerToken := w.programs.metrics(t, sandboxes.ManagerName)
	manager := func(ctx context.Context) series { return scrape(ctx, t, managerURL, managerToken) }
	free, claims := `karpenter_metal3_hosts{nodetype="cpu",reason="",state="available"}`,
		`karpenter_metal3_machine_claims_total{nodetype="cpu"}`
	joined, released := `karpenter_metal3_machine_provisioning_duration_seconds_count{nodetype="cpu"}`,
		`karpenter_metal3_machine_step_duration_seconds_count{nodetype="cpu",step="release"}`
	installs, claimCount := `karpenter_metal3_machine_step_duration_seconds_count{nodetype="cpu",step="install"}`,
		`karpenter_metal3_machine_claim_duration_seconds_count{}`

	before := manager(t.Context())
	if before[free] != 1 {
		t.Fatalf("one server of type cpu is free, %s is %v", free, before[free])
	}

	w.createPod(t, "metered", resources("cpu", "4"))
	w.untilRuns(t, "metered")
	w.eventually(t, "the metrics show the claim of a server of type cpu, and its join", func(ctx context.Context) (string, error) {
		now := manager(ctx)
		for name, want := range map[string]float64{
			free: 0,
			`karpenter_metal3_hosts{nodetype="cpu",reason="",state="claimed"}`:              1,
			`karpenter_metal3_machines{namespace="tenant-a",nodetype="cpu",phase="Joined"}`: 1,
			claims:     before[claims] + 1,
			joined:     before[joined] + 1,
			installs:   before[installs] + 1,
			claimCount: before[claimCount] + 1,
		} {
			if now[name] != want {
				return fmt.Sprintf("%s is %v, want %v", name, now[name], want), nil
			}
		}
		return "", nil
	})

	providerURL, providerToken := w.programs.metrics(t, sandboxes.ProviderName)
	provider := scrape(t.Context(), t, providerURL, providerToken)
	for name, why := range map[string]string{
		`karpenter_nodeclaims_created_total{min_values_relaxed="false",nodepool="default",reason="provisioned"}`: "core's own metrics are there",
		`karpenter_cloudprovider_instance_type_offering_price_estimate{capacity_type="reserved",instance_type="cpu",zone="us-east-1"}`: "and " +
			"those of instance types",
		`karpenter_cloudprovider_duration_seconds_count{controller="nodeclaim.lifecycle",method="Create",provider="metal3"}`: "and those of " +
			"its " +
			"calls to this provider",
	} {
		if provider[name] == 0 {
			t.Errorf("%s: the provider has no %s", why, name)
		}
	}

	w.giveBack(t)
	w.eventually(t, "the metrics show that the server of type cpu is free again", func(ctx context.Context) (string, error) {
		now := manager(ctx)
		if now[free] != 1 || now[released] != before[released]+1 {
			return fmt.Sprintf("%s is %v, %s is %v, before it was %v", free, now[free], released, now[released], before[released]), nil
		}
		return "", nil
	})
	w.documented(t, manager(t.Context()))
}

// series are the values of series, by name with sorted labels.
type series map[string]float64

// scrape reads the metrics of a process. Of a histogram there are the count and the sum.
func scrape(ctx context.Context, t *testing.T, url, token string) series {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The manager makes its certificate itself, for no name.
	scraper := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := scraper.Do(request)
	if err != nil {
		t.Fatalf("scraping %s, %v", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("scraping %s, %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatalf("scraping %s, %v", url, err)
	}
	all := series{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			labels := labelsOf(metric)
			switch family.GetType() {
			case dto.MetricType_HISTOGRAM:
				all[name+"_count"+labels] = float64(metric.GetHistogram().GetSampleCount())
				all[name+"_sum"+labels] = metric.GetHistogram().GetSampleSum()
			case dto.MetricType_COUNTER:
				all[name+labels] = metric.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				all[name+labels] = metric.GetGauge().GetValue()
			}
		}
	}
	return all
}

func labelsOf(metric *dto.Metric) string {
	var pairs []string
	for _, label := range metric.GetLabel() { // sorted already
		pairs = append(pairs, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// documented checks that docs/metrics.md names every metric of ours that the process has.
func (w *fixture) documented(t *testing.T, scraped series) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range scraped {
		name, _, _ = strings.Cut(name, "{")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_sum")
		if strings.HasPrefix(name, "karpenter_metal3_") && !strings.Contains(string(content), "`"+name+"`") {
			t.Errorf("docs/metrics.md does not say what %s is", name)
		}
	}
}
