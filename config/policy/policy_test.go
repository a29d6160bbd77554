// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
)

// TestManagement: every policy fails closed and has a binding of its name that denies, and the names of users are quoted.
func TestManagement(t *testing.T) {
	objects, err := Management(Options{Managers: []string{`it's \ me`}, Users: []string{"velero"}, Groups: []string{"admins"}})
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]bool{}
	for _, object := range objects {
		if !strings.HasPrefix(object.GetName(), "karpenter-metal3-") {
			t.Errorf("%s could be the name of another policy of the cluster", object.GetName())
		}
		switch object := object.(type) {
		case *admissionregistrationv1.ValidatingAdmissionPolicy:
			bound[object.Name] = false
			if *object.Spec.FailurePolicy != admissionregistrationv1.Fail {
				t.Errorf("%s lets through what it cannot judge", object.Name)
			}
			if object.Name == "karpenter-metal3-machines" && (!strings.Contains(object.Spec.MatchConditions[0].Expression,
				`['it\'s \\ me', 'velero']`) ||
				!strings.Contains(object.Spec.MatchConditions[1].Expression, `['admins']`)) {
				t.Errorf("%s does not exclude who is trusted: %v", object.Name, object.Spec.MatchConditions)
			}
		case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
			if _, found := bound[object.Spec.PolicyName]; !found || object.Name != object.Spec.PolicyName ||
				object.Spec.ValidationActions[0] != admissionregistrationv1.Deny {
				t.Errorf("binding %s: %+v", object.Name, object.Spec)
			}
			bound[object.Spec.PolicyName] = true
		}
	}
	for name, has := range bound {
		if !has {
			t.Errorf("%s has no binding, so it does nothing", name)
		}
	}
	names, err := Names()
	if err != nil || len(names) != len(bound) || len(names) == 0 {
		t.Errorf("names %v, %v", names, err)
	}
	rights, err := rbac.Files.ReadFile("manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(rights), name+",") && !strings.Contains(string(rights), name+"]") {
			t.Errorf("the manager may not look whether %s is there", name)
		}
	}
}
