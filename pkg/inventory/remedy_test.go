// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestEveryReasonHasRemedy: what does not end by itself needs somebody who knows what to do.
func TestEveryReasonHasRemedy(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "eligibility.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "server-01"}}
	host.Spec.ConsumerRef = &corev1.ObjectReference{Namespace: "acme", Name: "m1"}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue {
			return true
		}
		if named, isNamed := spec.Type.(*ast.Ident); !isNamed || named.Name != "Reason" {
			return true
		}
		found++
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		switch reason := Reason(text); {
		case reason == ReasonClaimed || reason == ReasonUnknown: // it is in use; there is no host to do anything about
		case !reason.Passes() && reason.Remedy(host) == "":
			t.Errorf("the reason %s does not end by itself, and nothing says what to do", reason)
		}
		return true
	})
	if found < 15 {
		t.Errorf("found only %d reasons", found)
	}
}

// TestRemedyEndsReason: where two states have one reason, the remedy is for the one that the host is in.
func TestRemedyEndsReason(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		given  Reason
		change func(*bmov1alpha1.BareMetalHost)
		want   string
	}{
		"Quarantined": {"it is one command", ReasonQuarantined, func(*bmov1alpha1.BareMetalHost) {},
			"kubectl annotate baremetalhost -n metal3 server-01 " + v1alpha1.QuarantinedAnnotationKey + "-"},
		"Left by a tenant": {"its disks have data", ReasonNotCleaned, func(host *bmov1alpha1.BareMetalHost) {
			host.Annotations = map[string]string{v1alpha1.LastTenantAnnotationKey: "acme"}
		}, "once you have erased its disks, which Metal3 does only after a release: kubectl annotate baremetalhost -n metal3 server-01 " +
			v1alpha1.LastTenantAnnotationKey + "-"},
		"Not cleaned": {"it is not known who has had it", ReasonNotCleaned, func(host *bmov1alpha1.BareMetalHost) {
			host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
		}, "once you have erased its disks, which Metal3 does only after a release: " +
			`kubectl patch baremetalhost -n metal3 server-01 --type=merge --patch='{"spec": {"automatedCleaningMode": "metadata"}}'`},
		"Never cleaned, left by a tenant": {"one of both alone leaves it as it is", ReasonNotCleaned, func(host *bmov1alpha1.BareMetalHost) {
			host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
			host.Annotations = map[string]string{v1alpha1.LastTenantAnnotationKey: "acme"}
		}, `--patch='{"spec": {"automatedCleaningMode": "metadata"}, "metadata": {"annotations": {"karpenter.metal3.io/last-tenant": null}}}'`},
		"Paused": {"a restore or an incident needs it", ReasonPaused, func(host *bmov1alpha1.BareMetalHost) {
			host.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: "restore"}
		}, "ask who has paused it"},
		"Paused by CAPM3": {"it would pause it again", ReasonPaused, func(host *bmov1alpha1.BareMetalHost) {
			host.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: "metal3.io/capm3"}
		}, "unpause its Cluster of Cluster API"},
		"Provisioned by others": {"Metal3's webhook refuses to set the field back", ReasonExternallyProvisioned,
			func(*bmov1alpha1.BareMetalHost) {}, "register it again without spec.externallyProvisioned: kubectl delete baremetalhost"},
		"Not inspected yet": {"the annotation has Metal3 do it", ReasonNotInspected, func(*bmov1alpha1.BareMetalHost) {},
			bmov1alpha1.InspectAnnotationPrefix + "="},
		"Never inspected": {"the annotation alone is of no use, and nor is the mode for a host that is available", ReasonNotInspected,
			func(host *bmov1alpha1.BareMetalHost) { host.Spec.InspectionMode = bmov1alpha1.InspectionModeDisabled },
			`'{"spec": {"inspectionMode": "agent"}, "metadata": {"annotations": {"inspect.metal3.io": ""}}}'`},
	} {
		t.Run(name, func(t *testing.T) {
			host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "server-01"}}
			tc.change(host)
			if got := tc.given.Remedy(host); !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %q, want %q in it", tc.reason, got, tc.want)
			}
		})
	}
}
