// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"slices"
	"text/template"
	"text/template/parse"
)

// entries are properties, labels or annotations: a key that is not there has an empty value, as in sprig. Of everything else, a key
// that is not there is a typing error.
type entries map[string]any

// optionalFields are the fields that hold entries.
var optionalFields = []string{"Properties", "Labels", "Annotations"}

// makeOptional has a template read entries by index, also where it names one like a field: text/template has one rule for all missing
// keys, and that is an error.
func makeOptional(all *template.Template) {
	for _, t := range all.Templates() {
		if t.Tree != nil {
			optionalList(t.Tree, t.Root)
		}
	}
}

func optionalList(tree *parse.Tree, list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			optionalPipe(tree, node.Pipe)
		case *parse.TemplateNode:
			optionalPipe(tree, node.Pipe)
		case *parse.IfNode:
			optionalBranch(tree, &node.BranchNode)
		case *parse.WithNode:
			optionalBranch(tree, &node.BranchNode)
		case *parse.RangeNode:
			optionalBranch(tree, &node.BranchNode)
		}
	}
}

func optionalBranch(tree *parse.Tree, branch *parse.BranchNode) {
	optionalPipe(tree, branch.Pipe)
	optionalList(tree, branch.List)
	optionalList(tree, branch.ElseList)
}

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
					of := &parse.FieldNode{NodeType: parse.NodeField, Pos: argument.Pos, Ident: object}
					command.Args[i] = indexOf(tree, argument.Pos, of, key)
				}
			case *parse.VariableNode:
				if object, key, optional := cutKey(argument.Ident); optional {
					of := &parse.VariableNode{NodeType: parse.NodeVariable, Pos: argument.Pos, Ident: object}
					command.Args[i] = indexOf(tree, argument.Pos, of, key)
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
