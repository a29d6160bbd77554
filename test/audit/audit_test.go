// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestRequests(t *testing.T) {
	patch := Request{Cluster: "management", User: "ours-manager", Verb: "patch", Group: "metal3.io", Resource: "baremetalhosts",
		Namespace: "metal3", Name: "h1"}
	for name, tc := range map[string]struct {
		reason, log string
		want        []Request
	}{
		"User": {"a user by name",
			`{"verb":"patch","user":{"username":"ours-manager"},"objectRef":{"resource":"baremetalhosts","namespace":"metal3","name":"h1","apiGroup":"metal3.io"}}`, []Request{patch}},
		"ServiceAccount": {"the same in a pod",
			`{"verb":"patch","user":{"username":"system:serviceaccount:ns:ours-manager"},"objectRef":{"resource":"baremetalhosts","namespace":"metal3","name":"h1","apiGroup":"metal3.io"}}`, []Request{patch}},
		"Impersonated": {"the same in a test",
			`{"verb":"patch","user":{"username":"admin"},"impersonatedUser":{"username":"ours-manager"},"objectRef":{"resource":"baremetalhosts","namespace":"metal3","name":"h1","apiGroup":"metal3.io"}}`, []Request{patch}},
		"Administrator": {"an administrator uses no RBAC rule",
			`{"verb":"patch","user":{"username":"admin"},"impersonatedUser":{"username":"ours-manager","groups":["system:masters"]},"objectRef":{"resource":"baremetalhosts","namespace":"metal3","name":"h1","apiGroup":"metal3.io"}}`, nil},
		"Other": {"not one of ours",
			`{"verb":"patch","user":{"username":"admin"},"objectRef":{"resource":"baremetalhosts","namespace":"metal3","name":"h1","apiGroup":"metal3.io"}}`, nil},
		"Status": {"a subresource is something else",
			`{"verb":"patch","user":{"username":"ours-x"},"objectRef":{"resource":"machines","subresource":"status","name":"m"}}`,
			[]Request{{Cluster: "management", User: "ours-x", Verb: "patch", Resource: "machines/status", Name: "m"}}},
		"Forbidden": {"it was not used",
			`{"verb":"list","user":{"username":"ours-x"},"objectRef":{"resource":"secrets"},"annotations":{"authorization.k8s.io/decision":"forbid"}}`,
			[]Request{{Cluster: "management", User: "ours-x", Verb: "list", Resource: "secrets", Forbidden: true}}},
		"NoObject": {"such as /healthz", `{"verb":"get","user":{"username":"ours-x"}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			// Two identical lines, and an incomplete one.
			text := tc.log + "\n" + tc.log + "\n" + tc.log[:10]
			if err := os.WriteFile(filepath.Join(directory, "management-1.log"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			requests, err := Requests(directory, "ours-")
			if err != nil {
				t.Fatal(err)
			}
			got := map[Request]bool{}
			for _, request := range tc.want {
				got[request] = true
			}
			if diff := cmp.Diff(got, requests); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRequestsWithoutLogs(t *testing.T) {
	directory := t.TempDir()
	if _, err := Requests(directory, "ours-"); err == nil || !strings.Contains(err.Error(), DirectoryVariable) {
		t.Errorf("without logs everything would be unused: %v", err)
	}
	if err := os.WriteFile(filepath.Join(directory, "a-1.log"), []byte("no JSON\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Requests(directory, "ours-"); err == nil || !strings.Contains(err.Error(), "a-1.log") {
		t.Errorf("a log that is none: %v", err)
	}
}

func TestFlags(t *testing.T) {
	if flags, err := Flags("", "management"); err != nil || len(flags) > 0 {
		t.Errorf("no requests were made: %v, %v", flags, err)
	}
	directory := filepath.Join(t.TempDir(), "new")
	var seen []string
	for range 2 {
		flags, err := Flags(directory, "management")
		if err != nil || len(flags) != 2 {
			t.Fatal(flags, err)
		}
		for _, flag := range flags {
			_, file, _ := strings.Cut(flag, "=")
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", flag, err)
			}
		}
		seen = append(seen, flags[1])
	}
	if seen[0] == seen[1] {
		t.Error("two API servers write one log")
	}
}

func TestGives(t *testing.T) {
	request := Request{User: "ours", Verb: "get", Resource: "secrets", Namespace: "a", Name: "s"}
	for name, tc := range map[string]struct {
		reason string
		rule   rbacv1.PolicyRule
		in     string
		change func(*Request)
		want   bool
	}{
		"Cluster":        {reason: "everywhere is there too", rule: rule("get", "", "secrets"), want: true},
		"Namespace":      {reason: "where it holds", rule: rule("get", "", "secrets"), in: "a", want: true},
		"OtherNamespace": {reason: "it does not hold there", rule: rule("get", "", "secrets"), in: "b"},
		"SomeNamespace":  {reason: "which it is, is not known", rule: rule("get", "", "secrets"), in: "*", want: true},
		"NoNamespace": {reason: "a Role gives nothing in the cluster", rule: rule("get", "", "secrets"), in: "*",
			change: func(r *Request) { r.Namespace = "" }},
		"Verb":      {reason: "another verb", rule: rule("list", "", "secrets")},
		"Group":     {reason: "another group", rule: rule("get", "x.io", "secrets")},
		"Resource":  {reason: "another resource", rule: rule("get", "", "secrets/status")},
		"Name":      {reason: "its name", rule: rule("get", "", "secrets", "s"), want: true},
		"OtherName": {reason: "another name", rule: rule("get", "", "secrets", "x")},
		"Forbidden": {reason: "a forbidden request uses no right", rule: rule("get", "", "secrets"),
			change: func(r *Request) { r.Forbidden = true }},
	} {
		t.Run(name, func(t *testing.T) {
			asked := request
			if tc.change != nil {
				tc.change(&asked)
			}
			rights := Rights("Role r", tc.in, []rbacv1.PolicyRule{tc.rule, tc.rule})
			if len(rights) != 1 || rights[0].Gives(asked) != tc.want {
				t.Errorf("%s: %v gives it: %v, want %v", tc.reason, rights, !tc.want, tc.want)
			}
		})
	}
}

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}
