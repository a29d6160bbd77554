// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus has a real Prometheus: it evaluates the alerts of the charts, scrapes our programs, and has the page's history.
package prometheus

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

var (
	binaries   = cluster.Binaries{filepath.Join("..", "..", "bin")}
	alertsFile = filepath.Join("..", "..", "charts", "karpenter-metal3", "files", "alerts.yaml")
)

// promtool runs it, and fails the test with what it prints.
func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	program, err := binaries.Find("promtool")
	if err != nil {
		t.Fatalf("run `make prometheus-tools` first: %v", err)
	}
	if output, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v, %v\n%s", arguments, err, output)
	}
}

// evaluated is an alert on data: series has a value a minute, in promtool's notation. It is silent at one time, and fires at a later one.
type evaluated struct {
	alert, reason string
	series        map[string]string
	silent, fires string
	// labels are those of what fires, beside the name of the alert.
	labels string
}

const (
	hosts    = "karpenter_metal3_hosts"
	machines = "karpenter_metal3_machines"
	claims   = "karpenter_metal3_machine_claim_sli_duration_seconds_"
	steps    = "karpenter_metal3_machine_step_duration_seconds_bucket"
	joins    = "karpenter_metal3_machine_provisioning_duration_seconds_bucket"
	admits   = "karpenter_metal3_webhook_duration_seconds_bucket"
	planned  = "karpenter_metal3_gangs_planned"
	launches = "karpenter_cloudprovider_errors_total"
	failures = "controller_runtime_reconcile_errors_total"
	asked    = `controller_runtime_webhook_requests_total{webhook="/validate/machines",code="200",instance="w"}`
)

// slow are two buckets of a histogram: what ends by the first bound ends in time, up to minute 400, and nothing does afterwards.
func slow(name, labels, in, late string) map[string]string {
	return map[string]string{
		fmt.Sprintf(`%s{%sle="%s"}`, name, labels, in):   "0+10x400 4000x400",
		fmt.Sprintf(`%s{%sle="%s"}`, name, labels, late): "0+10x800",
		fmt.Sprintf(`%s{%sle="+Inf"}`, name, labels):     "0+10x800",
	}
}

