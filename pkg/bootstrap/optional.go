// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"slices"
	"text/template/parse"
)

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
