// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

const (
	// maxPattern limits a format of printf, a regular expression and a version, in bytes; maxIndent limits indent.
	maxPattern = 1024
	maxIndent  = 100
	// maxNumber limits the numbers of until, untilStep and seq, which make lists of them.
	maxNumber = 1 << 20
	// maxFloats limits the arguments of mulf and divf: each makes their exact result longer.
	maxFloats = 1000
	// maxWork limits the comparisons of one call, of bytes with instructions or of items with items, to about a second.
	maxWork = 1 << 27
)

var library = sprig.TxtFuncMap()

// allowed are the functions of sprig that templates have. Their results depend on the arguments alone, so a document
// has the same bytes when it is made again.
var allowed = strings.Fields(`
	abbrev abbrevboth add add1 add1f addf adler32sum all any append atoi b32dec b32enc b64dec b64enc base biggest camelcase cat ceil
	chunk clean coalesce compact concat contains decryptAES deepCopy deepEqual default dict dig dir div divf duration durationRound
	empty ext fail first float64 floor fromJson get has hasKey hasPrefix hasSuffix hello indent initial initials int int64 isAbs join
	kebabcase keys kindIs kindOf last list lower max maxf merge mergeOverwrite min minf mod mul mulf mustAppend mustChunk mustCompact
	mustDeepCopy mustFirst mustFromJson mustHas mustInitial mustLast mustMerge mustMergeOverwrite mustPrepend mustPush mustRegexFind
	mustRegexFindAll mustRegexMatch mustRegexReplaceAll mustRegexReplaceAllLiteral mustRegexSplit mustRest mustReverse mustSlice
	mustToJson mustToPrettyJson mustToRawJson mustUniq mustWithout nindent nospace omit osBase osClean osDir osExt osIsAbs pick pluck
	plural prepend push quote regexFind regexFindAll regexMatch regexQuoteMeta regexReplaceAll regexReplaceAllLiteral regexSplit repeat
	replace rest reverse round semverCompare seq set sha1sum sha256sum sha512sum slice snakecase sortAlpha split splitList splitn squote
	sub subf substr swapcase ternary title toDecimal toJson toPrettyJson toRawJson toString toStrings trim trimAll trimPrefix trimSuffix
	trimall trunc tuple typeIs typeIsLike typeOf uniq unset until untilStep untitle upper urlJoin urlParse values without wrap wrapWith`)

// refused are the other functions of sprig, by what is wrong with each.
var refused = map[string][]string{
	"differs at each call": strings.Fields(`bcrypt encryptAES htpasswd randAlpha randAlphaNum randAscii randBytes randInt randNumeric
		shuffle uuidv4`),
	"depends on the clock or the time zone of the manager": strings.Fields(`ago date dateInZone dateModify date_in_zone date_modify htmlDate
		htmlDateInZone mustDateModify mustToDate must_date_modify now toDate unixEpoch`),
	"reads the environment or the network of the manager": strings.Fields(`env expandenv getHostByName`),
	"makes keys, passwords or certificates": strings.Fields(`buildCustomCert derivePassword genCA genCAWithKey genPrivateKey
		genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey`),
	"returns an object with methods: use semverCompare": {"semver"},
}

// builtins replace functions of text/template that do not limit what they return.
var builtins = template.FuncMap{
	"html": template.HTMLEscapeString, "index": index, "js": template.JSEscapeString, "print": fmt.Sprint, "printf": fmt.Sprintf,
	"println": fmt.Sprintln, "urlquery": func(s string) string { return template.URLQueryEscaper(s) },
}

// replaced are functions of sprig that are replaced: errors are not text, keys have an order, and entries are maps.
var replaced = template.FuncMap{
	"b32dec": decoder(base32.StdEncoding.DecodeString), "b64dec": decoder(base64.StdEncoding.DecodeString),
	"dig": dig, "keys": sortedKeys, "values": sortedValues, "mustSlice": slice,
	"mustMerge": merger("mustMerge"), "mustMergeOverwrite": merger("mustMergeOverwrite"),
}

// selecting are functions that return one of their arguments, or a part of one, of any size. They make and read nothing
// else, so they are not measured.
var selecting = strings.Fields("coalesce default dig first get hasKey index last ternary")

