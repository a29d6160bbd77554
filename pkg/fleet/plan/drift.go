// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// change is one field that would have another value if the Machine were installed now.
type change struct {
	reason, message string
}

// reasons of changes, the most important first. The first that applies becomes the reason of the condition.
var reasons = []string{
	v1alpha1.ReasonOSImageChanged, v1alpha1.ReasonUserDataChanged, v1alpha1.ReasonNetworkChanged,
	v1alpha1.ReasonNodeTypeChanged,
}

// Drift returns the condition Drifted, without its type, of a Machine that was installed with the given fields.
func (p *Plan) Drift(installed []v1alpha1.InstalledField) *metav1.Condition {
	changes := p.changes(installed)
	if len(changes) == 0 {
		return &metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUpToDate,
			Message: "a new Machine would be installed in the same way",
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		return slices.Index(reasons, a.reason) - slices.Index(reasons, b.reason)
	})
	messages := lo.Map(changes, func(c change, _ int) string { return c.message })
	return &metav1.Condition{
		Status: metav1.ConditionTrue, Reason: changes[0].reason, Message: strings.Join(messages, "; "),
	}
}

func (p *Plan) changes(installed []v1alpha1.InstalledField) []change {
	name := func(field v1alpha1.InstalledField) string { return v1alpha1.CanonicalKey(field.Field) }
	before, after := lo.KeyBy(installed, name), lo.KeyBy(p.Installed(), name)
	same := func(field string) bool {
		return before[field].Digest == after[field].Digest
	}
	fields := maps.Clone(before)
	maps.Copy(fields, after)
	var changes []change
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		// A new reference usually brings a new text. That is one change, not two.
		if reference := textOf[field]; same(field) || reference != "" && !same(reference) {
			continue
		}
		changes = append(changes, p.change(field, before[field], after[field]))
	}
	return changes
}

// change describes a changed field. An empty digest means that the field is not set.
func (p *Plan) change(field string, before, after v1alpha1.InstalledField) change {
	reason, known := reasonOf[field]
	switch {
	case known:
	case p.UserTemplate == nil && p.NetworkTemplate != nil: // a custom property, which the template reads
		reason = v1alpha1.ReasonNetworkChanged
	default:
		reason = v1alpha1.ReasonUserDataChanged
	}
	const then = " when the machine was installed"
	subject := p.subject(field)
	switch {
	case before.Digest == "":
		return change{reason, fmt.Sprintf("%s is %s, and was not set%s", subject, quoted(after), then)}
	case after.Digest == "":
		return change{reason, fmt.Sprintf("%s was %s%s, and is no longer set", subject, quoted(before), then)}
	case before.Value == after.Value:
		return change{reason, subject + " has been edited since the machine was installed"}
	}
	return change{reason, fmt.Sprintf("%s is %s, and was %s%s", subject, quoted(after), quoted(before), then)}
}

// subject names the field and the object that sets it.
func (p *Plan) subject(field string) string {
	switch field {
	case kubeReservedField:
		return field + " of NodeType " + p.NodeType
	case sshKeysField:
		return field + " of SSHKey " + p.Set.Get(v1alpha1.PropertySSHKeys)
	case userTemplateField, networkTemplateField:
		return field + " of MachineConfigTemplate " + p.Set.Get(textOf[field])
	}
	if source := p.Set.Source(field); source != "" {
		return "property " + field + " of " + source
	}
	return "property " + field
}

// quoted formats a value, or says that it is a document.
func quoted(field v1alpha1.InstalledField) string {
	if field.Value == "" {
		return "a document"
	}
	return fmt.Sprintf("%q", field.Value)
}
