// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/mitchellh/copystructure"
)

// withheld are sprig's functions that are not offered, beyond those that sprig itself counts as not repeatable, and
// why. A document must come out the same when it is made again after a crash, and on any machine.
var withheld = map[string]string{
	"ago": reasonClock, "now": reasonClock, "date": reasonClock, "dateInZone": reasonClock, "date_in_zone": reasonClock,
	"dateModify": reasonClock, "date_modify": reasonClock, "mustDateModify": reasonClock, "must_date_modify": reasonClock,
	"htmlDate": reasonClock, "htmlDateInZone": reasonClock, "toDate": reasonClock, "mustToDate": reasonClock, "unixEpoch": reasonClock,
	"env": reasonMachine, "expandenv": reasonMachine, "getHostByName": reasonMachine,
	"osBase": reasonMachine, "osDir": reasonMachine, "osExt": reasonMachine, "osClean": reasonMachine, "osIsAbs": reasonMachine,
	"randAlphaNum": reasonRandom, "randAlpha": reasonRandom, "randAscii": reasonRandom, "randNumeric": reasonRandom, "randBytes": reasonRandom,
	"randInt": reasonRandom, "shuffle": reasonRandom, "uuidv4": reasonRandom, "bcrypt": reasonRandom, "htpasswd": reasonRandom,
	"encryptAES": reasonRandom, "genPrivateKey": reasonRandom, "genCA": reasonRandom, "genCAWithKey": reasonRandom,
	"genSelfSignedCert": reasonRandom, "genSelfSignedCertWithKey": reasonRandom, "genSignedCert": reasonRandom, "genSignedCertWithKey": reasonRandom,
	"derivePassword": reasonCostly,
}

const (
	reasonMachine = "it reads the machine that the manager runs on"
	reasonCostly  = "it takes long and much memory on purpose"
	reasonClock   = "its result depends on the clock or the time zone of the machine that the manager runs on"
	reasonRandom  = "its result is another one every time, and a document must not change when it is made again"
)

func withheldReason(function string) string {
	if reason, ok := withheld[function]; ok {
		return ": it is not offered here, because " + reason
	}
	return ": the functions are those of text/template and sprig"
}

// maxItems bounds what one call of a function can make. The document could not hold more.
const maxItems = MaxDocumentBytes

// templateFunctions returns the functions of templates, which use up the budget.
func templateFunctions(b *budget) template.FuncMap {
	functions := template.FuncMap{
		// Those of text/template that make text, to be counted like the others.
		"print": fmt.Sprint, "println": fmt.Sprintln, "printf": fmt.Sprintf,
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	}
	maps.Copy(functions, sprig.TxtFuncMap())
	for name := range withheld {
		delete(functions, name)
	}
	maps.Copy(functions, boundedFunctions(functions))
	return b.within(functions)
}

// boundedFunctions replaces those functions that could exhaust the memory, or the stack, of the manager by a typing
// error: sprig itself does not limit them.
func boundedFunctions(sprig template.FuncMap) template.FuncMap {
	type mergeFunc = func(map[string]any, ...map[string]any) (any, error)
	merge := detachedMerge(sprig["mustMerge"].(mergeFunc))
	mergeOverwrite := detachedMerge(sprig["mustMergeOverwrite"].(mergeFunc))
	until := sprig["untilStep"].(func(int, int, int) []int)
	untilStep := func(start, stop, step int) ([]int, error) {
		if !counts(start, stop, step) || step != 0 && (stop-start)/step > maxItems {
			return nil, errTooMany
		}
		return until(start, stop, step), nil
	}
	indent := func(spaces int, text string) (string, error) {
		if spaces < 0 || spaces > 1000 || spaces*(strings.Count(text, "\n")+1) > maxItems {
			return "", fmt.Errorf("cannot indent by %d spaces", spaces)
		}
		pad := strings.Repeat(" ", spaces)
		return pad + strings.ReplaceAll(text, "\n", "\n"+pad), nil
	}
	return template.FuncMap{
		"repeat": func(count int, text string) (string, error) {
			if count < 0 || count > maxItems || count*len(text) > maxItems {
				return "", errTooMany
			}
			return strings.Repeat(text, count), nil
		},
		"untilStep": untilStep,
		"until": func(count int) ([]int, error) {
			if count < 0 {
				return untilStep(0, count, -1)
			}
			return untilStep(0, count, 1)
		},
		"seq":    boundedSeq(sprig["seq"].(func(...int) string)),
		"indent": indent,
		"nindent": func(spaces int, text string) (string, error) {
			indented, err := indent(spaces, text)
			return "\n" + indented, err
		},
		"index": index,
		"set":   detachedSet,
		"merge": merge, "mustMerge": merge,
		"mergeOverwrite": mergeOverwrite, "mustMergeOverwrite": mergeOverwrite,
	}
}

func boundedSeq(seq func(...int) string) func(...int) (string, error) {
	return func(params ...int) (string, error) {
		for _, param := range params {
			if param > maxItems || param < -maxItems {
				return "", errTooMany
			}
		}
		return seq(params...), nil
	}
}

// counts says whether the numbers are far enough from the ends of their type to be counted with.
func counts(numbers ...int) bool {
	return !slices.ContainsFunc(numbers, func(n int) bool { return n > math.MaxInt32 || n < math.MinInt32 })
}

// detached returns a copy of a map or a list. A map that is put into itself could not be printed: the stack would
// overflow, and with it the manager would end.
func detached(value any) (any, error) {
	switch value.(type) {
	case map[string]any, []any:
		return copystructure.Copy(value)
	}
	return value, nil
}

func detachedSet(into map[string]any, key string, value any) (map[string]any, error) {
	if into == nil {
		return nil, errors.New("set needs a dict")
	}
	copied, err := detached(value)
	if err != nil {
		return nil, err
	}
	into[key] = copied
	return into, nil
}

func detachedMerge(merge func(map[string]any, ...map[string]any) (any, error)) func(map[string]any, ...map[string]any) (any, error) {
	return func(into map[string]any, from ...map[string]any) (any, error) {
		for _, source := range from {
			copied, err := detached(source)
			if err != nil {
				return nil, err
			}
			if _, err := merge(into, copied.(map[string]any)); err != nil {
				return nil, err
			}
		}
		return into, nil
	}
}

// limitedBuffer is a buffer that takes no more than a document may have.
type limitedBuffer struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *limitedBuffer) Write(data []byte) (int, error) {
	if b.Len()+len(data) > MaxDocumentBytes {
		return 0, errTooLarge
	}
	return b.Buffer.Write(data)
}
