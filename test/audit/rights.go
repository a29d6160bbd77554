// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Right is one verb of a rule.
type Right struct {
	// Role is the kind and the name of the role that has it.
	Role string
	// Namespace in which it holds; empty for a right in the whole cluster.
	Namespace string
	// Verb, Group and Resource (with its subresource) are the rule's.
	Verb, Group, Resource string
	// Name is that of the only object that it is for; empty for all.
	Name string
}

// String describes the right: "ClusterRole karpenter-metal3-manager: patch baremetalhosts.metal3.io".
func (r Right) String() string {
	text := fmt.Sprintf("%s: %s %s", r.Role, r.Verb, r.Resource)
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	return text
}

// Rights of a role, one by one.
func Rights(role, namespace string, rules []rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, Right{Role: role, Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name})
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Right) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// Gives returns whether the right allows the request. The namespace * stands for any.
func (r Right) Gives(request Request) bool {
	return !request.Forbidden && r.Verb == request.Verb && r.Group == request.Group && r.Resource == request.Resource &&
		(r.Name == "" || r.Name == request.Name) &&
		(r.Namespace == "" || r.Namespace == request.Namespace || r.Namespace == "*" && request.Namespace != "")
}
