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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
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
	if now.host == nil || now.host.Spec.Image == nil || f.installed != nil || status.NodeTypeRef == nil ||
		!strings.HasPrefix(status.PropertiesHash, installedVersion) {
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

// Fields that the cache of Machines is indexed by, to find those that a change may make drift.
const (
	// typeField is the name of the NodeType of a Machine's server.
	typeField = "status.nodeTypeRef.name"
	// referenceField are the objects that a Machine's own properties refer to.
	referenceField = "spec.properties"
)

// watchDrift wakes the Machines that a change may make drift, and no others: those of a type, those of the types of a
// provider, and those that may be installed with an object that was edited, made or deleted.
func (r *Reconciler) watchDrift(b *builder.Builder) *builder.Builder {
	onSpec := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return b.
		Watches(&v1alpha1.NodeType{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, nodeType client.Object) []reconcile.Request {
			return r.installedOfTypes(ctx, nodeType.GetName())
		}), onSpec).
		Watches(&v1alpha1.NodeProvider{}, handler.EnqueueRequestsFromMapFunc(r.installedOfProvider), onSpec).
		Watches(&v1alpha1.OSImage{}, handler.EnqueueRequestsFromMapFunc(r.installedWith), onSpec).
		Watches(&v1alpha1.SSHKey{}, handler.EnqueueRequestsFromMapFunc(r.installedWith), onSpec).
		Watches(&v1alpha1.MachineConfigTemplate{}, handler.EnqueueRequestsFromMapFunc(r.installedWith), onSpec)
}

func (r *Reconciler) installedOfTypes(ctx context.Context, names ...string) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range names {
		requests = append(requests, r.machinesBy(ctx, client.MatchingFields{typeField: name})...)
	}
	return requests
}

func (r *Reconciler) installedOfProvider(ctx context.Context, provider client.Object) []reconcile.Request {
	return r.installedOfTypes(ctx, r.typesWhere(ctx, func(nodeType *v1alpha1.NodeType) bool {
		return nodeType.Spec.ProviderRef.Name == provider.GetName()
	})...)
}

// installedWith are the Machines that a Machine made now in their place would be installed with the object: those whose
// own properties refer to it, and those of types that do.
func (r *Reconciler) installedWith(ctx context.Context, object client.Object) []reconcile.Request {
	reference := referenceTo(object)
	requests := r.machinesBy(ctx, client.MatchingFields{referenceField: reference})
	return append(requests, r.installedOfTypes(ctx, r.typesWhere(ctx, func(nodeType *v1alpha1.NodeType) bool {
		provider := &v1alpha1.NodeProvider{}
		// A type without a provider refers to nothing that could be installed.
		if err := r.client.Get(ctx, types.NamespacedName{Name: nodeType.Spec.ProviderRef.Name}, provider); err != nil {
			return false
		}
		set := properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType))
		return slices.Contains(r.references(ctx, set), reference)
	})...)...)
}

// typesWhere are the names of the NodeTypes for which it holds. There are few of them, and all are in the cache.
func (r *Reconciler) typesWhere(ctx context.Context, holds func(*v1alpha1.NodeType) bool) []string {
	nodeTypes := &v1alpha1.NodeTypeList{}
	// It reads from the cache, which fails only when the process is stopping.
	if err := r.client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var names []string
	for i := range nodeTypes.Items {
		if holds(&nodeTypes.Items[i]) {
			names = append(names, nodeTypes.Items[i].Name)
		}
	}
	return names
}

// references are the objects that a set of properties refers to, by itself and by its OSImage.
func (r *Reconciler) references(ctx context.Context, set properties.Set) []string {
	all := sets.New(referencesOf(set)...)
	if name, err := set.OSImage(); err == nil && name != "" {
		osImage := &v1alpha1.OSImage{}
		if err := r.client.Get(ctx, types.NamespacedName{Name: name}, osImage); err == nil {
			all.Insert(referencesOf(set.WithOSImage(osImage))...)
		}
	}
	return all.UnsortedList()
}

func referencesOf(set properties.Set) []string {
	var all []string
	if name, err := set.OSImage(); err == nil && name != "" {
		all = append(all, "OSImage/"+name)
	}
	if names, err := set.SSHKeys(); err == nil {
		for _, name := range names {
			all = append(all, "SSHKey/"+name)
		}
	}
	for _, key := range []string{v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyNetworkDataTemplate} {
		if name := set.Get(key); name != "" {
			all = append(all, "MachineConfigTemplate/"+name)
		}
	}
	return all
}

func referenceTo(object client.Object) string {
	switch object.(type) {
	case *v1alpha1.OSImage:
		return "OSImage/" + object.GetName()
	case *v1alpha1.SSHKey:
		return "SSHKey/" + object.GetName()
	}
	return "MachineConfigTemplate/" + object.GetName()
}

func typeOf(object client.Object) []string {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok || machine.Status.NodeTypeRef == nil {
		return nil
	}
	return []string{machine.Status.NodeTypeRef.Name}
}

func ownReferencesOf(object client.Object) []string {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok {
		return nil
	}
	return referencesOf(properties.Merge(properties.OfMachine(machine)))
}
