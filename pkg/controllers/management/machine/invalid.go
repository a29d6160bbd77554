// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// invalid is an error in a Machine or in something that it refers to. Its message names object, field, value and remedy. The
// Machine waits until one of those objects changes.
type invalid struct{ message string }

// Error implements error.
func (e *invalid) Error() string { return e.message }

func invalidf(format string, arguments ...any) error {
	return &invalid{message: fmt.Sprintf(format, arguments...)}
}

// invalidBecause returns an *invalid with all faults, nil if there are none. The subject is the object to correct, for faults
// that do not name one.
func invalidBecause(subject string, faults ...error) error {
	var messages []string
	for _, fault := range faults {
		if fault != nil {
			messages = append(messages, withSubject(fault, subject))
		}
	}
	if len(messages) == 0 {
		return nil
	}
	return &invalid{message: strings.Join(messages, "; ")}
}

// whatIsInvalid returns the message of an invalid.
func whatIsInvalid(err error) (string, bool) {
	var wrong *invalid
	if errors.As(err, &wrong) {
		return wrong.message, true
	}
	return "", false
}

// withSubject names the object to correct, if the error does not name one itself.
func withSubject(err error, subject string) string {
	var wrong *properties.Error
	if errors.As(err, &wrong) && wrong.Source == "" && subject != "" {
		return subject + ": " + err.Error()
	}
	return err.Error()
}
