// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"reflect"
	"text/template"
	"time"
)

const (
	// maxValue bounds one value that a template makes or hands to a function, in bytes. The document could hold no more.
	maxValue = MaxDocumentBytes
	// maxWork bounds what one rendering does: each step of a loop or call of a template counts a little, each call of a
	// function the size of what goes in and comes out. It is far more than a document takes, and some seconds at most.
	maxWork = 64 * MaxDocumentBytes
	// stepWork is what one step counts: 262,144 of them use up maxWork.
	stepWork = 256
	// itemSize is what a value counts beside its text, and numberSize what a number does.
	itemSize   = 16
	numberSize = 8
	// maxDepth bounds how deep maps and lists can be in each other, and how deep calls of templates. With the conditions
	// and loops that each can hold (maxNested), the stack stays far from where Go would end the whole process.
	maxDepth = 100
	// stepName is the function that is called at each step, enterName and leaveName those at the start and the end of
	// each template, and showName the one that everything goes through that is printed. No template may call them itself.
	stepName  = "countStep"
	enterName = "countEnter"
	leaveName = "countLeave"
	showName  = "countOutput"
)

var ownFunctions = []string{stepName, enterName, leaveName, showName}

var (
	errTooMany  = fmt.Errorf("that is too large: a document holds at most %d bytes, so make less of it, or have the server fetch it at boot", maxValue)
	errTooLarge = errors.New("the document is too large")
	errWork     = fmt.Errorf("the template takes more than the %d units of work that one may take: loop over less, and nest fewer loops", maxWork)
	errCalls    = fmt.Errorf("templates call each other more than %d deep: loop instead, or end the recursion", maxDepth)
	errDeep     = fmt.Errorf("maps and lists are more than %d deep in each other: make them flatter", maxDepth)
)

// budget is what one rendering may still use up. Whoever writes a template, or a value that it loops over, could
// otherwise take all the memory and time of the manager. It is counted and not timed, so that a template that is
// refused is refused every time, on every machine.
type budget struct {
	work int
	// depth is how many templates have been entered and not left.
	depth int
}

func newBudget() *budget { return &budget{work: maxWork} }

func (b *budget) spend(work int) error {
	if b.work -= work; b.work < 0 {
		return errWork
	}
	return nil
}

// step is called at each turn of a loop, and prints nothing.
func (b *budget) step() (string, error) { return "", b.spend(stepWork) }

// enter is called where a template starts, and prints nothing.
func (b *budget) enter() (string, error) {
	if b.depth++; b.depth > maxDepth {
		return "", errCalls
	}
	return b.step()
}

// leave is called where a template ends, and prints nothing.
func (b *budget) leave() string {
	b.depth--
	return ""
}

// take counts a value that goes into a function or comes out of it.
func (b *budget) take(value reflect.Value) error {
	size := 0
	if err := measure(value, &size, 0); err != nil {
		return err
	}
	return b.spend(size)
}

// show takes the value that is about to be printed: printing makes a text of all of it before there is a limit.
func (b *budget) show(value any) (any, error) {
	return value, b.take(reflect.ValueOf(value))
}

// measure adds up how much text a value would be, and gives up when it is too much. Values that are in several places
// count each time, as they are printed each time.
func measure(value reflect.Value, size *int, depth int) error {
	if value.IsValid() && value.Type() == valueType && value.CanInterface() {
		value, _ = value.Interface().(reflect.Value) // some functions take any value as this
	}
	own := itemSize
	switch kind := value.Kind(); {
	case kind == reflect.String, isBytes(value):
		own += value.Len()
	case kind > reflect.Invalid && kind < reflect.Array:
		own = numberSize
	}
	if *size += own; *size > maxValue {
		return errTooMany
	}
	if depth > maxDepth {
		return errDeep
	}
	return measureParts(value, size, depth)
}

// measureParts measures what a value consists of.
func measureParts(value reflect.Value, size *int, depth int) error {
	switch value.Kind() {
	case reflect.Interface:
		return measure(value.Elem(), size, depth)
	case reflect.Pointer:
		return measure(value.Elem(), size, depth+1)
	case reflect.Map:
		for entries := value.MapRange(); entries.Next(); {
			if err := measure(entries.Key(), size, depth+1); err != nil {
				return err
			}
			if err := measure(entries.Value(), size, depth+1); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		if isBytes(value) {
			return nil
		}
		for i := range value.Len() {
			if err := measure(value.Index(i), size, depth+1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		if value.Type() == timeType {
			return nil // its location is a table of all changes of the clock
		}
		for i := range value.NumField() {
			if err := measure(value.Field(i), size, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func isBytes(value reflect.Value) bool {
	return (value.Kind() == reflect.Slice || value.Kind() == reflect.Array) && value.Type().Elem().Kind() == reflect.Uint8
}

// within returns the functions with what goes in and comes out counted.
func (b *budget) within(functions template.FuncMap) template.FuncMap {
	counted := template.FuncMap{stepName: b.step, enterName: b.enter, leaveName: b.leave, showName: b.show}
	for name, function := range functions {
		counted[name] = b.counting(reflect.ValueOf(function), guards[name])
	}
	return counted
}

var (
	errorType = reflect.TypeFor[error]()
	valueType = reflect.TypeFor[reflect.Value]()
	timeType  = reflect.TypeFor[time.Time]()
)

// counting returns a function that does the same and takes the same, so that text/template converts the arguments as
// it would for the function itself.
func (b *budget) counting(function reflect.Value, guard guard) any {
	plain := function.Type()
	in, out := make([]reflect.Type, plain.NumIn()), []reflect.Type{plain.Out(0), errorType}
	for i := range in {
		in[i] = plain.In(i)
	}
	return reflect.MakeFunc(reflect.FuncOf(in, out, plain.IsVariadic()), func(arguments []reflect.Value) []reflect.Value {
		refuse := func(err error) []reflect.Value {
			return []reflect.Value{reflect.Zero(out[0]), reflect.ValueOf(&err).Elem()}
		}
		for _, argument := range arguments {
			if err := b.take(argument); err != nil {
				return refuse(err)
			}
		}
		if guard != nil {
			if err := guard(b, arguments); err != nil {
				return refuse(err)
			}
		}
		var results []reflect.Value
		if plain.IsVariadic() {
			results = function.CallSlice(arguments)
		} else {
			results = function.Call(arguments)
		}
		if len(results) == 1 {
			results = append(results, reflect.Zero(errorType))
		}
		if results[1].IsNil() {
			if err := b.take(results[0]); err != nil {
				return refuse(err)
			}
		}
		return results
	}).Interface()
}
