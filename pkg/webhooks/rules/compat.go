// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"
	"slices"
	"strings"

	"github.com/samber/lo"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/validation"
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

// UnknownField is a field that a schema does not name, in a block that keeps unknown fields.
type UnknownField struct {
	Path *field.Path
	// Block is the path of the block in the schema, with [] for the items of lists, and Name the name of the field there.
	Block, Name string
	Value       any
	// Known are the fields of the block that the schema names.
	Known []string
}

// UnknownFields warns of fields of the reference that have no effect, and denies all other unknown fields. A field that
// the object had before with the same value gets neither. name is the name of the object.
func UnknownFields(kind Kind, name string, before, after []UnknownField) Result {
	r := &Result{}
	had := map[string]any{}
	for _, unknown := range before {
		had[unknown.Path.String()] = unknown.Value
	}
	ofKind := lo.Filter(compat.IgnoredFields, func(ignored compat.Ignored, _ int) bool { return ignored.Kind == string(kind) })
	set := make([][]UnknownField, len(ofKind)) // the unknown fields by the ignored field that they are
	for _, unknown := range after {
		if value, has := had[unknown.Path.String()]; has && reflect.DeepEqual(value, unknown.Value) {
			continue
		}
		index := slices.IndexFunc(ofKind, func(ignored compat.Ignored) bool {
			return ignored.Block == unknown.Block && ignored.Name == unknown.Name
		})
		if index < 0 {
			r.unknown(ofKind, unknown)
			continue
		}
		set[index] = append(set[index], unknown)
	}
	for i, ignored := range ofKind {
		for _, unknown := range set[i] {
			r.ignored(ignored, unknown, name)
		}
	}
	return r.done()
}

// ignored warns of a field without an effect, or denies it. The providerRef of a type in a NodeProvider needs no warning
// if it names that NodeProvider.
func (r *Result) ignored(ignored compat.Ignored, unknown UnknownField, name string) {
	set, says := ignored.Set(unknown.Path, unknown.Value)
	switch {
	case !says || ignored.Name == "providerRef" && unknown.Value == name:
	case ignored.Denied:
		r.deny(RuleNoEffect, field.Forbidden(set.Path, set.Instead))
	default:
		r.withoutEffect(set)
	}
}

// withoutEffect warns of a field that is set and does nothing, and denies one that is too long.
func (r *Result) withoutEffect(set compat.Field) {
	if set.TooLong {
		r.deny(RuleNoEffect, field.Invalid(set.Path, bytesOf(set.Value), "it is stored and has no effect here: leave it out"))
		return
	}
	r.noEffect(set.Path, strings.Replace(set.Instead, "%s", shown(set.Value), 1))
}

// unknown denies a field that neither this API nor the reference has, and names the field that is probably meant.
func (r *Result) unknown(ofKind []compat.Ignored, unknown UnknownField) {
	detail := "unknown field"
	if r.errorCount() < maxErrors { // finding names costs more than decoding the object
		names := slices.Clone(unknown.Known)
		for _, ignored := range ofKind {
			if ignored.Block == unknown.Block {
				names = append(names, ignored.Name)
			}
		}
		if meant := closest(unknown.Name, names); meant != "" {
			detail += ": is " + meant + " meant?"
		}
	}
	r.deny(RuleNoEffect, field.Forbidden(unknown.Path, detail))
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
