// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeprovider

import (
	"maps"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// setMetadata writes the labels and annotations of a template, and removes those that came from an earlier template.
// Others, which people and programs have set, stay. Two annotations record the written names: otherwise nothing would
// show who wrote a label.
func setMetadata(nodeType *v1alpha1.NodeType, from *v1alpha1.NodeTypeMetadata) {
	if from == nil {
		from = &v1alpha1.NodeTypeMetadata{}
	}
	labels, annotations := namesOf(from.Labels), namesOf(from.Annotations)
	recorded := nodeType.Annotations
	nodeType.Labels = replaced(nodeType.Labels, recorded[v1alpha1.ProviderLabelsAnnotationKey], labels, from.Labels)
	nodeType.Annotations = replaced(recorded, recorded[v1alpha1.ProviderAnnotationsAnnotationKey], annotations, from.Annotations)
	record := map[string]string{
		v1alpha1.ProviderLabelsAnnotationKey:      strings.Join(labels, ","),
		v1alpha1.ProviderAnnotationsAnnotationKey: strings.Join(annotations, ","),
	}
	maps.DeleteFunc(record, func(_, names string) bool { return names == "" })
	names := v1alpha1.ProviderLabelsAnnotationKey + "," + v1alpha1.ProviderAnnotationsAnnotationKey
	nodeType.Annotations = replaced(nodeType.Annotations, names, slices.Collect(maps.Keys(record)), record)
}

// replaced returns a copy of the map without the names in without, which are separated by commas, and with the wanted
// entries of names. A nil map stays nil if there is nothing to write.
func replaced(now map[string]string, without string, names []string, wanted map[string]string) map[string]string {
	all := maps.Clone(now)
	for name := range strings.SplitSeq(without, ",") {
		delete(all, name)
	}
	for _, name := range names {
		if all == nil {
			all = map[string]string{}
		}
		all[name] = wanted[name]
	}
	return all
}

// namesOf returns the names that a NodeProvider writes, sorted.
func namesOf(values map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(values)), v1alpha1.IsReservedMetadata)
}
