// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// TypeLabelPrefix begins the labels that say which NodeTypes a server matches: the prefix, a slash and the type's name.
// Servers that match several types have one for each, with the value "true"; servers that match one type have none.
const TypeLabelPrefix = "type." + Group

// TypeLabelValue is the value of the labels with TypeLabelPrefix.
const TypeLabelValue = "true"

// TypeLabelKey returns the label of servers that match a NodeType and another one. It shortens a name that is too long.
func TypeLabelKey(nodeType string) string {
	if len(nodeType) > validation.LabelValueMaxLength { // as long as the name of a label may be
		const digestLength = 8
		sum := sha256.Sum256([]byte(nodeType))
		nodeType = strings.TrimRight(nodeType[:validation.LabelValueMaxLength-digestLength-1], "-.") + "-" +
			hex.EncodeToString(sum[:])[:digestLength]
	}
	return TypeLabelPrefix + "/" + nodeType
}

// IsTypeLabel reports whether a label says that a server matches a NodeType.
func IsTypeLabel(key string) bool { return strings.HasPrefix(key, TypeLabelPrefix+"/") }

// TypeLabels returns the labels that say which NodeTypes a server matches.
func TypeLabels(matches []string) map[string]string {
	if len(matches) < 2 {
		return nil
	}
	result := map[string]string{}
	for _, nodeType := range matches {
		result[TypeLabelKey(nodeType)] = TypeLabelValue
	}
	return result
}

// NodeLabels returns the labels that tell the servers of the domain from others of the same NodeType: the topology
// labels, and the labels of the types that they match. The caller must not change them.
func (in *DomainCapacity) NodeLabels(nodeType string) map[string]string {
	if len(in.SharedWith) == 0 {
		return in.Labels
	}
	labels := TypeLabels(append(slices.Clone(in.SharedWith), nodeType))
	maps.Copy(labels, in.Labels)
	return labels
}
