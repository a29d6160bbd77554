// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"reflect"
)

// index is text/template's function of that name, except that a key that is not in a map is an error, as it is for a
// field: property keys with a slash can be written in no other way. What may be missing is asked for with hasKey or
// get.
func index(item reflect.Value, keys ...reflect.Value) (reflect.Value, error) {
	for _, key := range keys {
		item, key = pointee(item), pointee(key)
		if !item.IsValid() || !key.IsValid() {
			return reflect.Value{}, fmt.Errorf("cannot index nothing, nor by nothing")
		}
		switch item.Kind() {
		case reflect.Map:
			if !key.Type().ConvertibleTo(item.Type().Key()) || key.Kind() != item.Type().Key().Kind() {
				return reflect.Value{}, fmt.Errorf("a key of %s cannot be a %s", item.Type(), key.Type())
			}
			value := item.MapIndex(key.Convert(item.Type().Key()))
			if !value.IsValid() {
				return reflect.Value{}, fmt.Errorf("map has no entry for key %q: use hasKey or get for what may be missing", key.String())
			}
			item = value
		case reflect.Slice, reflect.Array, reflect.String:
			if !key.CanInt() {
				return reflect.Value{}, fmt.Errorf("an index must be a number, not a %s", key.Type())
			}
			if key.Int() < 0 || key.Int() >= int64(item.Len()) {
				return reflect.Value{}, fmt.Errorf("index out of range: %d of %d", key.Int(), item.Len())
			}
			item = item.Index(int(key.Int()))
		default:
			return reflect.Value{}, fmt.Errorf("cannot index a %s", item.Type())
		}
	}
	return item, nil
}

// pointee returns what an interface or a pointer holds.
func pointee(value reflect.Value) reflect.Value {
	for value.IsValid() && (value.Kind() == reflect.Interface || value.Kind() == reflect.Pointer) {
		value = value.Elem()
	}
	return value
}
