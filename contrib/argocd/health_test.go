// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package argocd

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// healthOf is what Argo CD calls what kstatus says.
var healthOf = map[status.Status]string{
	status.InProgressStatus: "Progressing", status.CurrentStatus: "Healthy", status.FailedStatus: "Degraded",
	status.TerminatingStatus: "Progressing",
}

// script runs health.lua as Argo CD does: the object is a global variable, and there are no libraries but the basic one and those of
// tables.
type script struct {
	state  *lua.LState
	health *lua.LFunction
}

func newScript(t *testing.T) *script {
	t.Helper()
	text, err := os.ReadFile("health.lua")
	if err != nil {
		t.Fatal(err)
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	t.Cleanup(state.Close)
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	health, err := state.LoadString(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return &script{state, health}
}

func (s *script) run(t *testing.T, object map[string]any) (health, message string) {
	t.Helper()
	s.state.SetGlobal("obj", s.value(object))
	if err := s.state.CallByParam(lua.P{Fn: s.health, NRet: 1, Protect: true}); err != nil {
		t.Fatal(err)
	}
	defer s.state.Pop(1)
	result, ok := s.state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns a %s, want a table", s.state.Get(-1).Type())
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

// value is a part of an object in Lua.
func (s *script) value(object any) lua.LValue {
	switch typed := object.(type) {
	case map[string]any:
		table := s.state.NewTable()
		for key, value := range typed {
			table.RawSetString(key, s.value(value))
		}
		return table
	case []any:
		table := s.state.NewTable()
		for _, value := range typed {
			table.Append(s.value(value))
		}
		return table
	case string:
		return lua.LString(typed)
	case int64:
		return lua.LNumber(typed)
	}
	panic(fmt.Sprintf("a %T is not in the objects of this test", object))
}

// verdicts returns what kstatus and the script say of an object.
func verdicts(t *testing.T, s *script, object map[string]any) (kstatus status.Status, argo, message string) {
	t.Helper()
	computed, err := status.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		t.Fatal(err)
	}
	argo, message = s.run(t, object)
	return computed.Status, argo, message
}

// kinds are our kinds with conditions, and those that they have beside Ready, Reconciling and Stalled.
var kinds = map[string][]string{
	"NodeProvider":   {v1alpha1.ConditionSynced},
	"NodeType":       {v1alpha1.ConditionSynced, v1alpha1.ConditionHasCapacity, v1alpha1.ConditionHardwareFits},
	"MetalNodeClass": {v1alpha1.ConditionValidationSucceeded},
	"TenantCluster": {v1alpha1.ConditionClusterIdentified, v1alpha1.ConditionKubeconfigAccepted, v1alpha1.ConditionCollectionAllowed,
		v1alpha1.ConditionPoolsSynced, v1alpha1.ConditionDRASynced, v1alpha1.ConditionNodesDrained, v1alpha1.ConditionServersReturned},
	"Machine": {v1alpha1.ConditionClaimed, v1alpha1.ConditionNetworkReady, v1alpha1.ConditionProvisioned, v1alpha1.ConditionJoined,
		v1alpha1.ConditionDrifted, v1alpha1.ConditionGivenUp, v1alpha1.ConditionReleased},
}

// TestVerdictsAreTheSame asks both of every combination: Ready, Reconciling, Stalled and each other condition of the kind, each true,
// false, unknown and absent, in both orders; a status of this generation, of an earlier one, of none, and no status at all; an object
// that is being deleted and one that is not.
func TestVerdictsAreTheSame(t *testing.T) {
	s, count, seen := newScript(t), 0, map[status.Status]int{}
	states := []string{"True", "False", "Unknown", ""}
	compare := func(object map[string]any) {
		count++
		kstatus, argo, _ := verdicts(t, s, object)
		seen[kstatus]++
		if argo != healthOf[kstatus] {
			t.Errorf("kstatus says %s, and the script %s, of %v", kstatus, argo, object)
		}
	}
	for kind, others := range kinds {
		for _, deleted := range []bool{false, true} {
			object := func(status map[string]any) map[string]any {
				metadata := map[string]any{"name": "one", "generation": int64(2)}
				if deleted {
					metadata["deletionTimestamp"] = "2026-01-02T15:04:05Z"
				}
				all := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": metadata}
				if status != nil {
					all["status"] = status
				}
				return all
			}
			compare(object(nil))
			for _, observed := range []int64{2, 1, -1, 0} { // 0: it has none
				for _, other := range others {
					forEach(states, 4, func(chosen []string) {
						var list []any
						for i, name := range []string{other, v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
							if chosen[i] != "" {
								list = append(list, map[string]any{"type": name, "status": chosen[i], "reason": "Because", "message": "because"})
							}
						}
						for range 2 {
							status := map[string]any{}
							if observed != 0 {
								status["observedGeneration"] = observed
							}
							if len(list) > 0 {
								status["conditions"] = slices.Clone(list)
							}
							compare(object(status))
							slices.Reverse(list)
						}
					})
				}
			}
		}
	}
	for verdict := range healthOf {
		if seen[verdict] == 0 {
			t.Errorf("kstatus has said %s of none", verdict)
		}
	}
	t.Logf("%d combinations: %v", count, seen)
}

// forEach calls f with every choice of so many of the values.
func forEach(values []string, count int, f func([]string)) {
	if count == 0 {
		f(nil)
		return
	}
	forEach(values, count-1, func(chosen []string) {
		for _, value := range values {
			f(append(slices.Clone(chosen), value))
		}
	})
}

// TestVerdicts has what people ask about: the conditions are those that the controllers write for a reason.
func TestVerdicts(t *testing.T) {
	s := newScript(t)
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	type row struct {
		kind, state string
		ready       metav1.ConditionStatus
		reason      string
		want        status.Status
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tSTATE\tREADY\tRECONCILING\tSTALLED\tREASON\tKSTATUS\tARGO CD")
	for _, row := range []row{
		{"NodeProvider", "its NodeTypes are written", yes, v1alpha1.ReasonSynced, status.CurrentStatus},
		{"NodeProvider", "a NodeType is another's", no, v1alpha1.ReasonNameConflict, status.FailedStatus},
		{"NodeType", "servers are free, or all are in use", yes, v1alpha1.ReasonSynced, status.CurrentStatus},
		{"NodeType", "its NodeProvider is not there yet", no, v1alpha1.ReasonProviderNotFound, status.InProgressStatus},
		{"NodeType", "its selector is not valid", no, v1alpha1.ReasonInvalidSelector, status.FailedStatus},
		{"MetalNodeClass", "valid", yes, v1alpha1.ConditionValidationSucceeded, status.CurrentStatus},
		{"MetalNodeClass", "its NodeProvider has no NodeTypes yet", no, v1alpha1.ReasonNoNodeTypes, status.InProgressStatus},
		{"MetalNodeClass", "a property is not valid", no, "InvalidProperties", status.FailedStatus},
		{"TenantCluster", "its provider works", yes, v1alpha1.ReasonIdentified, status.CurrentStatus},
		{"TenantCluster", "its provider has not reported yet", metav1.ConditionUnknown, v1alpha1.ReasonNotReported, status.InProgressStatus},
		{"TenantCluster", "its API server refuses the kubeconfig", no, v1alpha1.ReasonKubeconfigRefused, status.FailedStatus},
		{"TenantCluster", "too many NodeClaims are gone", no, v1alpha1.ReasonTooManyMachines, status.FailedStatus},
		{"Machine", "waits for a free server", no, v1alpha1.ReasonNoCapacity, status.InProgressStatus},
		{"Machine", "is being installed", no, v1alpha1.ReasonProvisioning, status.InProgressStatus},
		{"Machine", "its node has registered", yes, v1alpha1.ReasonJoined, status.CurrentStatus},
		{"Machine", "its server is switched off, as its spec says", no, v1alpha1.ReasonPoweredOff, status.InProgressStatus},
		{"Machine", "its spec is not valid", no, v1alpha1.ReasonInvalidSpec, status.FailedStatus},
		{"Machine", "Metal3 reports an error of its server", no, v1alpha1.ReasonHostError, status.FailedStatus},
		{"Machine", "was given up", no, v1alpha1.ReasonDeadlineExceeded, status.FailedStatus},
	} {
		var list []metav1.Condition
		conditions.SetReady(&list, metav1.Condition{Status: row.ready, Reason: row.reason, Message: row.state}, 1, metav1.Now())
		written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.NodeProviderStatus{
			ObservedGeneration: 1, Conditions: list})
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": row.kind,
			"metadata": map[string]any{"name": "one", "generation": int64(1)}, "status": written}
		kstatus, argo, message := verdicts(t, s, object)
		if kstatus != row.want || argo != healthOf[row.want] || message != row.state {
			t.Errorf("%s, %s: kstatus %s, Argo CD %s %q, want %s", row.kind, row.state, kstatus, argo, message, row.want)
		}
		is := func(kind string) string { return cmp.Or(string(conditions.Find(list, kind).Status), "-") }
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.kind, row.state, row.ready, is(v1alpha1.ConditionReconciling),
			is(v1alpha1.ConditionStalled), row.reason, kstatus, argo)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
}
