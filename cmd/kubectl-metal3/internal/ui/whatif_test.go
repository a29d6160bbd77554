// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

func ask(values ...string) string {
	query := url.Values{}
	for i := 0; i < len(values); i += 2 {
		query.Set(values[i], values[i+1])
	}
	return "/token/whatif?" + query.Encode()
}

// withoutWaiting is a fleet without pods that wait: these would get the free servers before those that are asked about.
func withoutWaiting(servers int) *view.Snapshot {
	s := fleettest.New(servers)
	s.Tenant.Pods = slices.DeleteFunc(s.Tenant.Pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == "" })
	return s
}

// TestWhatIf asks each question, and some that are not right.
func TestWhatIf(t *testing.T) {
	snapshot := withoutWaiting(100)
	withoutTenant := *snapshot
	withoutTenant.Tenant = nil
	const hostile = `"><script>alert(1)</script>`
	for name, tc := range map[string]struct {
		target        string
		withoutTenant bool
		status        int
		want          []string
		reason        string
	}{
		"no question": {target: ask(), want: []string{"What would a workload take?"}, reason: "the form"},
		"workload": {target: ask("ask", "workload", "pods", "2", "needs", "nvidia.com/gpu=4"),
			want: []string{"default/what-if-0", "A node after", "</span> taken</span>", "What is assumed", "TenantCluster",
				`value="nvidia.com/gpu=4"`},
			reason: "servers are taken, and drawn"},
		"one pod": {target: ask("ask", "workload", "pods", "1", "needs", "cpu=8, memory=16Gi", "selector", "rack=r003"),
			want: []string{"<td>default/what-if</td>"}, reason: "the rack is that of free servers without GPUs"},
		"unfit": {target: ask("ask", "workload", "pods", "3", "needs", "cpu=4000"),
			want:   []string{"would not fit", "default/what-if-0, default/what-if-1, default/what-if-2", "NodeType cpu"},
			reason: "no server is as big"},
		"YAML": {target: ask("ask", "workload", "pods", "x", "yaml",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\nspec: {containers: [{name: a, resources: {requests: {cpu: 8}}}]}"),
			want: []string{"default/mine"}, reason: "YAML takes the place of the fields"},
		"drain": {target: ask("ask", "drain", "host", "server-0000"), want: []string{"is in maintenance", "</span> was Joined</span>"},
			reason: "its node is gone"},
		"add": {target: ask("ask", "add", "number", "2", "type", "h100-8x"), want: []string{"h100-8x-new-2", "</span> new</span>"},
			reason: "they are drawn where the others are"},
		"without": {target: ask("ask", "without", "labels", "rack=r002"), want: []string{"20 servers are gone", "</span> gone</span>"},
			reason: "a rack is gone, and still drawn"},
		"rollout": {target: ask("ask", "rollout", "type", "h100-8x", "image", "noble-2"),
			want:   []string{"Image noble-2 for NodeType h100-8x", "another tenant", "SpareFirst is replaced"},
			reason: "each Machine of the type"},
		"no tenant": {target: ask("ask", "workload", "pods", "1", "needs", "cpu=1"), withoutTenant: true, status: 400,
			want: []string{"name its kubeconfig with --tenant-kubeconfig"}, reason: "pods are in a tenant"},
		"drain without tenant": {target: ask("ask", "drain", "host", "server-0000"), withoutTenant: true,
			want: []string{"no tenant cluster was read"}, reason: "the servers are known"},
		"what": {target: ask("ask", "burn"), status: 400, want: []string{`"burn" cannot be asked`}, reason: "no such question"},
		"no pods": {target: ask("ask", "workload", "pods", "-1", "needs", "cpu=1"), status: 400, want: []string{`Pods is "-1"`,
			"from 1 to 10000"},
			reason: "at least one"},
		"no needs": {target: ask("ask", "workload", "pods", "1"), status: 400, want: []string{"Each needs is empty"},
			reason: "one is needed"},
		"bad needs": {target: ask("ask", "workload", "pods", "1", "needs", "cpu=-1"), status: 400,
			want: []string{`the field Each needs has "cpu=-1"`}, reason: "a quantity"},
		"bad selector": {target: ask("ask", "workload", "pods", "1", "needs", "cpu=1", "selector", "rack"), status: 400,
			want: []string{`the field On nodes with is "rack"`}, reason: "a label"},
		"bad YAML": {target: ask("ask", "workload", "yaml", "{"), status: 400, want: []string{"reading the YAML, document 1"},
			reason: "no YAML"},
		"no host": {target: ask("ask", "drain", "host", "server-9999"), status: 400,
			want: []string{`host "server-9999" was not found`}, reason: "no such host"},
		"empty host": {target: ask("ask", "drain"), status: 400, want: []string{"Server is empty"}, reason: "required"},
		"no type": {target: ask("ask", "add", "number", "1", "type", "b200"), status: 400,
			want: []string{`NodeType "b200" was not found`}, reason: "no such type"},
		"bad number": {target: ask("ask", "add", "number", "many", "type", "cpu"), status: 400, want: []string{`Servers is "many"`},
			reason: "no number"},
		"bad labels": {target: ask("ask", "without", "labels", "a b c"), status: 400, want: []string{`the field Labels is "a b c"`},
			reason: "no selector"},
		"all labels": {target: ask("ask", "without", "labels", "rack=nowhere"), status: 400,
			want: []string{"no BareMetalHost has labels"}, reason: "selects none"},
		"no image": {target: ask("ask", "rollout", "type", "cpu"), status: 400, want: []string{"OSImage is empty"},
			reason: "required"},
		"long": {target: ask("ask", "workload", "yaml", strings.Repeat("a", maxQuestion)), status: 400,
			want:   []string{"longer than an address of 16 KiB"},
			reason: "addresses are bounded"},
		"hostile": {target: ask("ask", "drain", "host", hostile), status: 400, want: []string{`value="&#34;&gt;&lt;script&gt;alert(1)`},
			reason: "what was asked is text"},
		"hostile kind": {target: ask("ask", hostile, "yaml", "</textarea>"+hostile), status: 400,
			want: []string{"&lt;/textarea&gt;"}, reason: "text"},
	} {
		t.Run(name, func(t *testing.T) {
			source := snapshot
			if tc.withoutTenant {
				source = &withoutTenant
			}
			screen := New(fleettest.NewChanging(source), Options{Token: token, Topology: topology.Default()})
			answer := get(t, screen, tc.target, nil)
			content := answer.Body.String()
			if tc.status == 0 {
				tc.status = http.StatusOK
			}
			if answer.Code != tc.status {
				t.Errorf("status %d, want %d: %s", answer.Code, tc.status, tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(content, want) && !strings.Contains(html.UnescapeString(content), want) {
					t.Errorf("there is no %q: %s", want, tc.reason)
				}
			}
			if strings.Contains(content, "<script>") {
				t.Error("it has a script of somebody else")
			}
			if !strings.Contains(content, "data-frozen") {
				t.Error("it would follow the fleet")
			}
		})
	}
}

// TestWhatIfReads: what is not followed is read for each question.
func TestWhatIfReads(t *testing.T) {
	target := ask("ask", "workload", "pods", "1", "needs", "nvidia.com/gpu=4")
	for name, tc := range map[string]struct {
		reason string
		read   func(*view.Snapshot) error
		want   string
		status int
	}{
		"Nothing": {reason: "a whole server is free", read: func(*view.Snapshot) error { return nil }, want: "default/what-if</td>",
			status: http.StatusOK},
		"DaemonSet": {reason: "it takes one GPU of each server", read: func(s *view.Snapshot) error {
			set := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
			set.Spec.Template.Spec = corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "probe", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}}
			s.Tenant.DaemonSets = append(s.Tenant.DaemonSets, set)
			return nil
		}, want: "default/what-if</b>", status: http.StatusOK},
		"Forbidden": {reason: "the answer may be wrong, and says so", read: func(s *view.Snapshot) error {
			s.Missing = append(s.Missing, view.Missing{Cluster: "tenant", Group: "apps", Resource: "daemonsets"})
			return nil
		}, want: "you may not list daemonsets.apps in the tenant cluster", status: http.StatusOK},
		"Unreachable": {reason: "there is no answer", read: func(*view.Snapshot) error { return errors.New("connection refused") },
			want: "connection refused", status: http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := withoutWaiting(40)
			screen := New(fleettest.NewChanging(snapshot), Options{Token: token, Topology: topology.Default(),
				Planning: func(_ context.Context, s *view.Snapshot, _ int) error { return tc.read(s) }})
			answer := get(t, screen, target, nil)
			if content := html.UnescapeString(answer.Body.String()); answer.Code != tc.status || !strings.Contains(content, tc.want) {
				t.Errorf("status %d, want %d and %q: %s", answer.Code, tc.status, tc.want, tc.reason)
			}
			if len(snapshot.Tenant.DaemonSets)+len(snapshot.Missing) > 0 {
				t.Error("the snapshot that is followed has changed")
			}
		})
	}
}

