// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell writes the commands that messages tell a person to run, in a shell with the rights of an operator. So a
// text of a tenant, or of an API server that may lie, can only become one word of the command.
package shell

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/samber/lo"
)

// constant is a text of this program. Only a constant converts to it implicitly; all other text is foreign.
type constant string

// Command returns a command for a shell. Each %s of the format stands for one word; the remaining words follow it. A
// word stays one word, and no option: a question mark replaces its leading dash. No object has a name like that.
func Command(format constant, words ...string) string {
	quoted := lo.Map(words, func(word string, _ int) any { return quote(word) })
	named := min(strings.Count(string(format), "%s"), len(quoted))
	command := fmt.Sprintf(string(format), quoted[:named]...)
	for _, word := range quoted[named:] {
		command += " " + word.(string)
	}
	return command
}

// plain matches a word that no shell interprets.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote also replaces characters that a terminal obeys, such as the end of a pasted text.
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
