// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/samber/lo"
)

const (
	// renderTimeout bounds one rendering. Documents take milliseconds.
	renderTimeout = 5 * time.Second
	// maxMade limits the results of functions in one rendering, in bytes: variables keep their values until the end.
	maxMade = 64 * MaxDocumentBytes
	// maxValue limits a value with all that it holds, and a function's arguments, in bytes as measure counts them.
	maxValue = 16 * MaxDocumentBytes
	// maxCalls limits the calls of templates, and maxNested the nesting of conditions and loops, and of lists and maps.
	// All grow the stack. If it is full, Go ends the process, and no recover prevents that.
	maxCalls  = 1000
	maxNested = 100
	// itemSize is the size of an item of a list beside its text, mapItemSize of an item of a map. Each counts once for
	// each level of its depth, because toPrettyJson indents it that far.
	itemSize    = 16
	mapItemSize = 3 * itemSize

	// stepName is the function that runs at each turn of a loop, callName at the start of each template, and printName
	// for each value to print.
	stepName  = "countStep"
	callName  = "countCall"
	printName = "checkPrinted"
)

var (
	errValueTooLarge = fmt.Errorf("the value is too large: a document holds at most %d bytes, so make less of it, or have the server fetch "+
		"it at boot", MaxDocumentBytes)
	errTooLarge = errors.New("the document is too large")
	errMade     = fmt.Errorf("the values of the template have more than %d bytes together: make fewer of them", maxMade)
	errNested   = fmt.Errorf("lists and maps are more than %d deep in each other, or one holds itself", maxNested)
	errCalls    = fmt.Errorf("templates are called more than %d times: use a loop, and end each recursion", maxCalls)
	errTimeout  = fmt.Errorf("rendering takes longer than %s: loop over less, and nest fewer loops", renderTimeout)
)

// limits end a rendering that would take all the memory or time of the manager. Nothing can interrupt text/template
// from outside, so limits are checked wherever it calls us: the size when it writes, the time when it calls a function.
// rewrite adds calls at each turn of a loop, each call of a template and each value to print.
type limits struct {
	deadline    time.Time
	calls, made int
	out         bytes.Buffer
}

// Write implements io.Writer.
func (l *limits) Write(data []byte) (int, error) {
	if l.out.Len()+len(data) > MaxDocumentBytes {
		return 0, errTooLarge
	}
	return l.out.Write(data)
}

// step returns nothing to print.
func (l *limits) step() (string, error) {
	if time.Now().After(l.deadline) {
		return "", errTimeout
	}
	return "", nil
}

func (l *limits) call() (string, error) {
	if l.calls++; l.calls > maxCalls {
		return "", errCalls
	}
	return l.step()
}

// printed returns the value to print, if it is not too large and does not hold itself.
func (l *limits) printed(value any) (any, error) {
	size := 0
	return value, measure(&size, reflect.ValueOf(value), 1)
}

// limited returns the function with the limits around it. Its arguments have the same types, so that text/template
// converts them as for the function itself, except that int takes whole numbers of any type: sprig's arithmetic returns
// int64. The bound is a function of the same arguments that returns an error, or nil.
func (l *limits) limited(function, bound any, selecting bool) any {
	call := reflect.ValueOf(function)
	plain := call.Type()
	in, out := make([]reflect.Type, plain.NumIn()), []reflect.Type{plain.Out(0), reflect.TypeFor[error]()}
	for i := range in {
		if in[i] = plain.In(i); in[i].Kind() == reflect.Int {
			in[i] = reflect.TypeFor[any]()
		}
	}
	return reflect.MakeFunc(reflect.FuncOf(in, out, plain.IsVariadic()), func(arguments []reflect.Value) []reflect.Value {
		result, err := l.run(call, reflect.ValueOf(bound), arguments, selecting)
		if err != nil {
			result = reflect.Zero(out[0])
		}
		return []reflect.Value{result, reflect.ValueOf(&err).Elem()}
	}).Interface()
}

func (l *limits) run(function, bound reflect.Value, arguments []reflect.Value, selecting bool) (result reflect.Value, err error) {
	defer func() {
		switch problem := recover(); problem {
		case nil:
		case errTimeout:
			err = errTimeout
		default:
			types := lo.Map(arguments, func(argument reflect.Value, _ int) string { return fmt.Sprintf("%T", argument.Interface()) })
			err = fmt.Errorf("it does not take (%s): %v", strings.Join(types, ", "), problem)
		}
	}()
	if _, err := l.step(); err != nil {
		return result, err
	}
	size, call := 0, reflect.Value.Call
	if function.Type().IsVariadic() {
		call = reflect.Value.CallSlice
	}
	for i, argument := range arguments {
		if function.Type().In(i).Kind() == reflect.Int {
			number := argument.Elem()
			if !number.CanInt() && (!number.CanFloat() || number.Float() != math.Trunc(number.Float())) {
				return result, fmt.Errorf("wrong type for value; expected int; got %T", argument.Interface())
			}
			arguments[i] = number.Convert(reflect.TypeFor[int]())
		}
		if selecting {
			continue
		}
		if err := measure(&size, argument, 1); err != nil {
			return result, err
		}
	}
	if bound.IsValid() {
		if err, _ := call(bound, arguments)[0].Interface().(error); err != nil {
			return result, err
		}
	}
	results := call(function, arguments)
	if len(results) > 1 && !results[1].IsNil() {
		return result, results[1].Interface().(error)
	}
	if selecting {
		return results[0], nil
	}
	size = 0
	if err := measure(&size, results[0], 1); err != nil {
		return result, err
	}
	if l.made += size; l.made > maxMade {
		return result, errMade
	}
	return results[0], nil
}