// TestWhatIfTenants: with several tenant clusters, a question is about one of them, and what it has is read of that one.
func TestWhatIfTenants(t *testing.T) {
	snapshot := fleettest.Shared(44)
	for i := range snapshot.PerTenant() {
		snapshot.PerTenant()[i].Tenant.Pods = nil
	}
	snapshot.More[0].NodePools = nil
	for name, tc := range map[string]struct {
		reason, tenant string
		status, read   int
		want           string
	}{
		"First":  {reason: "it has NodePools", tenant: "acme/acme", status: http.StatusOK, want: "</span> taken</span>"},
		"Second": {reason: "it has none", tenant: "initech/initech", status: http.StatusOK, read: 1, want: "1 pod would not fit"},
		"None":   {reason: "the form has a choice", status: http.StatusBadRequest, read: -1, want: "the field TenantCluster is empty"},
		"Unknown": {reason: "no cluster of it was read", tenant: "a/b", status: http.StatusBadRequest, read: -1,
			want: "acme/acme, initech/initech"},
	} {
		t.Run(name, func(t *testing.T) {
			read := -1
			screen := New(fleettest.NewChanging(snapshot), Options{Token: token, Topology: topology.Default(),
				Planning: func(_ context.Context, s *view.Snapshot, tenant int) error {
					if read = tenant; len(s.More) > 0 {
						t.Error("it has both")
					}
					s.Tenant.DaemonSets = []appsv1.DaemonSet{{}}
					return nil
				}})
			answer := get(t, screen, ask("ask", "workload", "pods", "1", "needs", "nvidia.com/gpu=4", "tenant", tc.tenant), nil)
			content := html.UnescapeString(answer.Body.String())
			if answer.Code != tc.status || !strings.Contains(content, tc.want) || read != tc.read {
				t.Errorf("%s: status %d, read of %d, no %q: %s", tc.reason, answer.Code, read, tc.want, content)
			}
			if got := strings.Count(content, `<option selected>`+tc.tenant+`</option>`); got != 5 && tc.status == http.StatusOK {
				t.Errorf("%s: it is chosen in %d forms", tc.reason, got)
			}
			if strings.Contains(content, "</span> was ") {
				t.Errorf("%s: servers change that have no part in it", tc.reason)
			}
			if len(snapshot.Tenant.DaemonSets)+len(snapshot.More[0].DaemonSets) > 0 {
				t.Error("the snapshot that is followed has changed")
			}
		})
	}
}

