// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"reflect"
)

// snapshot returns a value as maps, lists, text, numbers and nil, with the fields of structs under their Go names. Templates
// get that and not the objects: the methods of objects can change them, and some make a text of gigabytes.
func snapshot(value reflect.Value) any {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return nil
		}
		if text, ok := value.Interface().(fmt.Stringer); ok && isScalar(value.Elem()) {
			return text.String()
		}
		return snapshot(value.Elem())
	case reflect.Struct:
		if pointer := reflect.New(value.Type()); isScalar(value) {
			pointer.Elem().Set(value)
			return snapshot(pointer)
		}
		fields := map[string]any{}
		addFields(fields, value)
		return fields
	case reflect.Map:
		entries := make(map[string]any, value.Len())
		for entry := value.MapRange(); entry.Next(); {
			entries[fmt.Sprint(entry.Key())] = snapshot(entry.Value())
		}
		return entries
	case reflect.Slice, reflect.Array:
		if value.Type() == reflect.TypeFor[[]byte]() {
			return string(value.Bytes())
		}
		items := make([]any, value.Len())
		for i := range items {
			items[i] = snapshot(value.Index(i))
		}
		return items
	case reflect.String:
		return value.String()
	case reflect.Bool:
		return value.Bool()
	}
	switch {
	case value.CanInt():
		return int(value.Int())
	case value.CanUint():
		return int(value.Uint())
	case value.CanFloat():
		return value.Float()
	}
	return nil
}

// isScalar tells whether a struct is written as text, as quantities and times are.
func isScalar(value reflect.Value) bool {
	if value.Kind() != reflect.Struct {
		return false
	}
	_, isText := reflect.New(value.Type()).Interface().(interface {
		fmt.Stringer
		UnmarshalJSON(data []byte) error
	})
	return isText
}

// addFields adds the exported fields of a struct, those of embedded structs as well as the structs themselves.
func addFields(fields map[string]any, value reflect.Value) {
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if field.Anonymous && value.Field(i).Kind() == reflect.Struct && !isScalar(value.Field(i)) {
			addFields(fields, value.Field(i))
		}
		fields[field.Name] = snapshot(value.Field(i))
	}
}
