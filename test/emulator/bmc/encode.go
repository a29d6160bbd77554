// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// encode converts a value of gofish. Its types are made for clients: a missing field is a zero value there. So zero
// values are left out here, except behind pointers.
func encode(value any) any { return encodeValue(reflect.ValueOf(value)) }

var marshaler = reflect.TypeFor[json.Marshaler]()

func encodeValue(v reflect.Value) any {
	if v.Type().Implements(marshaler) {
		return v.Interface()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return encodeValue(v.Elem())
	case reflect.Struct:
		fields := map[string]any{}
		encodeFields(v, fields)
		return fields
	case reflect.Slice, reflect.Array:
		list := make([]any, 0, v.Len())
		for i := range v.Len() {
			list = append(list, encodeValue(v.Index(i)))
		}
		return list
	}
	return v.Interface()
}

func encodeFields(v reflect.Value, fields map[string]any) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if field.Anonymous && value.Kind() == reflect.Struct {
			encodeFields(value, fields)
			continue
		}
		// RawData is what gofish has read, kept for vendors' extensions.
		if !field.IsExported() || field.Name == "RawData" || value.IsZero() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch name {
		case "-":
			continue
		case "":
			name = field.Name
		}
		encoded := encodeValue(value)
		// A struct with zero fields only is left out.
		if nested, ok := encoded.(map[string]any); ok && len(nested) == 0 && value.Kind() == reflect.Struct {
			continue
		}
		fields[name] = encoded
	}
}

// document is a resource: the fields of a type of gofish, and its links and actions, which gofish does not export.
func document(model any, extra map[string]any) map[string]any {
	fields := encode(model).(map[string]any)
	for name, value := range extra {
		fields[name] = value
	}
	return fields
}

// link refers to a resource.
func link(path string) map[string]string { return map[string]string{"@odata.id": path} }

func links(paths ...string) []map[string]string {
	list := make([]map[string]string, 0, len(paths))
	for _, path := range paths {
		list = append(list, link(path))
	}
	return list
}

func collection(path, kind string, members []string) map[string]any {
	kind += "Collection"
	return map[string]any{
		"@odata.id": path, "@odata.type": "#" + kind + "." + kind, "Name": kind,
		"Members@odata.count": len(members), "Members": links(members...),
	}
}

func healthy() schemas.Status {
	return schemas.Status{State: schemas.EnabledState, Health: schemas.OKHealth, HealthRollup: schemas.OKHealth}
}
