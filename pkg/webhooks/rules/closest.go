// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"maps"
	"slices"
)

func sortedKeys[M ~map[K]V, K cmp.Ordered, V any](m M) []K { return slices.Sorted(maps.Keys(m)) }

// maxCompared is how much of a word is compared, in bytes.
const maxCompared = 64

// closest returns the candidate that a word is most likely a misspelling of, empty if none is close.
func closest(word string, candidates []string) string {
	word = word[:min(len(word), maxCompared)]
	best, distance := "", max(2, len(word)/3)+1
	for _, candidate := range candidates {
		short := candidate[:min(len(candidate), maxCompared)]
		if gap := len(short) - len(word); gap >= distance || -gap >= distance {
			continue
		}
		if d := levenshtein(word, short); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}

// levenshtein is how many bytes must be inserted, deleted or replaced to make b of a.
func levenshtein(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j+1]+1, row[j]+1, cost)
		}
	}
	return row[len(b)]
}
