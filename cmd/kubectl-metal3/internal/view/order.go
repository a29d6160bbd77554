// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"strings"
)

// CompareNames orders names as people count: rack-2 before rack-10. It compares digits as a number, and everything
// else by bytes.
func CompareNames(a, b string) int {
	if a == b {
		return 0
	}
	for i, j := 0, 0; ; {
		if i == len(a) || j == len(b) {
			return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), strings.Compare(a, b))
		}
		first, second := digits(a[i:]), digits(b[j:])
		if first == "" || second == "" {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		i, j = i+len(first), j+len(second)
		first, second = strings.TrimLeft(first, "0"), strings.TrimLeft(second, "0")
		if different := cmp.Or(cmp.Compare(len(first), len(second)), strings.Compare(first, second)); different != 0 {
			return different
		}
	}
}

// digits returns the digits at the start of a text.
func digits(text string) string {
	end := 0
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	return text[:end]
}
