// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell writes the commands that messages tell a person to run. A person pastes them into a shell with the rights of an operator,
// so no text of a tenant, or of an API server that may lie, becomes a part of the command beside the word that it stands for.
package shell

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/samber/lo"
)

// constant is a text of this program: only a constant converts to it by itself. All other text is foreign.
type constant string

// Command returns a command for a shell. Each %s of the format stands for one of the words, and the words that are left follow it. A word
// stays one word, and no option: what could be one begins with a question mark instead, and no object has such a name.
func Command(format constant, words ...string) string {
	quoted := lo.Map(words, func(word string, _ int) any { return quote(word) })
	named := min(strings.Count(string(format), "%s"), len(quoted))
	command := fmt.Sprintf(string(format), quoted[:named]...)
	for _, word := range quoted[named:] {
		command += " " + word.(string)
	}
	return command
}

// plain is a word that no shell looks into.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote also drops what a terminal obeys, such as the end of a pasted text.
func quote(word string) string {
	word = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, word)
	if strings.HasPrefix(word, "-") {
		word = "?" + word[1:]
	}
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
