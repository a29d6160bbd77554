// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import "fmt"

// Error says what is wrong with a property, in one sentence for the person who wrote it.
type Error struct {
	// Property is the key.
	Property string
	// Value that is wrong, fit to be shown; empty if the property is missing.
	Value string
	// Source is the object that the value is written in, empty if unknown or if the property is missing.
	Source string
	// Problem completes "property KEY of SOURCE": "is not an http or https URL".
	Problem string
	// Remedy says what to do, as an imperative without a full stop.
	Remedy string
}

// Error implements error.
func (e *Error) Error() string {
	text := "property " + e.Property
	if e.Source != "" {
		text += " of " + e.Source
	}
	if e.Value != "" {
		text += fmt.Sprintf(" (%q)", e.Value)
	}
	return text + " " + e.Problem + ": " + e.Remedy
}

func (s Set) wrong(key, problem, remedy string) *Error {
	return &Error{Property: key, Value: shown(key, s.Get(key)), Source: s.Source(key), Problem: problem, Remedy: remedy}
}
