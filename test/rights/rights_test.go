// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
)

// logs is not the variable that enables audit logs: this test must run when they are complete.
var logs = flag.String("logs", "", "directory of the audit logs that other tests have left")

// files of config/rbac: their users, and the clusters whose logs do not count for them. Most tests use one cluster as
// management cluster and tenant.
var files = map[string]struct {
	user    string
	without []string
}{
	"manager.yaml":                 {"karpenter-metal3-manager", []string{"tenant"}},
	"manager-webhook.yaml":         {"karpenter-metal3-manager", []string{"tenant"}},
	"webhook.yaml":                 {"karpenter-metal3-webhook", []string{"tenant"}},
	"provider-management.yaml":     {"karpenter-metal3-provider", []string{"tenant"}},
	"provider-dra-management.yaml": {"karpenter-metal3-provider", []string{"tenant"}},
	"provider-tenant.yaml":         {"karpenter-metal3-provider", []string{"management", "host"}},
	"provider-dra-tenant.yaml":     {"karpenter-metal3-provider", []string{"management", "host"}},
}

// rightsIn are those in a file of config/rbac.
func rightsIn(t *testing.T, file string) []audit.Right {
	t.Helper()
	content, err := rbac.Files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []audit.Right
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		role := &rbacv1.Role{} // a ClusterRole has the same fields
		if err := yaml.Unmarshal([]byte(document), role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "Role" && role.Kind != "ClusterRole" {
			continue
		}
		namespace := role.Namespace
		if strings.Contains(namespace, "{{") || namespace == "default" {
			namespace = "*" // wherever the program runs
		}
		all = append(all, audit.Rights(role.Kind+" "+role.Name, namespace, role.Rules)...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rights", file)
	}
	return all
}

// TestEveryRightIsUsed reads the audit logs of other tests ("make rights" runs them first), and fails for each right in
// config/rbac that was not used.
func TestEveryRightIsUsed(t *testing.T) {
	if *logs == "" {
		t.Skip("there are no audit logs to read: 'make rights' makes them and runs this test with --logs")
	}
	requests, err := audit.Requests(*logs, "karpenter-metal3-")
	if err != nil {
		t.Fatal(err)
	}
	for file, about := range files {
		t.Run(file, func(t *testing.T) {
			used, excepted := 0, 0
			var unused []string
			for _, right := range rightsIn(t, file) {
				switch {
				case isUsed(right, requests, about.user, about.without):
					used++
				case exceptions[file][shortRight(right)] != "":
					excepted++
					t.Logf("not seen: %s: %s", right, exceptions[file][shortRight(right)])
				default:
					unused = append(unused, fmt.Sprintf("%s (%s)", right, shortRight(right)))
				}
			}
			t.Logf("%d rights are used, %d are exceptions", used, excepted)
			if len(unused) > 0 {
				t.Errorf("%s gives rights that no test uses: take them away, or test what they are for:\n  %s", file, strings.Join(unused, "\n  "))
			}
		})
	}
}

// shortRight returns the name of a right in exceptions.
func shortRight(right audit.Right) string { return right.Verb + " " + right.Resource }

// isUsed returns whether one of the requests needed the right. A watch needs the right to list, too: a cache streams the
// list that it begins with, and asks for it by itself if the stream breaks or the API server has no such streams. Whether
// one breaks in a test is chance.
func isUsed(right audit.Right, requests map[audit.Request]bool, user string, without []string) bool {
	watch := right
	watch.Verb = "watch"
	for request := range requests {
		if (request.User == user || strings.HasPrefix(request.User, user+"-")) && !slices.Contains(without, request.Cluster) &&
			(right.Gives(request) || right.Verb == "list" && watch.Gives(request)) {
			return true
		}
	}
	return false
}

// TestListsOfWatches: a cache whose stream never broke used the right to list all the same, and no other right.
func TestListsOfWatches(t *testing.T) {
	requests := map[audit.Request]bool{
		{User: "provider-1", Cluster: "tenant", Verb: "watch", Group: "policy", Resource: "poddisruptionbudgets"}: true,
	}
	for verb, want := range map[string]bool{"watch": true, "list": true, "get": false, "delete": false} {
		right := audit.Right{Verb: verb, Group: "policy", Resource: "poddisruptionbudgets"}
		if isUsed(right, requests, "provider", nil) != want {
			t.Errorf("%s: used: %v, want %v", right, !want, want)
		}
		right.Resource = "pods"
		if isUsed(right, requests, "provider", nil) {
			t.Errorf("%s: no request needed it", right)
		}
	}
}

// TestExceptions: each exception is for an existing right.
func TestExceptions(t *testing.T) {
	for file, excepted := range exceptions {
		there := sets.New[string]()
		for _, right := range rightsIn(t, file) {
			there.Insert(shortRight(right))
		}
		for name, why := range excepted {
			if !there.Has(name) || why == "" {
				t.Errorf("%s has no right %q, or the exception has no reason: %q", file, name, why)
			}
		}
	}
}
