// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions finds and sets the conditions of our objects and of Karpenter's, and cuts messages to the length
// that the API server accepts.
package conditions

import (
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxMessage limits the message of a condition, in bytes. The API server accepts 32768 characters, which is too
	// long to read.
	MaxMessage = 4096
	// MaxEventNote limits the note of an event, in bytes. The API server rejects longer notes.
	MaxEventNote = 1024
)

// Condition is a condition of our objects or of Karpenter's.
type Condition interface {
	metav1.Condition | status.Condition
}

// Find returns the condition of the type, the zero condition if there is none. Unlike the StatusConditions method of
// Karpenter's objects it never adds the conditions that Karpenter expects.
func Find[C Condition](conditions []C, conditionType string) metav1.Condition {
	for _, condition := range conditions {
		if found := metav1.Condition(condition); found.Type == conditionType {
			return found
		}
	}
	return metav1.Condition{}
}

// Began returns the condition of the type, and reports whether it is true now and was not before.
func Began[C Condition](before, now []C, conditionType string) (condition metav1.Condition, began bool) {
	condition = Find(now, conditionType)
	return condition, condition.Status == metav1.ConditionTrue && Find(before, conditionType).Status != metav1.ConditionTrue
}

// Set adds the condition or replaces the one of its type, and reports whether that changed anything. As with
// meta.SetStatusCondition, LastTransitionTime changes only when the status does: to the condition's own time if it has
// one, otherwise to the present.
func Set[C Condition](conditions *[]C, condition metav1.Condition) bool {
	for i := range *conditions {
		single := []metav1.Condition{metav1.Condition((*conditions)[i])}
		if single[0].Type == condition.Type {
			changed := meta.SetStatusCondition(&single, condition)
			(*conditions)[i] = C(single[0])
			return changed
		}
	}
	var single []metav1.Condition
	meta.SetStatusCondition(&single, condition)
	*conditions = append(*conditions, C(single[0]))
	return true
}

// List names the first of several things, and counts the others: "a, b and 3 more".
func List(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

const ellipsis = " ..."

// Truncate cuts the text to at most limit bytes, never within a character, and marks the cut.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