// functions returns the functions that templates can call.
func (l *limits) functions() template.FuncMap {
	functions := maps.Clone(builtins)
	for _, name := range allowed {
		functions[name] = library[name]
	}
	maps.Copy(functions, replaced)
	for _, name := range allowed {
		if plain := plainName(name); plain != name { // an error where sprig returns nothing
			functions[plain] = functions[name]
		}
	}
	bounds := l.bounds()
	for name, function := range functions {
		plain := plainName(name)
		functions[name] = l.limited(function, bounds[plain], slices.Contains(selecting, plain))
	}
	functions[stepName], functions[callName], functions[printName] = l.step, l.call, l.printed
	return functions
}

// plainName returns the name without must: first for mustFirst.
func plainName(name string) string {
	if plain, found := strings.CutPrefix(name, "must"); found {
		return strings.ToLower(plain[:1]) + plain[1:]
	}
	return name
}

// bounds returns checks of the arguments before a call, for functions that can return far more than they are given, or
// take far longer than reading it.
func (l *limits) bounds() template.FuncMap {
	return template.FuncMap{
		"divf": checkFloats, "mulf": checkFloats,
		"indent": checkIndent, "nindent": checkIndent,
		"join": func(separator string, list any) error {
			if value := reflect.ValueOf(list); value.Kind() == reflect.Slice {
				return times(value.Len(), len(separator))
			}
			return nil
		},
		"printf":          checkFormat,
		"regexFind":       checkPattern,
		"regexFindAll":    func(pattern, s string, _ int) error { return l.checkMatches(pattern, s, "") },
		"regexMatch":      checkPattern,
		"regexReplaceAll": l.checkMatches, "regexReplaceAllLiteral": l.checkMatches,
		"regexSplit": func(pattern, s string, _ int) error { return l.checkMatches(pattern, s, "") },
		"repeat":     func(count int, s string) error { return times(count, len(s)) },
		"replace":    func(old, replacement, s string) error { return times(strings.Count(s, old), len(replacement)) },
		"semverCompare": func(constraint, version string) error {
			return atMost(maxPattern, "bytes", len(constraint)+len(version))
		},
		"seq": checkNumbers, "until": func(count int) error { return checkNumbers(count) },
		"untilStep": func(start, stop, step int) error { return checkNumbers(start, stop, step) },
		"uniq":      func(list any) error { return checkItems(list, reflect.ValueOf(list).Len()) },
		"without":   func(list any, omit ...any) error { return checkItems(list, len(omit)) },
		"wrapWith": func(columns int, separator, s string) error {
			return times(strings.Count(s, " ")+len(s)/max(columns, 1)+1, len(separator))
		},
	}
}

// times checks the total of count values of size bytes.
func times(count, size int) error {
	if count > 0 && size > maxValue/count {
		return errValueTooLarge
	}
	return nil
}

func atMost(limit int, what string, count int) error {
	if count > limit {
		return fmt.Errorf("it takes at most %d %s, not %d", limit, what, count)
	}
	return nil
}

func checkFloats(_ any, values ...any) error { return atMost(maxFloats, "numbers", len(values)) }

func checkNumbers(numbers ...int) error {
	for _, n := range numbers {
		if n < -maxNumber || n > maxNumber {
			return fmt.Errorf("cannot count with %d: write -%d to %d", n, maxNumber, maxNumber)
		}
	}
	return nil
}

func checkIndent(columns int, s string) error {
	if columns < 0 || columns > maxIndent {
		return fmt.Errorf("cannot indent by %d: write 0 to %d", columns, maxIndent)
	}
	return times(strings.Count(s, "\n")+1, columns)
}

// checkItems checks how long it takes to compare each item of a list with that many others.
func checkItems(list any, others int) error {
	size := 0
	if err := measure(&size, reflect.ValueOf(list), 1); err != nil {
		return err
	}
	if others > 0 && size/itemSize > maxWork/others {
		return errors.New("the lists are too long to compare each item with each other")
	}
	return nil
}

// largeVerb finds a width above 999, a width among the values, and a value that is printed more than once. Without it,
// a short format with large widths could make gigabytes before the result is measured.
var largeVerb = regexp.MustCompile(`%[^%a-zA-Z]*(\d{4}|[\[*])`)

// checkFormat refuses maps and lists, because a width applies to each item.
func checkFormat(format string, values ...any) error {
	if len(format) > maxPattern || largeVerb.MatchString(format) {
		return fmt.Errorf("a format has at most %d bytes, no width above 999, and neither [ nor * in a verb: print other text beside it",
			maxPattern)
	}
	for _, value := range values {
		if kind := reflect.ValueOf(value).Kind(); kind == reflect.Map || kind == reflect.Slice {
			return errors.New("printf takes text and numbers: use print or toJson for a list or a map")
		}
	}
	return nil
}

