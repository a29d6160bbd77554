// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// reasonsOf are the values of the constants of this package that are named Reason....
func reasonsOf(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") || len(spec.Values) != 1 ||
				strings.HasSuffix(spec.Names[0].Name, "Key") {
				return true
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s is no literal", spec.Names[0].Name)
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons[spec.Names[0].Name] = value
			return true
		})
	}
	return reasons
}

// TestIsWarning: whether each reason of the API is a warning is decided on here. A new one belongs into one of the two
// lists.
func TestIsWarning(t *testing.T) {
	decided := map[string]bool{}
	for _, reason := range []string{
		ReasonSynced, ReasonAvailable, ReasonExhausted, ReasonResourcesUnknown, ReasonBigEnough, ReasonClaiming,
		ReasonClaimed, ReasonWaitingForBootstrapData, ReasonProvisioning, ReasonProvisioned, ReasonWaitingForNode,
		ReasonJoined, ReasonStandAlone, ReasonDeprovisioning, ReasonWaitingForHook, ReasonNetworkReady,
		ReasonPoweredOff, ReasonIdentified, ReasonNotReported, ReasonKubeconfigAccepted, ReasonConfirmed,
		ReasonCollecting, ReasonReplacingPools, ReasonDraining, ReasonDrained, ReasonReturningServers,
		ReasonResourcesAdvertised, ReasonUpToDate, ReasonNodeTypeChanged, ReasonOSImageChanged, ReasonUserDataChanged,
		ReasonNetworkChanged, ReasonNodeClassChanged, ReasonKubeletArgsChanged, ReasonKubernetesVersionChanged,
		ReasonSyncDisabled, ReasonNotStarted, ReasonFabricsSeparate, ReasonGangIncomplete,
	} {
		decided[reason] = false
	}
	for _, reason := range []string{
		ReasonInvalidSelector, ReasonInvalidDevices, ReasonProviderNotFound, ReasonNoNodeTypes, ReasonTenantNamespace,
		ReasonNameConflict, ReasonNoHosts, ReasonNoSelector, ReasonResourcesLowered, ReasonHostsTooSmall,
		ReasonNoCapacity, ReasonNoMatchingType, ReasonInvalidSpec, ReasonNotAllowed, ReasonHostError,
		ReasonDeadlineExceeded, ReasonHostLost, ReasonHostDeleting, ReasonNoAddress, ReasonQuotaExceeded,
		ReasonTooManyClaims, ReasonTenantDeleting, ReasonAnotherCluster, ReasonClusterTaken, ReasonKubeconfigRefused,
		ReasonTooManyMachines, ReasonInvalidPools, ReasonReleasesServers, ReasonNodeSmaller, ReasonResourcesMissing, ReasonNodeUnhealthy,
		ReasonNoDeviceClasses, ReasonAPINotServed, ReasonSameCluster, ReasonInvalidName, ReasonNodesSmaller,
		ReasonTooManyGivenUp,
		ReasonFabricShared, ReasonProviderSilent,
	} {
		if _, twice := decided[reason]; twice {
			t.Errorf("%s is in both lists", reason)
		}
		decided[reason] = true
	}
	reasons := reasonsOf(t)
	if len(reasons) < 60 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	for name, reason := range reasons {
		want, known := decided[reason]
		if !known {
			t.Errorf("%s is in none of the lists of this test", name)
			continue
		}
		wantType := corev1.EventTypeNormal
		if want {
			wantType = corev1.EventTypeWarning
		}
		if got, gotType := IsWarning(reason), EventType(reason); got != want || gotType != wantType {
			t.Errorf("%s: got %v and %s, want %v", name, got, gotType, want)
		}
	}
}
