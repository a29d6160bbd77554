// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/gangstories"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestScrape: Prometheus reads the metrics of the three programs, with a token as docs/metrics.md says. No alert is active while all is
// well, and those of a program that is stopped are at once. The page draws what was recorded before it was started.
func TestScrape(t *testing.T) {
	system.Only(t)
	servers, err := fleet.Reference()
	if err != nil {
		t.Fatal(err)
	}
	box, management, tenant := gangstories.Start(t, sandbox.Config{Fleet: servers, Screen: true,
		ManagerArgs: []string{"--metrics-secure=true"}})
	if _, err := examples.Apply(t.Context(), tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	if err := tenant.Create(t.Context(), gangstories.Pod("train", func(*corev1.Pod) {})); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "prometheus-k8s"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "karpenter-metal3-metrics-reader"},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}}}
	request := &authenticationv1.TokenRequest{}
	for _, err := range []error{management.Create(t.Context(), account), management.Create(t.Context(), role),
		management.Create(t.Context(), binding), management.SubResource("token").Create(t.Context(), account, request)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	record(t, filepath.Join(dir, "data"))
	prometheus, address := start(t, box, dir, request.Status.Token)

	var active []string
	poll.Eventually(t, "the programs are scraped, the rules evaluated, and no alert is active", func(ctx context.Context) error {
		const joined = `count(max by (nodetype) (karpenter_metal3_machines{phase="Joined"}) > 0) and on () (count(up == 1) == 3)
			and on () (count(karpenter_cluster_state_synced and on (job, instance) karpenter_metal3_gangs_planned) == 1)`
		if value, _, err := prometheus.Query(ctx, joined, time.Now()); err != nil || value.String() == "" {
			return fmt.Errorf("no node is seen, or not all programs (%v)", err)
		}
		var err error
		if active, err = alerts(ctx, prometheus); err == nil && len(active) > 0 {
			err = fmt.Errorf("these are active: %v", active)
		}
		return err
	})
	t.Run("History", func(t *testing.T) { history(t, box, address) })
	for _, down := range []struct {
		program string
		want    []string
	}{
		{sandbox.WebhookName, []string{"KarpenterMetal3WebhookDown"}},
		{sandbox.ManagerName, []string{"KarpenterMetal3ManagerNotLeading", "KarpenterMetal3ManagerNotReporting"}},
	} {
		if err := box.Processes().Stop(down.program); err != nil {
			t.Fatal(err)
		}
		poll.Eventually(t, down.program+" is missed", func(ctx context.Context) error {
			active, err := alerts(ctx, prometheus)
			if err == nil && !slices.Equal(active, down.want) {
				err = fmt.Errorf("active are %v, want %v", active, down.want)
			}
			return err
		})
		if err := box.Processes().StartAgain(down.program); err != nil {
			t.Fatal(err)
		}
		poll.Eventually(t, down.program+" is back", func(ctx context.Context) error {
			active, err := alerts(ctx, prometheus)
			if err == nil && len(active) > 0 {
				err = fmt.Errorf("active are %v", active)
			}
			return err
		})
	}
}

// alerts are the names of those that are pending or firing, sorted. An error says that a rule is not evaluated, or not well.
func alerts(ctx context.Context, prometheus prometheusv1.API) ([]string, error) {
	all, err := prometheus.Rules(ctx, nil)
	if err != nil {
		return nil, err
	}
	active := sets.New[string]()
	count := 0
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			alert, is := rule.(prometheusv1.AlertingRule)
			if !is || alert.Health != prometheusv1.RuleHealthGood {
				return nil, fmt.Errorf("rule %+v is not well", rule)
			}
			count++
			for _, raised := range alert.Alerts {
				active.Insert(alert.Name)
				if text := fmt.Sprint(raised.Annotations); strings.Contains(text, "error expanding") || strings.Contains(text, "<no value>") {
					return nil, fmt.Errorf("alert %s says %s", alert.Name, text)
				}
			}
		}
	}
	if count == 0 {
		return nil, fmt.Errorf("there are no alerts")
	}
	return sets.List(active), nil
}

