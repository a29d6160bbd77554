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

// conflict returns a key of which neither a value nor its absence meets all requirements, and why; empty if there is none.
// It compares the requirements with each other only.
func conflict(requirements []labels.Requirement) (about, why string) {
	constraints := map[string]*constraint{}
	for n := range requirements {
		c := constraints[requirements[n].Key()]
		if c == nil {
			c = &constraint{}
			constraints[requirements[n].Key()] = c
		}
		if why := c.add(&requirements[n]); why != "" {
			return requirements[n].Key(), why
		}
	}
	for _, key := range sortedKeys(constraints) {
		if why := constraints[key].conflict(); why != "" {
			return key, why
		}
	}
	return "", ""
}

// constraint is what several requirements together demand of one label.
type constraint struct {
	// in are the values that are left, if limited.
	in              []string
	limited         bool
	notIn           []string
	present, absent bool
	above, below    *int64
}

func (c *constraint) add(requirement *labels.Requirement) string {
	values := requirement.Values().List()
	switch requirement.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		if c.limited {
			values = slices.DeleteFunc(values, func(value string) bool { _, kept := slices.BinarySearch(c.in, value); return !kept })
		}
		c.in, c.limited, c.present = values, true, true
	case selection.NotIn, selection.NotEquals:
		c.notIn = append(c.notIn, values...)
	case selection.Exists:
		c.present = true
	case selection.DoesNotExist:
		c.absent = true
	case selection.GreaterThan, selection.LessThan:
		number, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil {
			return "it is compared with " + strconv.Quote(shown(values[0])) + ", which is not a number"
		}
		c.present = true
		if requirement.Operator() == selection.GreaterThan && (c.above == nil || number > *c.above) {
			c.above = &number
		}
		if requirement.Operator() == selection.LessThan && (c.below == nil || number < *c.below) {
			c.below = &number
		}
	}
	return ""
}

func (c *constraint) conflict() string {
	switch {
	case c.present && c.absent:
		return "it must be there and must not be there"
	case c.limited && len(c.in) == 0:
		return "it must have different values at the same time"
	case c.above != nil && c.below != nil && *c.above >= *c.below-1:
		return fmt.Sprintf("it must be greater than %d and less than %d", *c.above, *c.below)
	}
	if !c.limited {
		return ""
	}
	for _, value := range c.in {
		if !slices.Contains(c.notIn, value) && c.within(value) {
			return ""
		}
	}
	return "every value that it may have (" + shown(strings.Join(c.in, ", ")) + ") is ruled out by another requirement"
}

// within tells whether a value is between the bounds, if there are any.
func (c *constraint) within(value string) bool {
	if c.above == nil && c.below == nil {
		return true
	}
	number, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (c.above == nil || number > *c.above) && (c.below == nil || number < *c.below)
}