var cases = []evaluated{
	{alert: "HostsInError", reason: "two replicas count the same server, whose Machine has it or not", labels: `nodetype="gpu",state="error"`,
		series: map[string]string{hosts + `{nodetype="gpu",state="error",instance="a"}`: "0x9 1x30",
			hosts + `{nodetype="gpu",state="error",instance="b"}`:     "0x9 1x30",
			hosts + `{nodetype="gpu",state="claimed",reason="Error"}`: "0x40"}, silent: "24m", fires: "25m"},
	{alert: "HostsInError", reason: "a server in use is no better", labels: `nodetype="gpu",state="claimed"`,
		series: map[string]string{hosts + `{nodetype="gpu",state="error"}`: "0x40",
			hosts + `{nodetype="gpu",state="claimed",reason="Error"}`: "0x9 1x30"}, silent: "24m", fires: "25m"},
	{alert: "HostsQuarantined", reason: "somebody has an hour to see it", labels: `nodetype="gpu"`,
		series: map[string]string{hosts + `{nodetype="gpu",state="quarantined"}`: "0x9 1x90"}, silent: "69m", fires: "70m"},
	{alert: "HostsNotCleaned", reason: "other tenants do not get it", labels: `nodetype="gpu"`,
		series: map[string]string{hosts + `{nodetype="gpu",state="available",reason="NotCleaned"}`: "0x9 1x30"}, silent: "24m", fires: "25m"},
	{alert: "HostsTooSmall", reason: "it is not claimed", labels: `nodetype="gpu"`,
		series: map[string]string{hosts + `{nodetype="gpu",state="unavailable",reason="TooSmall"}`: "0x9 1x30"}, silent: "24m", fires: "25m"},
	{alert: "NodeTypeHasNoHosts", reason: "all states of one type are 0, and not those of the other", labels: `nodetype="gpu"`,
		series: map[string]string{hosts + `{nodetype="gpu",state="available"}`: "1x9 0x30", hosts + `{nodetype="gpu",state="claimed"}`: "0x40",
			hosts + `{nodetype="cpu",state="available"}`: "0x40", hosts + `{nodetype="cpu",state="claimed"}`: "1x40"}, silent: "24m", fires: "25m"},
	{alert: "NodeTypeExhausted", reason: "pods wait, in one of two tenants", labels: `nodetype="gpu"`,
		series: map[string]string{hosts + `{nodetype="gpu",state="available"}`: "0x60", hosts + `{nodetype="cpu",state="available"}`: "2x60",
			`karpenter_scheduler_unschedulable_pods_count{controller="provisioner",instance="a"}`: "0x9 3x60",
			`karpenter_scheduler_unschedulable_pods_count{controller="provisioner",instance="b"}`: "0x60",
			planned + `{instance="a"}`: "0x60", planned + `{instance="b"}`: "0x60",
			// Another Karpenter has no server, either, and it does not count.
			`karpenter_scheduler_unschedulable_pods_count{controller="provisioner",instance="c"}`: "3x60"}, silent: "39m", fires: "40m"},
	{alert: "MachineStuck", reason: "the age grows by a minute a minute", labels: `nodetype="gpu"`,
		series: map[string]string{`karpenter_metal3_machine_progress_age_seconds{nodetype="gpu"}`: "0+60x60"}, silent: "35m", fires: "36m"},
	{alert: "MachinesGivenUp", reason: "one within the hour", labels: `nodetype="gpu",reason="DeadlineExceeded"`,
		series: map[string]string{`karpenter_metal3_machines_given_up_total{nodetype="gpu",reason="DeadlineExceeded"}`: "0x9 1x90"},
		silent: "9m", fires: "10m"},
	{alert: "MachinesFailed", reason: "they wait for somebody", labels: `namespace="acme",nodetype="gpu",reason="HostLost"`,
		series: map[string]string{`karpenter_metal3_machines_failed{namespace="acme",nodetype="gpu",reason="HostLost"}`: "0x9 1x30"},
		silent: "24m", fires: "25m"},
	{alert: "TenantBlocked", reason: "a silent provider is another alert", labels: `reason="ClusterChanged"`,
		series: map[string]string{`karpenter_metal3_tenantclusters_blocked{reason="ClusterChanged"}`: "0x9 1x30",
			`karpenter_metal3_tenantclusters_blocked{reason="ProviderSilent"}`: "1x40"}, silent: "10m", fires: "11m"},
	{alert: "ProviderSilent", reason: "a blocked provider is another alert",
		series: map[string]string{`karpenter_metal3_tenantclusters_blocked{reason="ProviderSilent"}`: "0x9 1x30",
			`karpenter_metal3_tenantclusters_blocked{reason="ClusterChanged"}`: "1x40"}, silent: "11m", fires: "12m"},
	{alert: "PoliciesMissing", reason: "an upgrade has a quarter of an hour",
		series: map[string]string{`karpenter_metal3_admission_policies_missing`: "0x9 2x30"}, silent: "24m", fires: "25m"},
	{alert: "MachinesPending", reason: "half an hour without a server", labels: `namespace="acme",nodetype="gpu"`,
		series: map[string]string{machines + `{namespace="acme",nodetype="gpu",phase="Pending"}`: "0x9 1x60"}, silent: "39m", fires: "40m"},
	{alert: "ReleaseStuck", reason: "cleaning takes longer than two hours", labels: `namespace="acme",nodetype="gpu"`,
		series: map[string]string{machines + `{namespace="acme",nodetype="gpu",phase="Releasing"}`: "0x9 1x200"}, silent: "129m", fires: "130m"},
	{alert: "ProvisioningSlow", reason: "one in five of six hours takes longer than an hour", labels: `nodetype="gpu"`,
		series: slow(joins, `nodetype="gpu",`, "3600", "5400"), silent: "400m", fires: "480m"},
	{alert: "DriftNotConverging", reason: "a rollout has a day", labels: `namespace="acme",nodetype="gpu",reason="OSImage"`,
		series: map[string]string{`karpenter_metal3_machines_drifted{namespace="acme",nodetype="gpu",reason="OSImage"}`: "0x9 2x1500"},
		silent: "1449m", fires: "1450m"},
	{alert: "ClaimSlow", reason: "one in nine of six hours, and all of the last", series: slow(claims+"bucket", "", "10", "30"),
		silent: "410m", fires: "440m"},
	{alert: "UserDataSlow", reason: "one in nine of six hours, and all of the last", series: slow(steps, `step="userdata",`, "60", "120"),
		silent: "410m", fires: "440m"},
	{alert: "JoinSlow", reason: "one in nine of six hours, and all of the last", labels: `nodetype="gpu"`,
		series: slow(steps, `step="join",nodetype="gpu",`, "1200", "2400"), silent: "410m", fires: "440m"},
	{alert: "WebhookSlow", reason: "one in nine of six hours, and all of the last", series: slow(admits, "", "0.25", "0.5"),
		silent: "410m", fires: "440m"},
	{alert: "ManagerNotLeading", reason: "both replicas run, and neither leads; the provider leads, which does not count",
		series: map[string]string{`leader_election_master_status{name="karpenter-metal3-manager",instance="a"}`: "1x9 0x30",
			`leader_election_master_status{name="karpenter-metal3-manager",instance="b"}`: "0x40",
			`leader_election_master_status{name="karpenter",instance="p"}`:                "1x40",
			claims + `count{instance="a"}`:                                                "5x40",
			claims + `count{instance="b"}`:                                                "0x40"}, silent: "10m", fires: "11m"},
	{alert: "ManagerNotLeading", reason: "no replica is there",
		series: map[string]string{`leader_election_master_status{name="karpenter-metal3-manager",instance="a"}`: "1x9 stale",
			claims + `count{instance="a"}`: "5x9 stale"}, silent: "10m", fires: "11m"},
	{alert: "LaunchErrors", reason: "not for want of servers, and not of another provider", labels: `namespace="acme",error="CreateError"`,
		series: map[string]string{
			launches + `{namespace="acme",provider="` + cloudprovider.Name + `",method="Create",error="CreateError"}`: "0x9 1+1x60",
			launches + `{namespace="labs",provider="metal3",method="Create",error="InsufficientCapacityError"}`:       "0+1x70",
			launches + `{namespace="labs",provider="metal3",method="Delete",error="CreateError"}`:                     "0+1x70",
			launches + `{namespace="labs",provider="kwok",method="Create",error="CreateError"}`:                       "0+1x70",
		}, silent: "39m", fires: "41m"},
	{alert: "ClusterStateUnsynced", reason: "of one of two tenants, and not of another Karpenter", labels: `namespace="acme"`,
		series: map[string]string{`karpenter_cluster_state_synced{namespace="acme",instance="a"}`: "1x9 0x30",
			`karpenter_cluster_state_synced{namespace="labs",instance="b"}`: "1x40",
			`karpenter_cluster_state_synced{namespace="kwok",instance="c"}`: "0x40",
			planned + `{namespace="acme",instance="a"}`:                     "0x40", planned + `{namespace="labs",instance="b"}`: "0x40",
		}, silent: "24m", fires: "25m"},
	{alert: "ReconcileErrors", reason: "more than one in ten seconds, of a manager", labels: `namespace="metal3",controller="machine"`,
		series: map[string]string{failures + `{namespace="metal3",controller="machine",instance="a"}`: "0x9 0+60x60",
			failures + `{namespace="metal3",controller="host",instance="a"}`:       "0+1x70",
			failures + `{namespace="others",controller="deployment",instance="b"}`: "0+60x70",
			claims + `count{namespace="metal3",instance="a"}`:                      "5x70"}, silent: "39m", fires: "45m"},
	{alert: "ReconcileErrors", reason: "of a provider", labels: `namespace="acme",controller="provisioner"`,
		series: map[string]string{failures + `{namespace="acme",controller="provisioner",instance="a"}`: "0x9 0+60x60",
			planned + `{namespace="acme",instance="a"}`: "0x70"}, silent: "39m", fires: "45m"},
	{alert: "ReconcileErrors", reason: "of a webhook", labels: `controller="certificates"`,
		series: map[string]string{failures + `{controller="certificates",instance="w"}`: "0x9 0+60x60", asked: "0x70"},
		silent: "39m", fires: "45m"},
	{alert: "WebhookDown", reason: "both replicas are gone", labels: `webhook="/validate/machines"`,
		series: map[string]string{asked: "0+1x9 stale"}, silent: "14m", fires: "15m"},
	{alert: "ManagerNotReporting", reason: "it is gone, or not scraped",
		series: map[string]string{hosts + `{nodetype="gpu",state="available"}`: "1x9 stale"}, silent: "19m", fires: "20m"},
	{alert: "EtcdFilling", reason: "two API servers see the same etcd, and another cluster has one of its own",
		labels: `job="apiserver",storage_cluster_id="etcd-0"`,
		series: map[string]string{
			`apiserver_storage_size_bytes{job="apiserver",storage_cluster_id="etcd-0",instance="a"}`: "0+107374183x30",
			`apiserver_storage_size_bytes{job="apiserver",storage_cluster_id="etcd-0",instance="b"}`: "0+107374183x30",
			`apiserver_storage_size_bytes{job="tenant",storage_cluster_id="etcd-0",instance="c"}`:    "1073741824x30",
		}, silent: "10m", fires: "11m"},
}