// record writes a day of servers that ended an hour ago into the database, as if the manager had been scraped each minute.
func record(t *testing.T, data string) {
	t.Helper()
	text := &strings.Builder{}
	end := time.Now().Add(-time.Hour)
	for _, metric := range []struct{ name, series string }{
		{"karpenter_metal3_hosts", `karpenter_metal3_hosts{nodetype="h100-8x",state="available",reason="",instance="old"} 5`},
		{"karpenter_metal3_machines", `karpenter_metal3_machines{namespace="acme",nodetype="h100-8x",phase="Joined",instance="old"} 0`},
	} {
		fmt.Fprintf(text, "# TYPE %s gauge\n", metric.name)
		for moment := end.Add(-24 * time.Hour); moment.Before(end); moment = moment.Add(time.Minute) {
			fmt.Fprintf(text, "%s %d\n", metric.series, moment.Unix())
		}
	}
	text.WriteString("# EOF\n")
	file := filepath.Join(t.TempDir(), "recorded.txt")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "tsdb", "create-blocks-from", "openmetrics", file, data)
}

// start starts a Prometheus of the programs of a sandbox, and returns a client of it and its URL.
func start(t *testing.T, box *sandbox.Sandbox, dir, token string) (prometheusv1.API, string) {
	t.Helper()
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	target := func(program string) string {
		return strings.TrimSuffix(strings.TrimPrefix(box.Metrics(program), "http://"), "/metrics")
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: karpenter-metal3
  scheme: https
  honor_labels: true
  authorization: {credentials: %q}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: [%q, %q]}]
- job_name: karpenter-metal3-tenant
  static_configs: [{targets: [%q]}]
`, rules, token, target(sandbox.ManagerName), target(sandbox.WebhookName), target(sandbox.ProviderName)), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeport.ForTest(t)
	if err := binaries.Start(process.ForTest(t, dir), "prometheus", process.Spec{Args: []string{"--config.file=" + file,
		"--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address}}); err != nil {
		t.Fatalf("starting Prometheus (run `make prometheus-tools` first), %v", err)
	}
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	return prometheusv1.NewAPI(client), "http://" + address
}

// history: the plot of a type begins when its record does, a day and an hour ago.
func history(t *testing.T, box *sandbox.Sandbox, prometheus string) {
	dir := t.TempDir()
	if err := binaries.Start(process.ForTest(t, dir), "kubectl-metal3", process.Spec{Args: []string{"ui", "--prometheus=" + prometheus,
		"--kubeconfig=" + box.Kubeconfigs().ViewerManagement, "--tenant-kubeconfig=" + box.Kubeconfigs().ViewerTenant}}); err != nil {
		t.Fatal(err)
	}
	began := regexp.MustCompile(`<time datetime="([^"]+)">`)
	poll.Eventually(t, "the page has the history", func(ctx context.Context) error {
		lines, err := process.LastLines(filepath.Join(dir, "log", "kubectl-metal3.log"), 10)
		if err != nil {
			return err
		}
		address := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "http://127.0.0.1:") })
		if address < 0 {
			return fmt.Errorf("it does not listen: %v", lines)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, lines[address]+"capacity", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || !strings.Contains(string(body), "is from Prometheus") {
			return fmt.Errorf("it has nothing of Prometheus, %v: %s", err, body)
		}
		early := 0
		for _, found := range began.FindAllStringSubmatch(string(body), -1) {
			if moment, err := time.Parse(time.RFC3339, found[1]); err != nil {
				return err
			} else if ago := time.Since(moment); ago > 24*time.Hour && ago < 26*time.Hour {
				early++
			}
		}
		if early != 1 {
			return fmt.Errorf("%d plots begin a day and an hour ago, want 1", early)
		}
		return nil
	})
}
