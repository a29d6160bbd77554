// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Rule names a rule, in metrics.
type Rule string

// The rules.
const (
	// RulePinning: a pin is on a Machine or on a static pool of one server, and the server can be had.
	RulePinning Rule = "pinning"
	// RuleHostSelector: the selector of a NodeType selects servers, and those that are meant.
	RuleHostSelector Rule = "host-selector"
	// RuleNodeTypeSelector: the selector of a pool or a Machine selects NodeTypes.
	RuleNodeTypeSelector Rule = "node-type-selector"
	// RuleResources: resources are named and counted as Kubernetes does.
	RuleResources Rule = "resources"
	// RuleProperties: properties have keys and values that mean something.
	RuleProperties Rule = "properties"
	// RuleReferences: what is referred to exists.
	RuleReferences Rule = "references"
	// RuleInUse: what somebody uses is not taken away.
	RuleInUse Rule = "in-use"
	// RuleNames: names that must be unique are.
	RuleNames Rule = "names"
	// RuleNodes: labels and taints of nodes are valid.
	RuleNodes Rule = "nodes"
	// RuleTemplate: templates parse.
	RuleTemplate Rule = "template"
	// RuleSSHKey: public keys parse.
	RuleSSHKey Rule = "ssh-key"
	// RuleAllowed: the tenant may have the type.
	RuleAllowed Rule = "allowed-types"
	// RuleQuota: the tenant may have another server.
	RuleQuota Rule = "quota"
	// RuleNamespaces: tenants do not share a namespace with servers, and do not refer to each other.
	RuleNamespaces Rule = "namespaces"
	// RuleDevices: devices are such as DRA drivers publish.
	RuleDevices Rule = "devices"
	// RuleDeadline: servers that are well keep their deadlines.
	RuleDeadline Rule = "deadline"
	// RuleKubeletArgs: arguments of the kubelet are such as a join can pass on.
	RuleKubeletArgs Rule = "kubelet-args"
	// RuleImmutable: what would need a new server does not change.
	RuleImmutable Rule = "immutable"
)

// How much is said at a time. Nobody reads more, and the answer to a huge object must not be huge.
const (
	maxErrors   = 50
	maxWarnings = 10
	maxWarning  = 250
)

// Verdict is what is to be said of an object. The zero value has nothing to say.
type Verdict struct {
	// Errors are what is wrong with the object's fields. If there are any, it is refused.
	Errors field.ErrorList
	// Refusal is why the request is refused, if the reason is none of the object's fields.
	Refusal string
	// Warnings are single lines for the author.
	Warnings []string
	// Denied and Warned are the rules that had something to say, each once.
	Denied, Warned []Rule
	// omittedErrors and omittedWarnings are how many are not listed.
	omittedErrors, omittedWarnings int
}

// Allowed tells whether the request is admitted.
func (v *Verdict) Allowed() bool { return len(v.Errors) == 0 && v.Refusal == "" }

// deny notes what is wrong with a field.
func (v *Verdict) deny(rule Rule, err *field.Error) {
	v.Denied = once(v.Denied, rule)
	if len(v.Errors) >= maxErrors {
		v.omittedErrors++
		return
	}
	v.Errors = append(v.Errors, err)
}

// refuse notes why the whole request is refused.
func (v *Verdict) refuse(rule Rule, format string, arguments ...any) {
	v.Denied = once(v.Denied, rule)
	v.Refusal = fmt.Sprintf(format, arguments...)
}

// warn notes what the author should know of a field.
func (v *Verdict) warn(rule Rule, path *field.Path, format string, arguments ...any) {
	v.Warned = once(v.Warned, rule)
	if v.deaf() {
		v.omittedWarnings++
		return
	}
	text := path.String() + ": " + fmt.Sprintf(format, arguments...)
	v.Warnings = append(v.Warnings, oneLine(text, maxWarning))
}

// deaf tells whether another warning would not be listed. Rules that only warn need not look any further.
func (v *Verdict) deaf() bool { return len(v.Warnings) >= maxWarnings }

// done adds how much has been left out.
func (v Verdict) done() Verdict {
	if v.omittedErrors > 0 {
		v.Errors = append(v.Errors, field.Forbidden(field.NewPath("spec"), fmt.Sprintf("there are %d more faults: correct these first", v.omittedErrors)))
		v.omittedErrors = 0
	}
	if v.omittedWarnings > 0 {
		v.Warnings = append(v.Warnings, fmt.Sprintf("spec: there are %d more warnings", v.omittedWarnings))
		v.omittedWarnings = 0
	}
	return v
}

func once(rules []Rule, rule Rule) []Rule {
	for _, known := range rules {
		if known == rule {
			return rules
		}
	}
	return append(rules, rule)
}

// oneLine returns a text without line breaks, cut to a length in bytes.
func oneLine(text string, length int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) <= length {
		return text
	}
	return strings.ToValidUTF8(text[:length-3], "") + "..."
}

// shown is a value as it can stand in an error.
func shown(value string) string { return oneLine(value, 100) }

// key is the path of an entry of a map, as it is written in documentation: properties["vcluster.com/os-image"].
func key(path *field.Path, name string) *field.Path {
	return path.Key(fmt.Sprintf("%q", shown(name)))
}

// because joins what apimachinery has against a value, without the regular expressions that it adds to it.
func because(problems []string) string {
	short := make([]string, len(problems))
	for i := range problems {
		short[i], _, _ = strings.Cut(problems[i], " (e.g. ")
	}
	return strings.Join(short, ", ")
}
