// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	_ "sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	_ "sigs.k8s.io/karpenter/pkg/controllers" // registers core's metrics, as it does in the provider
	"sigs.k8s.io/yaml"
)

// described is a metric as its collector describes it.
type described struct {
	kind   string
	labels []string
}

// own are the metrics of this project by name.
func own(t *testing.T) map[string]described {
	t.Helper()
	all := map[string]described{}
	w := newWatcher(nil, nil)
	for _, group := range []struct {
		kind       string
		collectors []prometheus.Collector
	}{
		{"gauge", []prometheus.Collector{hostCounts{}, machineCounts{}, tenantCounts{}, NewPolicies(nil, nil).missing}},
		{"counter", []prometheus.Collector{w.claims, w.givenUp, w.drifts, NewUsageWritten()}},
		{"histogram", []prometheus.Collector{w.steps, w.provisioning, NewClaimDuration(), NewClaimSLIDuration()}},
	} {
		for _, collector := range group.collectors {
			for name, labels := range descriptions(t, collector) {
				all[name] = described{kind: group.kind, labels: labels}
			}
		}
	}
	return all
}

var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .*, variableLabels: \{([^}]*)\}\}$`)

// descriptions are the labels of a collector's metrics by name. A Desc shows them only as text.
func descriptions(t *testing.T, collector prometheus.Collector) map[string][]string {
	t.Helper()
	all, found := map[string][]string{}, make(chan *prometheus.Desc, 10000)
	collector.Describe(found)
	close(found)
	for desc := range found {
		match := description.FindStringSubmatch(desc.String())
		if match == nil {
			t.Fatalf("%s does not read like a description", desc)
		}
		all[match[1]] = strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' })
	}
	return all
}

// known are the labels of all metrics by the names of their series: ours, core's, and those of controller-runtime.
func known(t *testing.T) map[string][]string {
	t.Helper()
	registry, ok := ctrlmetrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("controller-runtime's registry does not describe what it has")
	}
	names := descriptions(t, registry)
	for name, metric := range own(t) {
		names[name] = metric.labels
	}
	// Of the webhook, which the manager does not import. TestAlertedMetric of pkg/webhooks checks this.
	names["karpenter_metal3_webhook_duration_seconds"] = []string{"kind", "operation"}
	// Of the provider, which the manager does not import, either. TestScrape of test/prometheus sees it.
	names["karpenter_metal3_gangs_planned"] = nil
	// A metric of the API server. test/fleet reads it there.
	names["apiserver_storage_size_bytes"] = []string{"job", "storage_cluster_id"}
	for name, labels := range maps.Clone(names) {
		// Only a histogram has them; a wrong suffix on something else gives no series, and no label but these.
		if strings.HasSuffix(name, "_seconds") {
			names[name+"_bucket"], names[name+"_sum"], names[name+"_count"] = append(slices.Clone(labels), "le"), labels, labels
		}
	}
	return names
}

// check parses an expression, and returns what is wrong with it: an unknown metric, or an unknown label of a metric.
func check(expression string, names map[string][]string) error {
	parsed, err := parser.ParseExpr(expression)
	if err != nil {
		return err
	}
	available := map[string]bool{}
	used := 0
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		used++
		name := selector.Name
		labelNames, exists := names[name]
		if !exists {
			err = fmt.Errorf("there is no metric %q", name)
			return nil
		}
		for _, label := range labelNames {
			available[label] = true
		}
		if !strings.HasPrefix(name, "karpenter_metal3_") {
			available["namespace"] = true // Prometheus Operator adds that of the program. Ours mean another one by it, or none
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != model.MetricNameLabel && !slices.Contains(labelNames, matcher.Name) {
				err = fmt.Errorf("%s has no label %q; it has %v", name, matcher.Name, labelNames)
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if aggregation, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range aggregation.Grouping {
				if !available[label] {
					err = fmt.Errorf("no metric in %q has the label %q", aggregation, label)
				}
			}
		}
		return nil
	})
	if err == nil && used == 0 {
		err = fmt.Errorf("it reads no metric")
	}
	return err
}

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		reason, expression, want string
	}{
		"Right": {reason: "What is right passes.", expression: `sum by (nodetype) ` +
			`(rate(karpenter_metal3_machine_claims_total{nodetype="a"}[5m]))`},
		"Core":          {reason: "So does a metric of core.", expression: `sum(karpenter_nodeclaims_created_total)`},
		"Syntax":        {reason: "An expression that does not parse.", expression: `sum(`, want: "parse error"},
		"UnknownMetric": {reason: "A misspelt metric.", expression: `karpenter_metal3_host`, want: `there is no metric "karpenter_metal3_host"`},
		"UnknownLabel":  {reason: "A misspelt label.", expression: `karpenter_metal3_hosts{type="a"}`, want: `no label "type"`},
		"UnknownGroup": {reason: "The same where series are grouped.", expression: `sum by (type) (karpenter_metal3_hosts)`,
			want: `the label "type"`},
		"NoMetric": {reason: "A number is always the same.", expression: `1 + 1`, want: "reads no metric"},
	}
	names := known(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := check(tc.expression, names)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nerror is %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func chartFile(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "charts", "karpenter-metal3", "files", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestAlerts(t *testing.T) {
	parsed := rules{}
	if err := yaml.UnmarshalStrict(chartFile(t, "alerts.yaml"), &parsed); err != nil {
		t.Fatal(err)
	}
	names, documented, seen := known(t), table(t, "alert"), map[string]bool{}
	objectives := fmt.Sprint(table(t, "objective"))
	for _, group := range parsed.Groups {
		for _, rule := range group.Rules {
			if group.Name == "karpenter-metal3-objectives" && !strings.Contains(objectives, "`"+rule.Alert+"`") {
				t.Errorf("alert %s is of no objective in docs/metrics.md", rule.Alert)
			}
			if err := check(rule.Expr, names); err != nil {
				t.Errorf("alert %s: %v", rule.Alert, err)
			}
			if _, err := model.ParseDuration(rule.For); err != nil && rule.For != "" {
				t.Errorf("alert %s: for is %q, %v", rule.Alert, rule.For, err)
			}
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("alert %s: it has no summary or no description", rule.Alert)
			}
			if seen[rule.Alert] {
				t.Errorf("alert %s is there twice", rule.Alert)
			}
			seen[rule.Alert] = true
			if row, ok := documented[rule.Alert]; !ok || row[0] != rule.Labels["severity"] {
				t.Errorf("alert %s has severity %q, docs/metrics.md says %v", rule.Alert, rule.Labels["severity"], row)
			}
		}
	}
	for name := range documented {
		if !seen[name] {
			t.Errorf("docs/metrics.md has an alert %s, and alerts.yaml has not", name)
		}
	}
}

func TestDashboard(t *testing.T) {
	parsed := struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}{}
	if err := json.Unmarshal(chartFile(t, "dashboard.json"), &parsed); err != nil {
		t.Fatal(err)
	}
	if parsed.UID == "" || len(parsed.Panels) == 0 {
		t.Fatal("the dashboard has no uid, or no panels")
	}
	names, ids, mentioned := known(t), map[int]bool{}, map[string]bool{}
	for _, panel := range parsed.Panels {
		if ids[panel.ID] {
			t.Errorf("panel %q: its id %d is another one's too", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			expression := strings.ReplaceAll(target.Expr, "$nodetype", ".*")
			if err := check(expression, names); err != nil {
				t.Errorf("panel %q: %v", panel.Title, err)
			}
			for name := range own(t) {
				mentioned[name] = mentioned[name] || strings.Contains(expression, name)
			}
		}
	}
	for name, shown := range mentioned {
		if !shown {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// table returns the rows of the table in docs/metrics.md whose first column has that title, by what is in it.
func table(t *testing.T, title string) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, inside := map[string][]string{}, false
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case cells[0] == title:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "---"):
			rows[strings.Trim(cells[0], "`")] = cells[1:]
		}
	}
	return rows
}

