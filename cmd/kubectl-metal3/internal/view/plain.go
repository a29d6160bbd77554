// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// maxShown is how many characters of a text are shown in a line.
const maxShown = 2000

// Plain makes a text from others safe to print on one line. It removes sequences that a terminal obeys (they may move
// the cursor or change the clipboard) and invisible characters (they may change the direction).
func Plain(text string) string {
	if strings.IndexFunc(text, unseen) < 0 {
		return text
	}
	return strings.Join(strings.Fields(strings.Map(seen, ansi.Strip(text))), " ")
}

// Shown is Plain, cut to maxShown characters.
func Shown(text string) string {
	text = Plain(text)
	if characters := []rune(text); len(characters) > maxShown {
		return string(characters[:maxShown-1]) + "…"
	}
	return text
}

// PlainLines is Plain for a text of several lines. It keeps tabs.
func PlainLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return seen(r)
	}, text)
}

// quoted quotes a text from others, so that readers do not take it for our words.
func quoted(text string) string { return `"` + strings.ReplaceAll(Plain(text), `"`, "'") + `"` }

// unseen reports whether a rune is a control or format character (such as a direction), a line separator, or not
// text.
func unseen(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar
}

func seen(r rune) rune {
	if unseen(r) {
		return ' '
	}
	return r
}

// PlainAll makes all strings in an object Plain. The object is a pointer, a slice or a map.
func PlainAll(object any) { plainValue(reflect.ValueOf(object)) }

// plainValue reports whether it changed the value. It writes only what it changes: others may read the value.
func plainValue(value reflect.Value) (changed bool) {
	switch value.Kind() {
	case reflect.String:
		if text := Plain(value.String()); value.CanSet() && text != value.String() {
			value.SetString(text)
			return true
		}
	case reflect.Pointer:
		return !value.IsNil() && plainValue(value.Elem())
	case reflect.Interface:
		item, changed := plainCopy(value.Elem())
		if changed && value.CanSet() {
			value.Set(item)
		}
		return changed
	case reflect.Struct:
		for description, field := range value.Fields() {
			if description.IsExported() {
				changed = plainValue(field) || changed
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range value.Len() {
			changed = plainValue(value.Index(i)) || changed
		}
	case reflect.Map:
		for iterator := value.MapRange(); iterator.Next(); {
			key, otherKey := plainCopy(iterator.Key())
			item, otherItem := plainCopy(iterator.Value())
			if otherKey {
				value.SetMapIndex(iterator.Key(), reflect.Value{})
			}
			if otherKey || otherItem {
				value.SetMapIndex(key, item)
				changed = true
			}
		}
	}
	return changed
}

// plainCopy returns a copy of an unaddressable value after plainValue.
func plainCopy(value reflect.Value) (reflect.Value, bool) {
	if !value.IsValid() {
		return value, false
	}
	item := reflect.New(value.Type()).Elem()
	item.Set(value)
	return item, plainValue(item)
}