// checkPattern limits the time of a search: each byte is compared with each instruction of the compiled expression.
func checkPattern(pattern, s string) error {
	if err := atMost(maxPattern, "bytes of an expression", len(pattern)); err != nil {
		return err
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return err
	}
	if len(s) > maxWork/len(program.Inst) {
		return fmt.Errorf("the expression is too large for a text of %d bytes: repeat less in it", len(s))
	}
	return nil
}

// checkMatches limits a search for all matches, which can read the rest of the text for each, and the replacements.
func (l *limits) checkMatches(pattern, s, replacement string) error {
	if err := checkPattern(pattern, s); err != nil {
		return err
	}
	size, groups := 0, strings.Count(replacement, "$")
	regexp.MustCompile(pattern).ReplaceAllStringFunc(s, func(match string) string {
		if _, err := l.step(); err != nil {
			panic(err) // nothing else ends the search
		}
		size += len(replacement) + groups*len(match)
		return ""
	})
	return times(1, size)
}

func decoder(decode func(string) ([]byte, error)) func(string) (string, error) {
	return func(s string) (string, error) {
		decoded, err := decode(s)
		return string(decoded), err
	}
}

// sortedKeys returns the keys of each map, sorted.
func sortedKeys(all ...map[string]any) []string {
	names := []string{}
	for _, m := range all {
		names = append(names, slices.Sorted(maps.Keys(m))...)
	}
	return names
}

// sortedValues returns the values in the order of their keys.
func sortedValues(m map[string]any) []any {
	values := []any{}
	for _, key := range sortedKeys(m) {
		values = append(values, m[key])
	}
	return values
}

// merger merges copies: a map that is merged into a part of itself would have no end.
func merger(name string) any {
	merge := library[name].(func(map[string]any, ...map[string]any) (any, error))
	deepCopy := library["mustDeepCopy"].(func(any) (any, error))
	return func(destination map[string]any, sources ...map[string]any) (any, error) {
		copies, err := deepCopy(sources)
		if err != nil {
			return nil, err
		}
		return merge(destination, copies.([]map[string]any)...)
	}
}

// dig takes keys, a default and a map, and returns the value at the keys in nested maps.
func dig(arguments ...any) (any, error) {
	last := len(arguments) - 1
	if last < 2 {
		return nil, errors.New("dig takes keys, a default and a map")
	}
	item := arguments[last]
	for _, key := range arguments[:last-1] {
		value := reflect.ValueOf(item).MapIndex(reflect.ValueOf(key))
		if !value.IsValid() {
			return arguments[last-1], nil
		}
		item = value.Interface()
	}
	return item, nil
}

// slice returns a part of a list, like sprig's slice, or of a text, like text/template's slice.
func slice(item any, indices ...any) (any, error) {
	value, toInt := reflect.ValueOf(item), library["int"].(func(any) int)
	start, end := 0, value.Len()
	if len(indices) > 0 {
		start = toInt(indices[0])
	}
	if len(indices) > 1 {
		end = toInt(indices[1])
	}
	switch {
	case value.Kind() == reflect.Slice && value.Len() == 0:
		return item, nil
	case start < 0 || start > end || end > value.Len():
		return nil, fmt.Errorf("index out of range: %d to %d of %d", start, end, value.Len())
	}
	return value.Slice(start, end).Interface(), nil
}

// index is text/template's index, except that a missing key is an error, like a missing field, in all maps but entries.
func index(item any, keys ...any) (any, error) {
	for _, key := range keys {
		value := reflect.ValueOf(item)
		switch value.Kind() {
		case reflect.Map:
			name, ok := key.(string)
			if !ok {
				return nil, fmt.Errorf("a key must be a text, not %T", key)
			}
			entry := value.MapIndex(reflect.ValueOf(name))
			if _, optional := item.(entries); optional && !entry.IsValid() {
				item = ""
				continue
			}
			if !entry.IsValid() {
				return nil, fmt.Errorf("map has no entry for key %q: use hasKey or get for what may be missing", name)
			}
			item = entry.Interface()
		case reflect.Slice, reflect.String:
			number := reflect.ValueOf(key)
			if !number.CanInt() {
				return nil, fmt.Errorf("an index must be a number, not %T", key)
			}
			n := int(number.Int())
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
