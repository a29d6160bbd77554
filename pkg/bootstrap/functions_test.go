// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Another version of sprig can bring functions. Each must be decided before templates have it.
func TestFunctionsAreDecided(t *testing.T) {
	decided := slices.Clone(allowed)
	for _, names := range refused {
		decided = append(decided, names...)
	}
	slices.Sort(decided) // a name that is decided twice stays, and differs
	if diff := cmp.Diff(slices.Sorted(maps.Keys(library)), decided); diff != "" {
		t.Errorf("-functions of sprig, +decided in allowed and refused:\n%s", diff)
	}
	page, err := os.ReadFile("../../docs/reference-snippets.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason, names := range refused {
		row := "| `" + strings.Join(names, "`, `") + "` | " + strings.TrimSuffix(reason, ": use semverCompare")
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/reference-snippets.md does not have %s", row)
		}
	}
	for name := range replaced {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s is replaced and not allowed", name)
		}
	}
	for name := range (&limits{}).bounds() {
		if _, builtin := builtins[name]; !builtin && !slices.Contains(allowed, name) {
			t.Errorf("%s has a bound and is not allowed", name)
		}
	}
}

// arguments are values by the type of the parameter.
type arguments struct {
	texts []string
	ints  []int
	maps  []func() map[string]any
	lists []func() any
}

// usual are arguments that most functions do something with.
var usual = arguments{
	texts: []string{"", "a", "Hello World", "a,b,c", "x\ny z\n", `{"a":[1,{"b":null}]}`, "YQ==", "MFRGG===", "^(a+)|o", "${1}-", "1.2.3",
		">=1.0.0", "010", "3.7", "90s", "../a//b.txt", "https://u:p@host:1/path?q=1#f", "ÄÖ ß\t", "string", "int"},
	ints: []int{-5, -1, 0, 1, 2, 3, 7, 20},
	maps: []func() map[string]any{
		func() map[string]any { return map[string]any{} },
		func() map[string]any {
			return map[string]any{"c": 1, "a": "x", "b": map[string]any{"a": []any{1, "y"}}}
		},
		func() map[string]any { return entries{"a": "", "string": "z", "host": "h"} },
		func() map[string]any { return map[string]any{"scheme": "http", "host": "h", "path": "/p"} },
	},
	lists: []func() any{
		func() any { return []any{} },
		func() any { return []any{"b", "a", 3, nil, "", "a"} },
		func() any { return []string{"z", "y", "z"} },
		func() any { return []any{[]any{1, 2}, []any{3}, []any{1, 2}} },
	},
}

// random returns an argument for a parameter.
func (a arguments) random(r *rand.Rand, parameter reflect.Type) any {
	text, number, m := a.texts[r.IntN(len(a.texts))], a.ints[r.IntN(len(a.ints))], a.maps[r.IntN(len(a.maps))]()
	switch parameter.Kind() {
	case reflect.String:
		return text
	case reflect.Int:
		return number
	case reflect.Bool:
		return r.IntN(2) == 0
	case reflect.Float64:
		return float64(number) / 4
	case reflect.Map:
		return m
	}
	any := []any{text, text, text, m, m, number, int64(number), float64(number) / 4, r.IntN(2) == 0, nil}
	if n := r.IntN(2 * len(any)); n < len(any) {
		return any[n]
	}
	return a.lists[r.IntN(len(a.lists))]()
}

// call returns a template that calls the function and shows what became of its arguments, and these. Equal seeds have equal arguments.
func (a arguments) call(seed uint64, name string, parameters reflect.Type) (string, map[string]any) {
	r, text, values := rand.New(rand.NewPCG(seed, 0)), "{{ "+name, map[string]any{}
	count := parameters.NumIn()
	if parameters.IsVariadic() {
		count += r.IntN(4) - 1
	}
	after := ""
	for i := range count {
		parameter := parameters.In(min(i, parameters.NumIn()-1))
		if parameters.IsVariadic() && i >= parameters.NumIn()-1 {
			parameter = parameter.Elem()
		}
		key := fmt.Sprintf("Argument%d", i)
		values[key] = a.random(r, parameter)
		text += " ." + key
		after += " {{ ." + key + " }}"
	}
	return text + " }}" + after, values
}

// executed returns what the template makes, with these functions.
func executed(functions template.FuncMap, text string, values map[string]any) (string, error) {
	out := &strings.Builder{}
	err := template.Must(template.New("").Funcs(functions).Parse(text)).Execute(out, values)
	return out.String(), err
}

// differences are what designs/templates.md says of functions that differ from those of sprig.
var differences = map[string]string{
	"b32dec": "errors are no text", "b64dec": "errors are no text",
	"keys": "in order", "values": "in order",
	"slice": "takes text, and a list without items stays one", "mustSlice": "takes text, and a list without items stays one",
}

