// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

// Deleted looks at an object that is to be deleted, and refuses while others refer to it.
func Deleted(fleet Fleet, kind Kind, name string) Verdict {
	v := &Verdict{}
	if users := fleet.Users(kind, name); len(users) > 0 {
		v.refuse(RuleInUse, "it is in use by %s: have them use something else, or delete them first", list(users))
	}
	return *v
}

// ProviderDeleted looks at a NodeProvider that is to be deleted: its NodeTypes would go with it.
func ProviderDeleted(fleet Fleet, name string) Verdict {
	v := &Verdict{}
	for _, nodeType := range fleet.NodeTypes() {
		if nodeType.Spec.ProviderRef.Name != name {
			continue
		}
		if users := fleet.Users(KindNodeType, nodeType.Name); len(users) > 0 {
			v.refuse(RuleInUse, "its NodeType %s is in use by %s: delete them first", nodeType.Name, list(users))
			return *v
		}
	}
	return *v
}
