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

// change is one field that a Machine made now would have another value of.
type change struct {
	reason, message string
}

// reasons of changes, the most telling first: it becomes the reason of the condition.
var reasons = []string{
	v1alpha1.ReasonOSImageChanged, v1alpha1.ReasonUserDataChanged, v1alpha1.ReasonNetworkChanged, v1alpha1.ReasonNodeTypeChanged,
}

// noteDrift adds to the facts whether the machine is as one would be that is installed now.
func (r *Reconciler) noteDrift(ctx context.Context, now *run, f *facts) error {
	status := &now.machine.Status
	if now.host == nil || now.host.Spec.Image == nil || f.installed != nil || !strings.HasPrefix(status.PropertiesHash, installedVersion) {
		return nil
	}
	planned, err := r.planned(ctx, now.machine, status.NodeTypeRef.Name)
	if err == nil && hashOf(planned.installed()) != status.PropertiesHash {
		err = planned.rehearse(now.machine, now.host)
	}
	if problem, wrong := whatIsInvalid(err); wrong {
		// Whatever took its place could not be installed: better this one, as it is, than none.
		f.drifted = &metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonInvalidSpec,
			Message: "no Machine could be installed now, so this one stays as it is: " + problem,
		}
		return nil
	}
	if err != nil {
		return err
	}
	f.drifted = driftOf(status.Installed, planned)
	return nil
}

// driftOf is the condition Drifted that follows from what was installed and what would be now.
func driftOf(installed []v1alpha1.InstalledField, planned *plan) *metav1.Condition {
	changes := changesOf(installed, planned)
	if len(changes) == 0 {
		return &metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUpToDate, Message: "a Machine made now would be installed in the same way",
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
		// That the text of one object differs from that of another says nothing new.
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

// change says what a field was and what it is. A value without a digest is none.
func (p *plan) change(field string, was, is v1alpha1.InstalledField) change {
	reason, known := reasonOf[field]
	switch {
	case known:
	case p.userTemplate == nil && p.networkTemplate != nil: // people's own, which the template reads
		reason = v1alpha1.ReasonNetworkChanged
	default:
		reason = v1alpha1.ReasonUserDataChanged
	}
	subject := p.subject(field)
	switch {
	case was.Digest == "":
		return change{reason, fmt.Sprintf("%s is %s, and was not set when the machine was installed", subject, quoted(is))}
	case is.Digest == "":
		return change{reason, fmt.Sprintf("%s was %s when the machine was installed, and is not set any more", subject, quoted(was))}
	case was.Value == is.Value:
		return change{reason, subject + " has been edited since the machine was installed"}
	}
	return change{reason, fmt.Sprintf("%s is %s, and was %s when the machine was installed", subject, quoted(is), quoted(was))}
}

// subject is the field with the object that it is written in.
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

// quoted shows a value, or that it is one that is not shown.
func quoted(field v1alpha1.InstalledField) string {
	if field.Value == "" {
		return "a document"
	}
	return fmt.Sprintf("%q", field.Value)
}

// reportDrift tells of a machine that is not, or not any more, as one would be that is installed now.
func (r *Reconciler) reportDrift(before, after *v1alpha1.Machine) {
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
