// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// guard looks at the arguments of a function before it is called, and refuses those of which it would make far more
// than goes in, or on which it would work far longer. What is not as its function wants it is left to the function.
type guard func(b *budget, arguments []reflect.Value) error

const (
	// maxItemsOfText bounds into how many pieces a text is taken apart: each takes many times the memory of its text.
	maxItemsOfText = maxValue / itemSize
	// maxPattern bounds a regular expression, in bytes.
	maxPattern = 1000
)

var (
	errPattern = fmt.Errorf("a regular expression has at most %d bytes here: match less at a time", maxPattern)
	errStar    = errors.New("a width that is among the values (*) is not offered here: write the number into the format")
)

// guards of functions of sprig and text/template, by their names.
var guards = map[string]guard{
	"replace":   guardReplace,
	"join":      guardJoin,
	"wrapWith":  guardWrapWith,
	"printf":    guardPrintf,
	"split":     guardSplit,
	"splitList": guardSplit,
	"splitn": func(b *budget, arguments []reflect.Value) error {
		return guardSplit(b, []reflect.Value{arguments[0], arguments[2]})
	},
	"fromJson":     guardFromJSON,
	"mustFromJson": guardFromJSON,
	"uniq":         guardPairs,
	"mustUniq":     guardPairs,
	"trimall":      guardCutset,
	"trimAll":      guardCutset,

	"regexMatch": guardRegex, "mustRegexMatch": guardRegex, "regexFind": guardRegex, "mustRegexFind": guardRegex,
	"regexFindAll": guardRegex, "mustRegexFindAll": guardRegex, "regexSplit": guardRegex, "mustRegexSplit": guardRegex,
	"regexReplaceAll": guardRegexReplace, "mustRegexReplaceAll": guardRegexReplace,
	"regexReplaceAllLiteral": guardRegexReplace, "mustRegexReplaceAllLiteral": guardRegexReplace,
}

// fits says whether so many copies of a size, and what is there already, can be part of a document.
func fits(there, copies, size int) error {
	if size > 0 && copies > (maxValue-there)/size {
		return errTooMany
	}
	return nil
}

// guardReplace: replace OLD NEW TEXT.
func guardReplace(_ *budget, arguments []reflect.Value) error {
	text := arguments[2].String()
	return fits(len(text), strings.Count(text, arguments[0].String()), arguments[1].Len())
}

// guardJoin: join SEPARATOR LIST.
func guardJoin(_ *budget, arguments []reflect.Value) error {
	list := arguments[1]
	if list.Kind() == reflect.Interface {
		list = list.Elem()
	}
	if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
		return nil
	}
	return fits(0, list.Len(), arguments[0].Len())
}

// guardWrapWith: wrapWith WIDTH SEPARATOR TEXT.
func guardWrapWith(_ *budget, arguments []reflect.Value) error {
	text, width := arguments[2].Len(), max(1, int(min(arguments[0].Int(), maxValue)))
	return fits(text, text/width+1, arguments[1].Len())
}

// guardSplit: split SEPARATOR TEXT.
func guardSplit(_ *budget, arguments []reflect.Value) error {
	if strings.Count(arguments[1].String(), arguments[0].String()) > maxItemsOfText {
		return errTooMany
	}
	return nil
}

func guardFromJSON(_ *budget, arguments []reflect.Value) error {
	text, pieces := arguments[0].String(), 0
	for _, mark := range []string{",", "[", "{"} {
		pieces += strings.Count(text, mark)
	}
	if pieces > maxItemsOfText {
		return errTooMany
	}
	return nil
}

// guardPairs is for functions that compare each item of a list with each other.
func guardPairs(b *budget, arguments []reflect.Value) error {
	list := arguments[0]
	if list.Kind() == reflect.Interface {
		list = list.Elem()
	}
	if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
		return nil
	}
	return b.spend(list.Len() * list.Len() * itemSize)
}

// guardCutset: trimAll CUTSET TEXT, which looks for each character of the one in the other.
func guardCutset(b *budget, arguments []reflect.Value) error {
	return b.spend(arguments[0].Len() * arguments[1].Len())
}

var (
	// verbs are what printf replaces, as far as their last letter, and numbers their widths and precisions.
	verbs   = regexp.MustCompile(`%[-+# 0-9.*\[\]]*`)
	numbers = regexp.MustCompile(`[0-9]+`)
)

// guardPrintf: printf FORMAT VALUES. A width makes text of nothing, and [1] prints a value again and again.
func guardPrintf(_ *budget, arguments []reflect.Value) error {
	format, size := arguments[0].String(), arguments[0].Len()
	found := verbs.FindAllString(format, -1)
	for _, verb := range found {
		if strings.Contains(verb, "*") {
			return errStar
		}
		for _, number := range numbers.FindAllString(verb, -1) {
			width, err := strconv.Atoi(number)
			if err != nil || width > maxValue-size {
				return errTooMany
			}
			size += width
		}
	}
	if !strings.Contains(format, "[") {
		return nil
	}
	values := 0
	if err := measure(arguments[1], &values, 0); err != nil {
		return err
	}
	return fits(size, len(found), values)
}

// guardRegex: regexXXX PATTERN TEXT ... A match takes as many steps as the program of the pattern has instructions, for
// every character of the text.
func guardRegex(b *budget, arguments []reflect.Value) error {
	pattern := arguments[0].String()
	if len(pattern) > maxPattern {
		return errPattern
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil // the function says so
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil
	}
	return b.spend(len(program.Inst) * (arguments[1].Len() + 1))
}

// guardRegexReplace: regexReplaceAll PATTERN TEXT REPLACEMENT.
func guardRegexReplace(b *budget, arguments []reflect.Value) error {
	if err := guardRegex(b, arguments); err != nil {
		return err
	}
	pattern, err := regexp.Compile(arguments[0].String())
	if err != nil {
		return nil
	}
	text, replacement := arguments[1].String(), arguments[2].String()
	size, references := len(text), strings.Count(replacement, "$")
	for _, match := range pattern.FindAllStringIndex(text, -1) {
		if size += len(replacement) + references*(match[1]-match[0]); size > maxValue {
			return errTooMany
		}
	}
	return nil
}
