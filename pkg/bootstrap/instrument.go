// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"slices"
	"text/template"
	"text/template/parse"
)

// instrument makes a template count: each turn of a loop and each call of a template takes a step, and whatever is
// printed is measured before.
func instrument(all *template.Template) {
	for _, t := range all.Templates() {
		if t.Tree == nil || t.Root == nil {
			continue
		}
		instrumentList(t.Tree, t.Root)
		t.Root.Nodes = slices.Insert(t.Root.Nodes, 0, stepNode(t.Tree, t.Root.Pos))
	}
}

func instrumentList(tree *parse.Tree, list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			if len(node.Pipe.Decl) == 0 {
				node.Pipe.Cmds = append(node.Pipe.Cmds, commandNode(tree, node.Pos, showName))
			}
		case *parse.IfNode:
			instrumentList(tree, node.List)
			instrumentList(tree, node.ElseList)
		case *parse.WithNode:
			instrumentList(tree, node.List)
			instrumentList(tree, node.ElseList)
		case *parse.RangeNode:
			instrumentList(tree, node.List)
			instrumentList(tree, node.ElseList)
			node.List.Nodes = slices.Insert(node.List.Nodes, 0, stepNode(tree, node.Pos))
		}
	}
}

// stepNode is {{ step }}.
func stepNode(tree *parse.Tree, pos parse.Pos) parse.Node {
	pipe := &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{commandNode(tree, pos, stepName)}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Pipe: pipe}
}

func commandNode(tree *parse.Tree, pos parse.Pos, function string) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{parse.NewIdentifier(function).SetPos(pos).SetTree(tree)}}
}