func TestFunctionsAreThoseOfSprig(t *testing.T) {
	for _, name := range allowed {
		t.Run(name, func(t *testing.T) {
			ours, worked := (&limits{deadline: time.Now().Add(poll.Patience())}).functions(), 0
			for seed := range uint64(200) {
				text, values := usual.call(seed, name, reflect.TypeOf(library[name]))
				described := fmt.Sprintf("seed %d: %s of %#v", seed, text, values)
				got, err := executed(ours, text, values)
				_, values = usual.call(seed, name, reflect.TypeOf(library[name]))
				if again, _ := executed(ours, text, values); again != got {
					t.Fatalf("%s: %q and then %q", described, got, again)
				}
				_, values = usual.call(seed, name, reflect.TypeOf(library[name]))
				want, wantErr := executed(library, text, values)
				if must, found := library["must"+strings.ToUpper(name[:1])+name[1:]]; found {
					_, values = usual.call(seed, name, reflect.TypeOf(library[name]))
					_, wantErr = executed(template.FuncMap{name: must}, text, values)
				}
				if err == nil {
					worked++
				}
				if differences[name] == "" && ((err == nil) != (wantErr == nil) || err == nil && got != want) {
					t.Errorf("%s: got %q, %v; sprig has %q, %v", described, got, err, want, wantErr)
				}
			}
			if worked == 0 && name != "fail" {
				t.Errorf("no arguments are what it takes")
			}
		})
	}
}

// hostile are arguments that make much of little, or take long.
var hostile = arguments{
	texts: []string{"", "a", strings.Repeat("a", MaxDocumentBytes), strings.Repeat("\x00", 256<<10), strings.Repeat("a ", 256<<10),
		strings.Repeat("<\n", 100<<10), strings.Repeat("[", 100<<10), strings.Repeat("[],", 100<<10), "(?s).*z|a", "((a?){30}){30}", "a{1000}",
		strings.Repeat("$0", 1000), "1e308", "\xff"},
	ints: []int{math.MinInt, math.MaxInt, -1, 0, 1, 99, 1 << 20, 1 << 40},
	maps: []func() map[string]any{
		func() map[string]any { m := map[string]any{}; m["a"] = m; return m },
		func() map[string]any {
			return map[string]any{"a": doubled(60), "b": strings.Repeat("a", MaxDocumentBytes)}
		},
		func() map[string]any { return map[string]any{"a": map[string]any{"b": strings.Repeat("a", 512<<10)}} },
	},
	lists: []func() any{
		func() any { return doubled(60) },
		func() any { return nestedList(maxNested + 1) },
		func() any { return nestedList(maxNested - 2) },
		func() any { return slices.Repeat([]any{"a", strings.Repeat("<", 512)}, 10000) },
		func() any { return slices.Repeat([]string{"a", ""}, 200000) },
		func() any { return slices.Repeat([]any{math.MaxFloat64}, 5000) },
	},
}

// doubled is a list of one list in two places, of one list in two places, and so on.
func doubled(times int) any {
	list := []any{"x"}
	for range times {
		list = []any{list, list}
	}
	return list
}

func nestedList(depth int) any {
	list := []any{"x"}
	for range depth {
		list = []any{list}
	}
	return list
}

// No function makes more than the limits, whatever it is given, or ends the manager.
func TestFunctionsAreBounded(t *testing.T) {
	for name := range (&limits{}).functions() {
		t.Run(name, func(t *testing.T) {
			function, found := library[name]
			if !found {
				function = (&limits{}).functions()[name]
			}
			for seed := range uint64(4) {
				text, values := hostile.call(seed, name, reflect.TypeOf(function))
				limits := &limits{deadline: time.Now().Add(200 * time.Millisecond)}
				parsed := template.Must(template.New("t").Funcs(limits.functions()).Funcs(template.FuncMap{"kept": func(value any) string {
					size := 0
					if err := measure(&size, reflect.ValueOf(value), 1); err != nil && !slices.Contains(selecting, plainName(name)) {
						t.Errorf("seed %d: %s returns too much: %v", seed, text, err)
					}
					return ""
				}}).Parse(strings.Replace(text, " }}", " | kept }}", 1)))
				if err := rewrite(parsed); err != nil {
					t.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := parsed.Execute(limits, values)
				runtime.ReadMemStats(&after)
				if used := after.TotalAlloc - before.TotalAlloc; used > memoryLimit/2 {
					t.Errorf("seed %d: %s takes %d bytes (%v)", seed, text, used, err)
				}
			}
		})
	}
}
