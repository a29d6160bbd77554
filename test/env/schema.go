// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits of an API server, for the cost of a CEL rule and of all rules of an object.
const (
	celCallLimit  = 1_000_000
	celCostBudget = 10_000_000
)

// validator rejects objects that do not match their CRD, as an API server does: by its schema and by its CEL rules,
// also those that compare with the stored object.
type validator struct {
	kind       schema.GroupKind
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

func newValidator(kind schema.GroupKind, definition *apiextensionsv1.CustomResourceValidation) (*validator, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.OpenAPIV3Schema, internal,
		nil); err != nil {
		return nil, fmt.Errorf("reading the schema of %s, %w", kind, err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s, %w", kind, err)
	}
	checks, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s, %w", kind, err)
	}
	return &validator{kind: kind, structural: structural, schema: checks, cel: cel.NewValidator(structural, true, celCallLimit)}, nil
}

// complete does what an API server does before it validates: it sets the defaults, and removes null where that is no value.
func (v *validator) complete(object any) {
	defaulting.Default(object, v.structural)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, v.structural)
}

// validate checks an object that is about to be stored; before is nil when it is created.
func (v *validator) validate(before, after runtime.Object) error {
	if v == nil {
		return nil // a kind without a definition
	}
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return err
	}
	v.complete(is)
	var was any
	faults := validation.ValidateCustomResource(nil, is, v.schema)
	if before != nil {
		if was, err = runtime.DefaultUnstructuredConverter.ToUnstructured(before); err != nil {
			return err
		}
		v.complete(was)
		faults = validation.ValidateCustomResourceUpdate(nil, is, was, v.schema)
	}
	if v.cel != nil {
		violations, _ := v.cel.Validate(context.Background(), nil, v.structural, is, was, celCostBudget)
		faults = append(faults, violations...)
	}
	if len(faults) == 0 {
		return nil
	}
	named, err := meta.Accessor(after)
	if err != nil {
		return err
	}
	return apierrors.NewInvalid(v.kind, named.GetName(), faults)
}
