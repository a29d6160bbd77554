// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDeepCopy has one object in each list of a snapshot. A list that DeepCopy forgets is empty in the copy, or shared with it.
func TestDeepCopy(t *testing.T) {
	s := NewSnapshot(metav1.Now())
	s.Tenant = &Tenant{UID: "tenant"}
	s.Missing, s.Issues = []Missing{{Resource: "pods"}}, []Issue{{Problem: "is wrong"}}
	for _, list := range lists(s) {
		list.Set(reflect.MakeSlice(list.Type(), 1, 1))
		first(list).SetLabels(map[string]string{"is": "of the original"})
	}
	c := s.DeepCopy()
	if diff := cmp.Diff(s, c); diff != "" {
		t.Errorf("the copy differs (-original +copy):\n%s", diff)
	}
	copies := lists(c)
	for name, list := range lists(s) {
		if copies[name].Len() == 0 {
			continue // said above
		}
		first(copies[name]).GetLabels()["is"] = "of the copy"
		if got := first(list).GetLabels()["is"]; got != "of the original" {
			t.Errorf("%s of the copy are those of the original: a label that was written to the copy is %q there", name, got)
		}
	}
	c.Missing[0].Resource, c.Tenant.UID, c.Issues[0].Problem = "nodes", "other", "is worse"
	if s.Missing[0].Resource != "pods" || s.Tenant.UID != "tenant" || s.Issues[0].Problem != "is wrong" {
		t.Error("writing to the copy has changed what is missing in the original, its tenant or its issues")
	}
}

// lists are the lists of objects of a snapshot, by the name of their field.
func lists(s *Snapshot) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for _, part := range []any{&s.Management, s.Tenant} {
		for field, value := range reflect.ValueOf(part).Elem().Fields() {
			if field.Type.Kind() == reflect.Slice {
				all[field.Name] = value
			}
		}
	}
	return all
}

// first is the first object of a list.
func first(list reflect.Value) metav1.Object { return list.Index(0).Addr().Interface().(metav1.Object) }