// TestAlerts: each alert is silent as long as nothing is wrong, and fires once something has been wrong for as long as it says.
func TestAlerts(t *testing.T) {
	system.Only(t)
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", alertsFile)
	content, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	untested := sets.New[string]()
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			untested.Insert(rule.Alert)
		}
	}
	absolute, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		name := "KarpenterMetal3" + tc.alert
		untested.Delete(name)
		t.Run(tc.alert, func(t *testing.T) {
			var series []map[string]string
			for metric, values := range tc.series {
				series = append(series, map[string]string{"series": metric, "values": values})
			}
			firing := fmt.Sprintf(`count without (severity, alertname, alertstate, __name__) (ALERTS{alertname=%q,alertstate="firing"})`, name)
			tests, err := yaml.Marshal(map[string]any{"rule_files": []string{absolute}, "evaluation_interval": "1m", "tests": []any{map[string]any{
				"name": tc.reason, "interval": "1m", "input_series": series, "promql_expr_test": []any{
					map[string]any{"expr": firing, "eval_time": tc.silent},
					map[string]any{"expr": firing, "eval_time": tc.fires,
						"exp_samples": []any{map[string]any{"labels": "{" + tc.labels + "}", "value": 1}}},
				}}}})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "tests.yaml")
			if err := os.WriteFile(path, tests, 0o600); err != nil {
				t.Fatal(err)
			}
			promtool(t, "test", "rules", path)
		})
	}
	if len(untested) > 0 {
		t.Errorf("alerts that are not evaluated on data: %v", sets.List(untested))
	}
}
