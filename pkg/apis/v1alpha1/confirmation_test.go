// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
)

// TestConfirmations: a danger is confirmed by its own key and the token of the moment only, and by what the message tells to do.
func TestConfirmations(t *testing.T) {
	keys := []string{ConfirmAcceptClusterAnnotationKey, ConfirmCollectMachinesAnnotationKey, ConfirmDeleteMachinesAnnotationKey}
	for _, key := range keys {
		t.Run(key, func(t *testing.T) {
			tenant := &TenantCluster{}
			tenant.Namespace, tenant.Name = "acme", "blue"
			if tenant.Confirms(key, "3") || tenant.Confirms(key, "") {
				t.Error("nothing is confirmed yet")
			}
			command := tenant.ConfirmCommand(key, "3")
			annotation, is := strings.CutPrefix(command, "kubectl annotate --overwrite tenantcluster -n acme blue ")
			if !is {
				t.Fatalf("the command is %q", command)
			}
			name, value, _ := strings.Cut(annotation, "=")
			tenant.Annotations = map[string]string{name: value}
			if !tenant.Confirms(key, "3") || tenant.Confirms(key, "4") {
				t.Errorf("%v confirms 3: %t, and 4: %t; want 3 alone", tenant.Annotations, tenant.Confirms(key, "3"), tenant.Confirms(key, "4"))
			}
			for _, other := range keys {
				if other != key && tenant.Confirms(other, "3") {
					t.Errorf("%v confirms %s as well", tenant.Annotations, other)
				}
			}
			if got := tenant.Confirmation(key); got != "3" {
				t.Errorf("the confirmation in %v is %q", tenant.Annotations, got)
			}
			if tenant.RemoveConfirmation(key); len(tenant.Annotations) > 0 {
				t.Errorf("%v is left", tenant.Annotations)
			}
			tenant.Annotations = map[string]string{key: ""}
			if tenant.Confirms(key, "") {
				t.Error("an empty token confirms")
			}
		})
	}
}

// TestConfirmsDeletion: a number confirms itself, and any confirms all numbers.
func TestConfirmsDeletion(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, value string
		confirms      map[int]bool
	}{
		"None":   {"nothing is confirmed", "", map[int]bool{0: false, 3: false}},
		"Number": {"it is the number that was looked at", "3", map[int]bool{2: false, 3: true, 30: false}},
		"Any":    {"whatever the number is", ConfirmAnyNumber, map[int]bool{1: true, 3: true, 1000: true}},
		"Word":   {"no other word does", "all", map[int]bool{3: false}},
		"Case":   {"it is written as it is", "Any", map[int]bool{3: false}},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := &TenantCluster{}
			tenant.Namespace, tenant.Name = "acme", "blue"
			tenant.Annotations = map[string]string{ConfirmDeleteMachinesAnnotationKey: tc.value}
			for machines, want := range tc.confirms {
				if got := tenant.ConfirmsDeletion(machines); got != want {
					t.Errorf("%s: %q confirms %d: %t", tc.reason, tc.value, machines, got)
				}
			}
			if how := tenant.HowToConfirmDeletion(3); !strings.HasPrefix(how, "kubectl annotate --overwrite tenantcluster -n "+
				"acme blue "+
				ConfirmDeleteMachinesAnnotationKey+"=3; ") || !strings.HasSuffix(how, ConfirmDeleteMachinesAnnotationKey+": any") {
				t.Errorf("it says %q", how)
			}
		})
	}
}