// TestWhatIfLarge: of a large fleet, racks in which nothing changes are not drawn.
func TestWhatIfLarge(t *testing.T) {
	screen := New(view.Still(fleettest.New(2000)), Options{Token: token, Still: true, Topology: topology.Default()})
	content := get(t, screen, ask("ask", "without", "labels", "rack=r002"), nil).Body.String()
	if !strings.Contains(content, "are in racks in which nothing changes") || !strings.Contains(content, "</span> gone</span>") {
		t.Error("no racks are left out, or none is drawn")
	}
}

// TestWhatIfTakesNoMemory: an address of 16 KiB asks for pods of 800 containers each, or with 800 labels to select.
// Nothing is made of them, with and without a tenant cluster.
func TestWhatIfTakesNoMemory(t *testing.T) {
	const most = 64 << 20 // bytes, and not at a time
	deployment := func(replicas, containers int) string {
		return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"+
			"spec: {replicas: %d, template: {spec: {containers: [%s]}}}", replicas, strings.Repeat("{name: a},", containers))
	}
	var labels []string
	for n := range 800 {
		labels = append(labels, fmt.Sprintf("l%d=x", n))
	}
	alone := *withoutWaiting(1)
	alone.Tenant = nil
	for name, tc := range map[string]struct {
		reason   string
		snapshot *view.Snapshot
		target   string
		want     string
	}{
		"NoTenant": {"there is no cluster to plan with", &alone, ask("ask", "workload", "yaml", deployment(800, 800)),
			"name its kubeconfig with --tenant-kubeconfig"},
		"Containers": {"800 pods are few", withoutWaiting(1), ask("ask", "workload", "yaml", deployment(800, 800)),
			"more than 200000 values together"},
		"Pods": {"each is small", withoutWaiting(1), ask("ask", "workload", "yaml", deployment(100_000, 1)), "it must be 0 to 10000"},
		"Fields": {"the fields make pods, too", withoutWaiting(1),
			ask("ask", "workload", "pods", "10000", "needs", "cpu=1", "selector", strings.Join(labels, ",")), "more than 200000 values together"},
	} {
		t.Run(name, func(t *testing.T) {
			screen := New(view.Still(tc.snapshot), Options{Token: token, Still: true, Topology: topology.Default()})
			if len(tc.target) > maxQuestion {
				t.Fatalf("an address of %d bytes", len(tc.target))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			answer := get(t, screen, tc.target, nil)
			runtime.ReadMemStats(&after)
			content := html.UnescapeString(answer.Body.String())
			if answer.Code != http.StatusBadRequest || !strings.Contains(content, tc.want) {
				t.Errorf("%s: status %d without %q", tc.reason, answer.Code, tc.want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > most {
				t.Errorf("%s: it took %d MiB of memory", tc.reason, took>>20)
			}
		})
	}
}

// TestWhatIfBusy: a question waits for the one before it, and not longer than its reader.
func TestWhatIfBusy(t *testing.T) {
	screen := New(view.Still(fleettest.New(40)), Options{Token: token, Still: true, Topology: topology.Default()})
	gone := func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(ctx)
	}
	if content := get(t, screen, ask("ask", "add", "number", "1", "type", "cpu"), gone).Body.String(); !strings.Contains(content,
		"was given up") &&
		!strings.Contains(content, "another question") {
		t.Error("a question whose reader is gone is answered")
	}
	screen.planning <- struct{}{}
	if content := get(t, screen, ask("ask", "drain", "host", "server-0000"), gone).Body.String(); !strings.Contains(content,
		"another question") {
		t.Error("two questions are answered at a time")
	}
	<-screen.planning
	if answer := get(t, screen, ask("ask", "drain", "host", "server-0000"), nil); answer.Code != http.StatusOK {
		t.Errorf("afterwards, the status is %d", answer.Code)
	}
}
