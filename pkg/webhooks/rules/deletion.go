// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

// Deleted validates the deletion of a object, and refuses while others refer to it.
func Deleted(cluster Cluster, kind Kind, name string) Result {
	r := &Result{}
	if users := cluster.Users(kind, name); len(users) > 0 {
		r.refuse(RuleInUse, "it is in use by %s: have them use something else, or delete them first", list(users))
	}
	return *r
}

// ProviderDeleted validates the deletion of a NodeProvider: its NodeTypes would go with it.
func ProviderDeleted(cluster Cluster, name string) Result {
	r := &Result{}
	for _, nodeType := range cluster.NodeTypes() {
		if nodeType.Spec.ProviderRef.Name != name {
			continue
		}
		if users := cluster.Users(KindNodeType, nodeType.Name); len(users) > 0 {
			r.refuse(RuleInUse, "its NodeType %s is in use by %s: delete them first", nodeType.Name, list(users))
			return *r
		}
	}
	return *r
}