// TestDocumented compares docs/metrics.md with what there is.
func TestDocumented(t *testing.T) {
	want := map[string]described{}
	for name, row := range table(t, "name") {
		var labels []string
		for label := range strings.SplitSeq(row[1], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				labels = append(labels, label)
			}
		}
		want[name] = described{kind: row[0], labels: labels}
		if row[2] == "" {
			t.Errorf("docs/metrics.md does not say what %s means", name)
		}
	}
	got := own(t)
	for name, metric := range got {
		if len(metric.labels) == 0 {
			got[name] = described{kind: metric.kind}
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(described{})); diff != "" {
		t.Errorf("docs/metrics.md and the metrics that there are (-documented +there)\n%s", diff)
	}
}

// TestLabelsDoNotGrowWithTheFleet has all labels in one place: each is a type, the namespace of a tenant, or of a vocabulary in
// the code.
func TestLabelsDoNotGrowWithTheFleet(t *testing.T) {
	for name, metric := range own(t) {
		for _, label := range metric.labels {
			if !slices.Contains([]string{NamespaceLabel, NodeTypeLabel, StateLabel, ReasonLabel, PhaseLabel, StepLabel}, label) {
				t.Errorf("%s has the label %s", name, label)
			}
		}
		if !strings.HasPrefix(name, Namespace+"_") || metric.kind == "counter" && !strings.HasSuffix(name, "_total") ||
			metric.kind == "histogram" && !strings.HasSuffix(name, "_seconds") {
			t.Errorf("%s, a %s, is not named as Prometheus names metrics", name, metric.kind)
		}
	}
}
