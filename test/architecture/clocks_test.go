// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// comparedStamps are comparisons with a stamp of an API object, by why they cannot cost a server or a pod, whatever the clocks show.
var comparedStamps = map[string][]string{
	"core writes end from that stamp: the same or not": {
		"pkg/cloudprovider/repair.go: end.Equal(nodeClaim.DeletionTimestamp.Add(period.Duration))",
	},
	"a metric": {
		"pkg/controllers/management/machine/machine.go: r.clock.Since(after.CreationTimestamp.Time)",
		"pkg/controllers/management/metrics/machines.go: end.LastTransitionTime.Sub(start.Time)",
		"pkg/controllers/management/metrics/register.go: w.clock.Since(machine.DeletionTimestamp.Time)",
		"pkg/karpenter/gangs/metrics.go: p.Clock.Since(gang.pods[0].CreationTimestamp.Time)",
	},
	"the first is made of the second": {
		"pkg/controllers/management/tenantcluster/controller.go: tenant.DrainDeadline().Sub(tenant.DeletionTimestamp.Time)",
	},
	"the manager has written that stamp, and an order hangs on it": {
		"pkg/controllers/management/machine/provisioning.go: r.clock.Since(joined.LastTransitionTime.Time)",
	},
	"it only makes core wait for a node for two minutes at most": {
		"pkg/karpenter/holdback/nodes.go: clk.Since(initialized.LastTransitionTime.Time)",
	},
	"the provider has written that stamp": {
		"pkg/controllers/tenant/garbagecollection/breaker.go: b.clock.Since(now.LastTransitionTime.Time)",
	},
	"the same or not: since when is by the clock of this program": {
		"pkg/controllers/management/tenantcluster/ready.go: last.written.Equal(tenant.Status.ProviderRenewTime)",
	},
	"a trace": {
		"pkg/controllers/tenant/traces/traces.go: initialized.LastTransitionTime.Before(&pod.CreationTimestamp)",
	},
	"e.Since is the creation of a NodeClaim of the same API server": {
		"pkg/karpenter/rollout/replacements.go: n.CreationTimestamp.After(e.Since.Time)",
	},
	"it only gives core's command more time": {
		"pkg/karpenter/timelimits/machines.go: start.After(command.CreationTimestamp)",
	},
	"it only gives a NodeClaim more time to register": {
		"pkg/karpenter/timelimits/machines.go: start.After(registered.LastTransitionTime.Time)",
	},
	"a line of a report": {
		"pkg/preflight/hosts.go: h.now.Sub(host.CreationTimestamp.Time)",
	},
}

// stamps are fields that another machine's clock may have written.
var stamps = []string{"CreationTimestamp", "DeletionTimestamp", "LastTransitionTime", "LastHeartbeatTime", "RenewTime"}

// TestClocks: no rule compares the clocks of two machines. Each comparison with a stamp of an API object is in comparedStamps, with
// what makes it harmless.
func TestClocks(t *testing.T) {
	found := map[string]bool{}
	for path, source := range texts(t) {
		if !strings.HasPrefix(path, "pkg/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		compared, err := comparedStampsIn(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, comparison := range compared {
			found[path+": "+comparison] = true
		}
	}
	allowed := slices.Concat(slices.Collect(maps.Values(comparedStamps))...)
	for _, comparison := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(allowed, comparison) {
			t.Errorf("%s compares a stamp of an API object with a time of another clock: ask the component that knows, or say in "+
				"comparedStamps why no server and no pod depends on it", comparison)
		}
	}
	for _, comparison := range allowed {
		if !found[comparison] {
			t.Errorf("%q is not in the code any more: remove it from comparedStamps", comparison)
		}
	}
}

// TestComparedStampsIn: the rule finds each kind of comparison.
func TestComparedStampsIn(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, source string
		want           []string
	}{
		"Since": {"the clock of this program", "c.Since(m.CreationTimestamp.Time)", []string{"c.Since(m.CreationTimestamp.Time)"}},
		"After": {"another writer", "end.After(n.DeletionTimestamp.Time)", []string{"end.After(n.DeletionTimestamp.Time)"}},
		"Receiver": {"the stamp before the dot", "x.LastTransitionTime.Add(d).Before(now)",
			[]string{"x.LastTransitionTime.Add(d).Before(now)"}},
		"Same":  {"the same field has the same writer", "a.CreationTimestamp.Before(&b.CreationTimestamp)", nil},
		"Order": {"sorted is not judged", "a.CreationTimestamp.Compare(b.Time)", nil},
		"Own":   {"a time in memory", "now.Sub(h.last)", nil},
	} {
		compared, err := comparedStampsIn([]byte("package x\nvar _ = " + tc.source))
		if err != nil || !slices.Equal(compared, tc.want) {
			t.Errorf("%s: got %v, %v, want %v: %s", name, compared, err, tc.want, tc.reason)
		}
	}
}

// comparedStampsIn are the comparisons of times that name a stamp, other than of one of the API server's with another of the same field.
func comparedStampsIn(source []byte) (compared []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(node ast.Node) bool {
		call, is := node.(*ast.CallExpr)
		if !is || len(call.Args) != 1 {
			return true
		}
		selector, is := call.Fun.(*ast.SelectorExpr)
		if !is || !slices.Contains([]string{"After", "Before", "Sub", "Since", "Equal"}, selector.Sel.Name) {
			return true
		}
		text := func(node ast.Node) string {
			return strings.Join(strings.Fields(string(source[node.Pos()-1:node.End()-1])), " ")
		}
		for _, stamp := range stamps {
			receiver, argument := strings.Contains(text(selector.X), stamp), strings.Contains(text(call.Args[0]), stamp)
			if same := receiver && argument && stamp == "CreationTimestamp"; (receiver || argument) && !same {
				compared = append(compared, text(call))
				break
			}
		}
		return true
	})
	return compared, nil
}