// measure adds the size of a value, with all that it holds, and ends early at maxValue. With set, values can hold a
// value many times, or themselves: what is printed, copied or compared is measured each time.
func measure(size *int, value reflect.Value, depth int) error {
	for value.Kind() == reflect.Interface {
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.String:
		if *size += value.Len(); value.Len() > MaxDocumentBytes {
			return errValueTooLarge
		}
	case reflect.Slice:
		*size += value.Len() * depth * itemSize
	case reflect.Map:
		*size += value.Len() * depth * mapItemSize
	}
	switch {
	case *size > maxValue:
		return errValueTooLarge
	case depth > maxNested:
		return errNested
	case value.Kind() == reflect.Slice:
		for i := range value.Len() {
			if err := measure(size, value.Index(i), depth+1); err != nil {
				return err
			}
		}
	case value.Kind() == reflect.Map:
		for entry := value.MapRange(); entry.Next(); {
			*size += len(entry.Key().String())
			if err := measure(size, entry.Value(), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// rewrite puts the calls of step, call and printed into a template, and makes its entries optional. The error has the
// form of text/template's errors.
func rewrite(all *template.Template) error {
	for _, t := range all.Templates() {
		if t.Tree == nil || t.Root == nil {
			continue
		}
		if err := rewriteList(t.Tree, t.Root, 0); err != nil {
			return err
		}
		t.Root.Nodes = slices.Insert(t.Root.Nodes, 0, callOf(t.Tree, t.Root.Pos, callName))
	}
	return nil
}

func rewriteList(tree *parse.Tree, list *parse.ListNode, depth int) error {
	if list == nil {
		return nil
	}
	if depth > maxNested {
		location, _ := tree.ErrorContext(list)
		return fmt.Errorf("template: %s: conditions and loops are more than %d deep in each other: make them flatter", location, maxNested)
	}
	for _, node := range list.Nodes {
		var branch *parse.BranchNode
		switch node := node.(type) {
		case *parse.ActionNode:
			optionalPipe(tree, node.Pipe)
			if len(node.Pipe.Decl) == 0 {
				node.Pipe.Cmds = append(node.Pipe.Cmds, commandOf(tree, node.Pos, printName))
			}
		case *parse.TemplateNode:
			optionalPipe(tree, node.Pipe)
		case *parse.IfNode:
			branch = &node.BranchNode
		case *parse.WithNode:
			branch = &node.BranchNode
		case *parse.RangeNode:
			branch = &node.BranchNode
		}
		if branch == nil {
			continue
		}
		optionalPipe(tree, branch.Pipe)
		if err := errors.Join(rewriteList(tree, branch.List, depth+1), rewriteList(tree, branch.ElseList, depth+1)); err != nil {
			return err
		}
		if node.Type() == parse.NodeRange {
			branch.List.Nodes = slices.Insert(branch.List.Nodes, 0, callOf(tree, node.Position(), stepName))
		}
	}
	return nil
}

// callOf returns the call of a function without arguments.
func callOf(tree *parse.Tree, pos parse.Pos, function string) parse.Node {
	pipe := &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{commandOf(tree, pos, function)}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Pipe: pipe}
}

func commandOf(tree *parse.Tree, pos parse.Pos, function string) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos,
		Args: []parse.Node{parse.NewIdentifier(function).SetPos(pos).SetTree(tree)}}
}

// entries are properties, labels or annotations: a missing key has an empty value, as in sprig. Anywhere else, a
// missing key is a typing error.
type entries map[string]any

// optionalFields are the fields that hold entries.
var optionalFields = []string{"Properties", "Labels", "Annotations"}

// optionalPipe makes a pipeline read entries by index, even where it names one like a field: text/template has one rule
// for all missing keys, and with it they are errors.
func optionalPipe(tree *parse.Tree, pipe *parse.PipeNode) {
	if pipe == nil {
		return
	}
	for _, command := range pipe.Cmds {
		for i, argument := range command.Args {
			switch argument := argument.(type) {
			case *parse.PipeNode:
				optionalPipe(tree, argument)
			case *parse.FieldNode:
				if object, key, optional := cutKey(argument.Ident); optional {
					field := &parse.FieldNode{NodeType: parse.NodeField, Pos: argument.Pos, Ident: object}
					command.Args[i] = indexOf(tree, argument.Pos, field, key)
				}
			case *parse.VariableNode:
				if object, key, optional := cutKey(argument.Ident); optional {
					variable := &parse.VariableNode{NodeType: parse.NodeVariable, Pos: argument.Pos, Ident: object}
					command.Args[i] = indexOf(tree, argument.Pos, variable, key)
				}
			}
		}
	}
}

// cutKey returns the object and the key of expressions like .Values.Properties.key.
func cutKey(names []string) (object []string, key string, optional bool) {
	last := len(names) - 1
	if last < 1 || !slices.Contains(optionalFields, names[last-1]) {
		return nil, "", false
	}
	return names[:last], names[last], true
}

// indexOf returns (index object "key").
func indexOf(tree *parse.Tree, pos parse.Pos, object parse.Node, key string) parse.Node {
	command := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{
		parse.NewIdentifier("index").SetPos(pos).SetTree(tree), object,
		&parse.StringNode{NodeType: parse.NodeString, Pos: pos, Quoted: `"` + key + `"`, Text: key}}}
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{command}}
}
