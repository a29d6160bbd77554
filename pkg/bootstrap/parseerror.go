// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

var (
	lineNumber   = regexp.MustCompile(`line \d+`)
	unknownField = regexp.MustCompile(`(unknown|duplicate) field "[\w.\[\]]+"`)
	setAlready   = regexp.MustCompile(`key "\w+" already set in map`)
)

// position returns where a YAML error is. The error's own text can quote the document, and so a token.
func position(err error) string {
	if match := setAlready.FindString(err.Error()); match != "" {
		return ": " + match
	}
	if match := lineNumber.FindString(err.Error()); match != "" {
		return " at " + match
	}
	return ""
}

// fieldOf returns what is wrong with which field, without the value.
func fieldOf(err error) string {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Sprintf("field %q cannot hold a %s", mismatch.Field, mismatch.Value)
	}
	if match := unknownField.FindString(err.Error()); match != "" {
		return match
	}
	if match := setAlready.FindString(err.Error()); match != "" {
		return match
	}
	return "its fields do not have the expected types"
}
