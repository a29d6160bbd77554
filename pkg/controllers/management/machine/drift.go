// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// change is one field that a new Machine would be installed with another value of.
type change struct {
	reason, message string
}

// reasons of changes, the most important first: it becomes the reason of the condition.
var reasons = []string{
	v1alpha1.ReasonOSImageChanged, v1alpha1.ReasonUserDataChanged, v1alpha1.ReasonNetworkChanged, v1alpha1.ReasonNodeTypeChanged,
}

// checkDrift adds to the facts whether a new Machine would be installed in the same way.
func (r *Reconciler) checkDrift(ctx context.Context, now *run, f *facts) error {
	status := &now.machine.Status
	if now.host == nil || now.host.Spec.Image == nil || f.installed != nil || !strings.HasPrefix(status.PropertiesHash, installedVersion) {
		return nil
	}
	planned, err := r.planOf(ctx, now.machine, status.NodeTypeRef.Name)
	if err == nil && hashOf(planned.installed()) != status.PropertiesHash {
		err = planned.validate(now.machine, now.host)
	}
	if problem, wrong := whatIsInvalid(err); wrong {
		// A replacement could not be installed: keep this one.
		f.drifted = &metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonInvalidSpec,
			Message: "a new Machine could not be installed, so this one is not replaced: " + problem,
		}
		return nil
	}
	if err != nil {
		return err
	}
	f.drifted = driftOf(status.Installed, planned)
	return nil
}

// driftOf is the condition Drifted for what was installed and what would be installed now.
func driftOf(installed []v1alpha1.InstalledField, planned *plan) *metav1.Condition {
	changes := changesOf(installed, planned)
	if len(changes) == 0 {
		return &metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUpToDate, Message: "a new Machine would be installed in the same way",
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return slices.Index(reasons, a.reason) - slices.Index(reasons, b.reason) })
	messages := make([]string, len(changes))
	for i := range changes {
		messages[i] = changes[i].message
	}
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: changes[0].reason, Message: strings.Join(messages, "; ")}
}

func changesOf(installed []v1alpha1.InstalledField, planned *plan) []change {
	was, is := byField(installed), byField(planned.installed())
	same := func(field string) bool { return was[field].Digest == is[field].Digest }
	fields := maps.Clone(was)
	maps.Copy(fields, is)
	var changes []change
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		// If the reference changed, a change of the text is no second change.
		if reference := textOf[field]; same(field) || reference != "" && !same(reference) {
			continue
		}
		changes = append(changes, planned.change(field, was[field], is[field]))
	}
	return changes
}

func byField(fields []v1alpha1.InstalledField) map[string]v1alpha1.InstalledField {
	all := make(map[string]v1alpha1.InstalledField, len(fields))
	for _, field := range fields {
		all[field.Field] = field
	}
	return all
}

// change describes a changed field. A field without a digest is not set.
func (p *plan) change(field string, was, is v1alpha1.InstalledField) change {
	reason, known := reasonOf[field]
	switch {
	case known:
	case p.userTemplate == nil && p.networkTemplate != nil: // a property of the user's own, which the template reads
		reason = v1alpha1.ReasonNetworkChanged
	default:
		reason = v1alpha1.ReasonUserDataChanged
	}
	subject := p.subject(field)
	switch {
	case was.Digest == "":
		return change{reason, fmt.Sprintf("%s is %s, and was not set when the machine was installed", subject, quoted(is))}
	case is.Digest == "":
		return change{reason, fmt.Sprintf("%s was %s when the machine was installed, and is no longer set", subject, quoted(was))}
	case was.Value == is.Value:
		return change{reason, subject + " has been edited since the machine was installed"}
	}
	return change{reason, fmt.Sprintf("%s is %s, and was %s when the machine was installed", subject, quoted(is), quoted(was))}
}

// subject names the field and the object that sets it.
func (p *plan) subject(field string) string {
	switch field {
	case kubeReservedField:
		return field + " of NodeType " + p.nodeType
	case sshKeysField:
		return field + " of SSHKey " + p.set.Get(v1alpha1.PropertySSHKeys)
	case userTemplateField, networkTemplateField:
		return field + " of MachineConfigTemplate " + p.set.Get(textOf[field])
	}
	if source := p.set.Source(field); source != "" {
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

// recordDrift records an event when the condition Drifted has changed.
func (r *Reconciler) recordDrift(before, after *v1alpha1.Machine) {
	was, is := condition(before, v1alpha1.ConditionDrifted), condition(after, v1alpha1.ConditionDrifted)
	if was.Status == is.Status && was.Message == is.Message || is.Status == "" || is.Status == metav1.ConditionFalse && was.Status == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if warnings[is.Reason] {
		kind = corev1.EventTypeWarning
	}
	r.event(after, kind, is.Reason, is.Message)
}
