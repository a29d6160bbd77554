// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"slices"
	"text/template"
	"text/template/parse"
)

// maxNested is how deep conditions and loops can be in each other. An else-if is inside of the if before it.
const maxNested = 500

// instrument makes a template count: each turn of a loop and each call of a template takes a step, each template says
// when it is entered and left, and whatever is printed is measured before. The error says what cannot be counted, in the
// form of those of text/template.
func instrument(all *template.Template) error {
	for _, t := range all.Templates() {
		if t.Tree == nil || t.Root == nil {
			continue
		}
		if err := instrumentList(t.Tree, t.Root, 0); err != nil {
			return err
		}
		t.Root.Nodes = slices.Insert(t.Root.Nodes, 0, callNode(t.Tree, t.Root.Pos, enterName))
		t.Root.Nodes = append(t.Root.Nodes, callNode(t.Tree, t.Root.Pos, leaveName))
	}
	return nil
}

func instrumentList(tree *parse.Tree, list *parse.ListNode, depth int) (err error) {
	if list == nil {
		return nil
	}
	if depth > maxNested {
		return refuse(tree, list, fmt.Sprintf("conditions and loops are more than %d deep in each other: make them flatter", maxNested))
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.ActionNode:
			if err = checkPipe(tree, node.Pipe); err == nil && len(node.Pipe.Decl) == 0 {
				node.Pipe.Cmds = append(node.Pipe.Cmds, commandNode(tree, node.Pos, showName))
			}
		case *parse.TemplateNode:
			err = checkPipe(tree, node.Pipe)
		case *parse.IfNode:
			err = instrumentBranch(tree, &node.BranchNode, depth)
		case *parse.WithNode:
			err = instrumentBranch(tree, &node.BranchNode, depth)
		case *parse.RangeNode:
			if err = instrumentBranch(tree, &node.BranchNode, depth); err == nil {
				node.List.Nodes = slices.Insert(node.List.Nodes, 0, callNode(tree, node.Pos, stepName))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func instrumentBranch(tree *parse.Tree, branch *parse.BranchNode, depth int) error {
	if err := checkPipe(tree, branch.Pipe); err != nil {
		return err
	}
	if err := instrumentList(tree, branch.List, depth+1); err != nil {
		return err
	}
	return instrumentList(tree, branch.ElseList, depth+1)
}

// checkPipe refuses calls of the functions that count, and calls of methods with arguments. What they do is not counted, and among the methods that can be
// reached from a Machine are those of big numbers and of layouts of times, which make gigabytes of nothing.
func checkPipe(tree *parse.Tree, pipe *parse.PipeNode) error {
	if pipe == nil {
		return nil
	}
	for n, command := range pipe.Cmds {
		if isField(command.Args[0]) && (n > 0 || len(command.Args) > 1) {
			return refuse(tree, command, fmt.Sprintf("%s is given an argument, and methods with arguments are not offered here: use the functions of text/template and sprig", command.Args[0]))
		}
		for _, argument := range command.Args {
			if chain, ok := argument.(*parse.ChainNode); ok {
				argument = chain.Node
			}
			switch argument := argument.(type) {
			case *parse.PipeNode:
				if err := checkPipe(tree, argument); err != nil {
					return err
				}
			case *parse.IdentifierNode:
				if slices.Contains(ownFunctions, argument.Ident) {
					return refuse(tree, command, fmt.Sprintf("function %q not defined", argument.Ident))
				}
			}
		}
	}
	return nil
}

// isField tells whether a node may be a field or a method of a value.
func isField(node parse.Node) bool {
	switch node := node.(type) {
	case *parse.FieldNode:
		return true
	case *parse.ChainNode:
		return true
	case *parse.VariableNode:
		return len(node.Ident) > 1
	}
	return false
}

// refuse makes an error that says where it is.
func refuse(tree *parse.Tree, node parse.Node, problem string) error {
	location, _ := tree.ErrorContext(node)
	return fmt.Errorf("template: %s: %s", location, problem)
}

// callNode is the call of a function of the budget.
func callNode(tree *parse.Tree, pos parse.Pos, function string) parse.Node {
	pipe := &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{commandNode(tree, pos, function)}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Pipe: pipe}
}

func commandNode(tree *parse.Tree, pos parse.Pos, function string) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{parse.NewIdentifier(function).SetPos(pos).SetTree(tree)}}
}
