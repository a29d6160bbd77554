// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/samber/lo"
)

// maxFormat bounds a format of printf, in bytes, and maxIndent the columns of indent. A short format with large widths
// would otherwise make gigabytes before the result could be measured.
const (
	maxFormat = 1024
	maxIndent = 100
)

// largeVerb finds a width above 999, one among the values, and a value that is printed more than once.
var largeVerb = regexp.MustCompile(`%[^%a-zA-Z]*(\d{4}|[\[*])`)

// functions returns what templates can call. Each is a pure function of text, numbers and flat lists: documents must come
// out the same when they are made again after a crash, and values that hold each other could grow without end.
func (l *limits) functions() template.FuncMap {
	functions := template.FuncMap{
		"add": func(a, b int) int { return a + b }, "sub": func(a, b int) int { return a - b }, "mul": func(a, b int) int { return a * b },
		"div": divide(func(a, b int) int { return a / b }), "mod": divide(func(a, b int) int { return a % b }),
		"b64dec": decodeBase64, "b64enc": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"contains":  func(part, s string) bool { return strings.Contains(s, part) },
		"default":   func(fallback, value any) any { return lo.Ternary(!isEmpty(value), value, fallback) },
		"empty":     isEmpty,
		"fail":      func(message string) (string, error) { return "", errors.New(message) },
		"get":       get,
		"hasKey":    func(m map[string]any, key string) bool { _, found := m[key]; return found },
		"hasPrefix": func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
		"hasSuffix": func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
		"indent":    indent,
		"index":     index,
		"int":       func(value any) (int, error) { return strconv.Atoi(fmt.Sprint(value)) },
		"join":      join,
		"list":      list,
		"lower":     strings.ToLower,
		"nindent":   func(columns int, s string) (string, error) { s, err := indent(columns, s); return "\n" + s, err },
		"print":     func(values ...any) (string, error) { return printed(fmt.Sprint, values) },
		"printf":    printf,
		"println":   func(values ...any) (string, error) { return printed(fmt.Sprintln, values) },
		"quote":     func(value any) (string, error) { return printf("%q", fmt.Sprint(value)) },
		"replace":   replace,
		"sha256sum": func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
		"splitList": func(separator, s string) []any { return lo.ToAnySlice(strings.Split(s, separator)) },
		"squote":    func(value any) string { return "'" + fmt.Sprint(value) + "'" },
		"ternary":   func(yes, no any, condition bool) any { return lo.Ternary(condition, yes, no) },
		"toJson":    toJSON,
		"trim":      strings.TrimSpace, "trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"trunc":      func(length int, s string) string { return s[:min(max(length, 0), len(s))] },
		"upper":      strings.ToUpper,
		"html":       template.HTMLEscapeString, "js": template.JSEscapeString,
		"urlquery": func(s string) string { return template.URLQueryEscaper(s) },
	}
	limited := template.FuncMap{stepName: l.step, callName: l.call}
	for name, function := range functions {
		limited[name] = l.limited(reflect.ValueOf(function))
	}
	return limited
}

// builtins are functions of text/template that are replaced, because they do not limit what they return.
var builtins = []string{"html", "index", "js", "print", "printf", "println", "urlquery"}

// functionNames is for the message about a function that does not exist.
func functionNames() string {
	functions := (&limits{}).functions()
	for _, name := range append(builtins, stepName, callName) {
		delete(functions, name)
	}
	return strings.Join(slices.Sorted(maps.Keys(functions)), ", ")
}

func divide(operation func(a, b int) int) func(a, b int) (int, error) {
	return func(a, b int) (int, error) {
		if b == 0 {
			return 0, errors.New("division by zero")
		}
		return operation(a, b), nil
	}
}

func decodeBase64(s string) (string, error) {
	decoded, err := base64.StdEncoding.DecodeString(s)
	return string(decoded), err
}

func isEmpty(value any) bool {
	truth, ok := template.IsTrue(value)
	return !ok || !truth
}

// get returns the value of a key that may be missing.
func get(m map[string]any, key string) any {
	if value, found := m[key]; found {
		return value
	}
	return ""
}

// index is text/template's function of that name, except that a missing key is an error, as it is for a field, of all but entries.
func index(item any, keys ...any) (any, error) {
	for _, key := range keys {
		value := reflect.ValueOf(item)
		switch value.Kind() {
		case reflect.Map:
			name, ok := key.(string)
			entry := reflect.Value{}
			if ok {
				entry = value.MapIndex(reflect.ValueOf(name))
			}
			if _, optional := item.(entries); optional && ok && !entry.IsValid() {
				item = ""
				continue
			}
			if !entry.IsValid() {
				return nil, fmt.Errorf("map has no entry for key %q: use hasKey or get for what may be missing", fmt.Sprint(key))
			}
			item = entry.Interface()
		case reflect.Slice, reflect.String:
			n, ok := key.(int)
			if !ok {
				return nil, fmt.Errorf("an index must be a number, not %T", key)
			}
			if n < 0 || n >= value.Len() {
				return nil, fmt.Errorf("index out of range: %d of %d", n, value.Len())
			}
			item = value.Index(n).Interface()
		default:
			return nil, fmt.Errorf("cannot index %T", item)
		}
	}
	return item, nil
}

func indent(columns int, s string) (string, error) {
	if columns < 0 || columns > maxIndent {
		return "", fmt.Errorf("cannot indent by %d: write 0 to %d", columns, maxIndent)
	}
	if len(s)+columns*(strings.Count(s, "\n")+1) > MaxDocumentBytes {
		return "", errValueTooLarge
	}
	pad := strings.Repeat(" ", columns)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
}

func replace(old, replacement, s string) (string, error) {
	if n := strings.Count(s, old); n > 0 && len(replacement) > (MaxDocumentBytes-len(s))/n {
		return "", errValueTooLarge
	}
	return strings.ReplaceAll(s, old, replacement), nil
}

// list makes a flat list: lists of lists of lists would grow to any size in a loop.
func list(values ...any) ([]any, error) {
	for _, value := range values {
		if kind := reflect.ValueOf(value).Kind(); kind == reflect.Map || kind == reflect.Slice {
			return nil, errors.New("list takes text and numbers, no lists or maps")
		}
	}
	return values, nil
}

func join(separator string, values []any) (string, error) {
	parts, size := make([]string, len(values)), 0
	for i, value := range values {
		parts[i] = fmt.Sprint(value)
		size += len(parts[i]) + len(separator)
	}
	if size > MaxDocumentBytes+len(separator) {
		return "", errValueTooLarge
	}
	return strings.Join(parts, separator), nil
}

// printed prints text and numbers. Maps and lists, which are not measured before they are printed, go through toJson, which
// takes one at a time.
func printed(print func(...any) string, values []any) (string, error) {
	size := 0
	for _, value := range values {
		switch reflect.ValueOf(value).Kind() {
		case reflect.Map, reflect.Slice:
			return "", errors.New("print and printf take text and numbers: use toJson for a list or a map")
		case reflect.String:
			size += len(value.(string))
		}
	}
	if size > MaxDocumentBytes {
		return "", errValueTooLarge
	}
	return print(values...), nil
}

func printf(format string, values ...any) (string, error) {
	if len(format) > maxFormat || largeVerb.MatchString(format) {
		return "", fmt.Errorf("a format has at most %d bytes, no width above 999, and neither [ nor * in a verb: print other text beside it",
			maxFormat)
	}
	return printed(func(values ...any) string { return fmt.Sprintf(format, values...) }, values)
}

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
