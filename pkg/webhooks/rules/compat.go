// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// noEffect warns of a field or a value that does nothing. instead says what to do.
func (r *Result) noEffect(path *field.Path, instead string) {
	r.warn(RuleNoEffect, path, "has no effect here: %s", instead)
}

// fieldsWithoutEffect warns of the fields without an effect that are set.
func (r *Result) fieldsWithoutEffect(object metav1.Object) {
	for _, set := range compat.WithoutEffect(object) {
		if set.TooLong {
			r.deny(RuleNoEffect,
				field.Invalid(set.Path, bytesOf(set.Value), "it is kept in memory and has no effect here: leave it out"))
			continue
		}
		r.noEffect(set.Path, strings.Replace(set.Instead, "%s", shown(set.Value), 1))
	}
}

// unknownProperties warns of properties in our domain and the reference's that have no meaning. They become labels of
// nodes, like custom properties.
func (r *Result) unknownProperties(path *field.Path, layer properties.Layer) {
	for _, name := range sortedKeys(layer.Values) {
		if properties.Unknown(name) {
			r.noEffect(key(path, name), compat.Property(name))
		}
	}
}

// templateMetadata validates the labels and annotations that a NodeProvider sets on a NodeType.
func (r *Result) templateMetadata(path *field.Path, metadata *v1alpha1.NodeTypeMetadata) {
	if metadata == nil {
		return
	}
	labels, annotations := path.Child("labels"), path.Child("annotations")
	r.deny(RuleNodes, metav1validation.ValidateLabels(metadata.Labels, labels)...)
	r.deny(RuleNodes, validation.ValidateAnnotations(metadata.Annotations, annotations)...)
	r.reservedMetadata(labels, metadata.Labels)
	r.reservedMetadata(annotations, metadata.Annotations)
}

func (r *Result) reservedMetadata(path *field.Path, values map[string]string) {
	for _, name := range sortedKeys(values) {
		if v1alpha1.IsReservedMetadata(name) {
			r.noEffect(key(path, name), "the domain is reserved, and it is not written: use another domain")
		}
	}
}

// Spelling returns the patches that give fields the form of the schema where the reference has several forms, and a
// warning for each field. An object in the form of the schema gets neither.
func Spelling(kind Kind, object map[string]any) (Result, []jsonpatch.Operation) {
	r := &Result{}
	var patches []jsonpatch.Operation
	for _, form := range compat.Forms {
		if form.Kind != string(kind) {
			continue
		}
		if value, converted := form.Convert(object); converted {
			patches = append(patches, jsonpatch.NewOperation("replace", "/"+strings.Join(form.Path, "/"), value))
			r.warn(RuleSpelling, field.NewPath(form.Path[0], form.Path[1:]...), "%s", form.Warning())
		}
	}
	return r.done(), patches
}
