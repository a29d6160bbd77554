// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// invalid is what is wrong with a Machine or with something that it refers to, for whoever can mend it. It names
// object, field, value and remedy. Waiting does not help, but a change does.
type invalid struct{ message string }

// Error implements error.
func (e *invalid) Error() string { return e.message }

func invalidf(format string, arguments ...any) error {
	return &invalid{message: fmt.Sprintf(format, arguments...)}
}

// invalidBecause makes an invalid of the faults, nil if there are none. An error that says itself which object it is
// about stands for itself; others are about the subject.
func invalidBecause(subject string, faults ...error) error {
	var messages []string
	for _, fault := range faults {
		if fault != nil {
			messages = append(messages, blame(fault, subject))
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

// blame names the object to correct, if the error does not name one itself.
func blame(err error, subject string) string {
	var wrong *properties.Error
	if errors.As(err, &wrong) && wrong.Source == "" && subject != "" {
		return subject + ": " + err.Error()
	}
	return err.Error()
}
