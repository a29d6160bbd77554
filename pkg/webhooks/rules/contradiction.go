// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// contradiction returns a key of which no value, nor its absence, meets all requirements, and why; empty if there is
// none. It looks at what the requirements say of each other and at nothing else.
func contradiction(requirements []labels.Requirement) (about, why string) {
	wanted := map[string]*wish{}
	for n := range requirements {
		w := wanted[requirements[n].Key()]
		if w == nil {
			w = &wish{}
			wanted[requirements[n].Key()] = w
		}
		if problem := w.add(&requirements[n]); problem != "" {
			return requirements[n].Key(), problem
		}
	}
	for _, key := range sortedKeys(wanted) {
		if problem := wanted[key].conflict(); problem != "" {
			return key, problem
		}
	}
	return "", ""
}

// wish is what several requirements want of one label.
type wish struct {
	// in are the values that are left; nil if any will do.
	in []string
	// anyOf remembers that in has been narrowed down to.
	narrowed        bool
	notIn           map[string]struct{}
	present, absent bool
	above, below    *int64
}

func (w *wish) add(requirement *labels.Requirement) string {
	values := requirement.Values().List()
	switch requirement.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		if w.narrowed {
			values = slices.DeleteFunc(values, func(value string) bool { _, kept := slices.BinarySearch(w.in, value); return !kept })
		}
		w.in, w.narrowed, w.present = values, true, true
	case selection.NotIn, selection.NotEquals:
		if w.notIn == nil {
			w.notIn = map[string]struct{}{}
		}
		for _, value := range values {
			w.notIn[value] = struct{}{}
		}
	case selection.Exists:
		w.present = true
	case selection.DoesNotExist:
		w.absent = true
	case selection.GreaterThan, selection.LessThan:
		number, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil {
			return "it is compared with " + strconv.Quote(shown(values[0])) + ", which is not a number"
		}
		w.present = true
		if requirement.Operator() == selection.GreaterThan && (w.above == nil || number > *w.above) {
			w.above = &number
		}
		if requirement.Operator() == selection.LessThan && (w.below == nil || number < *w.below) {
			w.below = &number
		}
	}
	return ""
}

func (w *wish) conflict() string {
	switch {
	case w.present && w.absent:
		return "it must be there and must not be there"
	case w.narrowed && len(w.in) == 0:
		return "it must have different values at the same time"
	case w.above != nil && w.below != nil && *w.above >= *w.below-1:
		return fmt.Sprintf("it must be greater than %d and less than %d", *w.above, *w.below)
	}
	if !w.narrowed {
		return ""
	}
	for _, value := range w.in {
		if _, not := w.notIn[value]; !not && w.within(value) {
			return ""
		}
	}
	return "every value that it may have (" + shown(strings.Join(w.in, ", ")) + ") is ruled out by another requirement"
}

// within tells whether a value is between the bounds, if there are any.
func (w *wish) within(value string) bool {
	if w.above == nil && w.below == nil {
		return true
	}
	number, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (w.above == nil || number > *w.above) && (w.below == nil || number < *w.below)
}
