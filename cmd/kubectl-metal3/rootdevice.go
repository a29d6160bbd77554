// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/utils/ptr"
)

// hint is a field of spec.rootDeviceHints: its column in a list of servers, and a pointer to its value.
type hint struct {
	column string
	value  any
}

// hintsOf returns all fields in the order of the API, including the fields that are not set.
func hintsOf(hints *bmov1alpha1.RootDeviceHints) []hint {
	fields := reflect.ValueOf(hints).Elem()
	all := make([]hint, fields.NumField())
	for i := range all {
		name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
		all[i] = hint{prefixHints + name, fields.Field(i).Addr().Interface()}
	}
	return all
}

func hintColumns() []string {
	var columns []string
	for _, hint := range hintsOf(&bmov1alpha1.RootDeviceHints{}) {
		columns = append(columns, hint.column)
	}
	return columns
}

// devicePattern is the pattern of Metal3's webhook for rootDeviceHints.deviceName.
var devicePattern = regexp.MustCompile(`^/dev/(disk/by-path/)?[^/]+$`)

// set parses the text of a cell. It returns an empty string, or what to write instead if the text is wrong.
func (h hint) set(text string) (instead string) {
	switch value := h.value.(type) {
	case *string:
		if h.column == prefixHints+"deviceName" && !devicePattern.MatchString(text) {
			return "a path in /dev/ or in /dev/disk/by-path/, as /dev/nvme0n1"
		}
		*value = text
	case *int:
		number, err := strconv.ParseUint(text, 10, 31)
		if err != nil || number == 0 {
			return "a whole number above 0"
		}
		*value = int(number)
	case **bool:
		if text != "true" && text != "false" {
			return trueOrFalse
		}
		*value = ptr.To(text == "true")
	}
	return ""
}

// trueOrFalse describes the allowed values of a boolean column.
const trueOrFalse = "true, false or nothing"

// String returns the text that set would parse; empty for a field that is not set.
func (h hint) String() string {
	switch value := h.value.(type) {
	case *string:
		return *value
	case *int:
		if *value != 0 {
			return strconv.Itoa(*value)
		}
	case **bool:
		if *value != nil {
			return strconv.FormatBool(**value)
		}
	}
	return ""
}
