// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// shortSuites select the specs that `make test-system` and CI run, by lane, one or two short ones of each kind: about three minutes
// together, and the start of a sandbox for each lane. `make upstream-e2e` runs all.
var shortSuites = map[string]string{
	"default": "^(" +
		"NodeClaim StandaloneNodeClaim should (create a standard NodeClaim based|create a NodeClaim propagating|remove the cloudProvider|" +
		"delete a NodeClaim if)|" +
		"StaticCapacity Deprovisioning should scale down to zero|" +
		"Integration Validation NodePool" +
		")",
	"disruption":     "^(Termination should terminate the node and the instance|Drift NodePool Drift Taints)",
	"default-spread": "^DefaultTopologySpreadConstraints should provision a node per pod",
}

// TestConformance runs a part of Karpenter's suites that fits CI's time.
func TestConformance(t *testing.T) {
	system.Only(t)
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for name, focus := range shortSuites {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "conformance-")
			if err != nil {
				t.Fatal(err)
			}
			lane, err := LaneOf(name)
			if err != nil {
				t.Fatal(err)
			}
			var progress bytes.Buffer
			specs, err := Run(t.Context(), lane, Options{
				Dir: filepath.Join(dir, "sandbox"), Binaries: cluster.Binaries{bin}, Focus: focus, Small: true, Timeout: 15 * time.Minute,
				Progress: &progress,
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, &progress)
			}
			var table bytes.Buffer
			if failed := Print(&table, specs); failed > 0 {
				t.Fatalf("%s\nthe logs are in %s", &table, dir)
			}
			t.Log(table.String())
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFilter(t *testing.T) {
	buffers, err := LaneOf("buffers")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		lane   Lane
		focus  string
		spec   string
		want   bool
	}{
		"Own": {reason: "A spec of the lane runs.", lane: buffers, spec: "CapacityBuffer Lifecycle should scale buffer down",
			want: true},
		"Other": {reason: "One of another lane does not.", lane: buffers, spec: "NodeClaim StandaloneNodeClaim should delete"},
		"Rest": {reason: "The default lane has all remaining specs.", lane: Lanes()[0], spec: "NodeClaim StandaloneNodeClaim should delete",
			want: true},
		"Skipped":    {reason: "A spec that cannot run on a sandbox does not.", lane: Lanes()[1], spec: "TerminateFirst terminates first"},
		"NotTheRest": {reason: "It has no spec of another lane.", lane: Lanes()[0], spec: "CapacityBuffer Lifecycle should scale buffer down"},
		"Focus":      {reason: "A focus narrows a lane down.", lane: Lanes()[0], focus: "^Drift ", spec: "Termination should drain pods"},
		"FocusOutside": {reason: "A focus selects no spec of another lane.", lane: Lanes()[0], focus: "CapacityBuffer",
			spec: "CapacityBuffer Lifecycle should scale buffer down"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := runs(t, tc.lane, tc.focus, tc.spec); got != tc.want {
				t.Errorf("%s\nruns: %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// runs returns whether ginkgo's flags select a spec.
func runs(t *testing.T, lane Lane, focus, spec string) bool {
	t.Helper()
	args := lane.filter(focus)
	focused, focuses := false, 0
	for _, arg := range args {
		if expression, ok := strings.CutPrefix(arg, "--ginkgo.skip="); ok && regexp.MustCompile(expression).MatchString(lane.prefix+spec) {
			return false
		}
		if expression, ok := strings.CutPrefix(arg, "--ginkgo.focus="); ok {
			focuses++
			focused = focused || regexp.MustCompile(expression).MatchString(lane.prefix+spec)
		}
	}
	return focused || focuses == 0
}

func TestEverySpecIsInOneLane(t *testing.T) {
	for spec, suite := range map[string]Suite{
		"NodeClaim StandaloneNodeClaim should create a standard NodeClaim":                                                      regression,
		"NodeClaim StandaloneNodeClaim should create a standard NodeClaim based on resource requests":                           regression,
		"NodeClaim StandaloneNodeClaim should delete a NodeClaim after the registration timeout when the node doesn't register": regression,
		"Drift Failure should not disrupt a drifted node if the replacement node never registers":                               disruptions,
		"Drift Failure should not drift any nodes if their PodDisruptionBudgets are unhealthy":                                  disruptions,
		"CapacityBuffer Multiple Buffers should provision capacity independently for multiple buffers":                          regression,
		"DefaultTopologySpreadConstraints should pack pods the cluster's defaults don't apply to":                               regression,
		"Repair respects disruption budgets":                                                                                    disruptions,
	} {
		var in []string
		for _, lane := range Lanes() {
			if lane.Suite == suite && runs(t, lane, "", spec) {
				in = append(in, lane.Name)
			}
		}
		if len(in) != 1 {
			t.Errorf("%q runs in the lanes %v, want one", spec, in)
		}
	}
}

func TestReadReport(t *testing.T) {
	report := `[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["Drift", "Budgets"], "LeafNodeType": "It", "LeafNodeText": "should respect", "State": "passed", "RunTime": 2000000000},
		{"ContainerHierarchyTexts": ["Drift"], "LeafNodeType": "It", "LeafNodeText": "should drift", "State": "timedout", "RunTime": 1000000000,
		 "Failure": {"Message": "Expected 1", "Location": {"FileName": "/go/pkg/mod/karpenter/test/drift_test.go", "LineNumber": 7}}},
		{"ContainerHierarchyTexts": ["Chaos"], "LeafNodeType": "It", "LeafNodeText": "should not", "State": "skipped"}]}]`
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{
		{Name: "Drift Budgets should respect", Passed: true, Took: 2 * time.Second},
		{Name: "Drift should drift", Took: time.Second, Failure: "timedout, at drift_test.go:7: Expected 1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("specs that ran, and nothing else (-want +got)\n%s", diff)
	}
	if _, err := readReport(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a suite without a report must be an error: %v", err)
	}

	var table bytes.Buffer
	if failed := Print(&table, got); failed != 1 {
		t.Errorf("%d failed unexpectedly, want 1\n%s", failed, &table)
	}
	for _, part := range []string{"passed  2s    Drift Budgets should respect", "FAILED  1s    Drift should drift", "at drift_test.go:7",
		"2 specs, 1 passed, 0 failed as known, 1 failed otherwise"} {
		if !strings.Contains(table.String(), part) {
			t.Errorf("the table has no %q:\n%s", part, &table)
		}
	}
}
