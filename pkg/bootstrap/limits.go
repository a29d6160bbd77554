// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"text/template"
	"text/template/parse"
	"time"
)

const (
	// renderTimeout bounds one rendering. Documents take milliseconds.
	renderTimeout = 5 * time.Second
	// maxMade bounds what the functions return in one rendering, in bytes: variables keep their values until the end.
	maxMade = 64 * MaxDocumentBytes
	// maxCalls bounds the calls of templates, and maxNested the conditions and loops in each other. Both grow the stack, and
	// Go ends the process, which no recover prevents, when it is full.
	maxCalls  = 1000
	maxNested = 100
	// itemSize is what an item of a list takes beside its text.
	itemSize = 16

	// stepName is the function that is called at each turn of a loop, callName the one at the start of each template.
	stepName = "countStep"
	callName = "countCall"
)

var (
	errValueTooLarge = fmt.Errorf("the value is too large: a document holds at most %d bytes, so make less of it, or have the server fetch "+
		"it at boot", MaxDocumentBytes)
	errTooLarge = errors.New("the document is too large")
	errMade     = fmt.Errorf("the values of the template have more than %d bytes together: make fewer of them", maxMade)
	errCalls    = fmt.Errorf("templates are called more than %d times: use a loop, and end each recursion", maxCalls)
	errTimeout  = fmt.Errorf("rendering takes longer than %s: loop over less, and nest fewer loops", renderTimeout)
)

// limits end a rendering that would take all the memory or time of the manager. text/template cannot be interrupted from
// outside, so the limits are checked wherever it calls us: the size when it writes, the time when it calls a function, and at
// each turn of a loop and each call of a template, where rewrite puts a call of a function.
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

// limited returns the function with the limits around it. It takes the same, so that text/template converts the arguments
// as it would for the function itself.
func (l *limits) limited(function reflect.Value) any {
	plain := function.Type()
	in, out := make([]reflect.Type, plain.NumIn()), []reflect.Type{plain.Out(0), reflect.TypeFor[error]()}
	for i := range in {
		in[i] = plain.In(i)
	}
	return reflect.MakeFunc(reflect.FuncOf(in, out, plain.IsVariadic()), func(arguments []reflect.Value) []reflect.Value {
		if _, err := l.step(); err != nil {
			return []reflect.Value{reflect.Zero(out[0]), reflect.ValueOf(&err).Elem()}
		}
		call := function.Call
		if plain.IsVariadic() {
			call = function.CallSlice
		}
		results := call(arguments)
		if len(results) == 1 {
			results = append(results, reflect.Zero(out[1]))
		}
		if err := l.add(results[0]); err != nil && results[1].IsNil() {
			return []reflect.Value{reflect.Zero(out[0]), reflect.ValueOf(&err).Elem()}
		}
		return results
	}).Interface()
}

// add counts what a function returns.
func (l *limits) add(value reflect.Value) error {
	size := 0
	switch value.Kind() {
	case reflect.String:
		size = value.Len()
	case reflect.Slice:
		size = value.Len() * itemSize
	}
	if size > itemSize*MaxDocumentBytes || value.Kind() == reflect.String && size > MaxDocumentBytes {
		return errValueTooLarge
	}
	if l.made += size; l.made > maxMade {
		return errMade
	}
	return nil
}

// rewrite puts the calls of step and call into a template, and makes its entries optional. The error has the form of those
// of text/template.
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
		case *parse.TemplateNode:
			optionalPipe(tree, node.Pipe)
		case *parse.IfNode:
			branch = &node.BranchNode
		case *parse.WithNode:
			branch = &node.BranchNode
		case *parse.RangeNode:
			branch = &node.BranchNode
			branch.List.Nodes = slices.Insert(branch.List.Nodes, 0, callOf(tree, node.Pos, stepName))
		}
		if branch == nil {
			continue
		}
		optionalPipe(tree, branch.Pipe)
		if err := errors.Join(rewriteList(tree, branch.List, depth+1), rewriteList(tree, branch.ElseList, depth+1)); err != nil {
			return err
		}
	}
	return nil
}

// callOf is the call of a function without arguments.
func callOf(tree *parse.Tree, pos parse.Pos, function string) parse.Node {
	command := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos,
		Args: []parse.Node{parse.NewIdentifier(function).SetPos(pos).SetTree(tree)}}
	pipe := &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{command}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Pipe: pipe}
}

// entries are properties, labels or annotations: a key that is not there has an empty value, as in sprig. Of everything else, a key
// that is not there is a typing error.
type entries map[string]any

// optionalFields are the fields that hold entries.
var optionalFields = []string{"Properties", "Labels", "Annotations"}

// optionalPipe has a pipeline read entries by index, also where it names one like a field: text/template has one rule for
// all missing keys, and that is an error.
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

// cutKey returns the object and the key of .Values.Properties.key and its like.
func cutKey(names []string) (object []string, key string, optional bool) {
	last := len(names) - 1
	if last < 1 || !slices.Contains(optionalFields, names[last-1]) {
		return nil, "", false
	}
	return names[:last], names[last], true
}

// indexOf is (index object "key").
func indexOf(tree *parse.Tree, pos parse.Pos, object parse.Node, key string) parse.Node {
	command := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{
		parse.NewIdentifier("index").SetPos(pos).SetTree(tree), object,
		&parse.StringNode{NodeType: parse.NodeString, Pos: pos, Quoted: `"` + key + `"`, Text: key}}}
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{command}}
}
