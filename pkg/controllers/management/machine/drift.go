// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	messages := lo.Map(changes, func(one change, _ int) string { return one.message })
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: changes[0].reason, Message: strings.Join(messages, "; ")}
}

func changesOf(installed []v1alpha1.InstalledField, planned *plan) []change {
	field := func(one v1alpha1.InstalledField) string { return one.Field }
	was, is := lo.KeyBy(installed, field), lo.KeyBy(planned.installed(), field)
	same := func(field string) bool {
		return was[field].Digest == is[field].Digest || isURL(field) && was[field].Digest == digest(planned.set.Get(field)) // of an older manager
	}
	fields := maps.Clone(was)
	maps.Copy(fields, is)
	var changes []change
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		// If the reference changed, a change of the text is no second change.
		if reference := textOf[field]; same(field) || reference != "" && !same(reference) {
			continue
		}
		// A manager of an earlier version did not record it. An upgrade must not replace the servers of types that have had it since then.
		if field == v1alpha1.PropertyNTPServers && was[field].Digest == "" {
			continue
		}
		changes = append(changes, planned.change(field, was[field], is[field]))
	}
	return changes
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

func (r *Reconciler) installedOfType(ctx context.Context, nodeType *v1alpha1.NodeType) []reconcile.Request {
	return r.machinesBy(ctx, client.MatchingFields{typeField: nodeType.Name})
}

func (r *Reconciler) installedOfProvider(ctx context.Context, provider *v1alpha1.NodeProvider) []reconcile.Request {
	return r.installedOfTypes(ctx, func(nodeType *v1alpha1.NodeType) bool { return nodeType.Spec.ProviderRef.Name == provider.Name })
}

// installedWith are the Machines that a Machine made now in their place would be installed with the object: those whose
// own properties refer to it, and those of types that do.
func (r *Reconciler) installedWith(ctx context.Context, object client.Object) []reconcile.Request {
	reference := referenceTo(object)
	requests := r.machinesBy(ctx, client.MatchingFields{referenceField: reference})
	return append(requests, r.installedOfTypes(ctx, func(nodeType *v1alpha1.NodeType) bool {
		provider := &v1alpha1.NodeProvider{}
		// A type without a provider refers to nothing that could be installed.
		if err := r.client.Get(ctx, types.NamespacedName{Name: nodeType.Spec.ProviderRef.Name}, provider); err != nil {
			return false
		}
		set := properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType))
		return slices.Contains(r.references(ctx, set), reference)
	})...)
}

// installedOfTypes are the Machines of the NodeTypes for which it holds. There are few of them, and all are in the cache.
func (r *Reconciler) installedOfTypes(ctx context.Context, holds func(*v1alpha1.NodeType) bool) (requests []reconcile.Request) {
	nodeTypes := &v1alpha1.NodeTypeList{}
	// It reads from the cache, which fails only when the process is stopping.
	if err := r.client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for i := range nodeTypes.Items {
		if nodeType := &nodeTypes.Items[i]; holds(nodeType) {
			requests = append(requests, r.installedOfType(ctx, nodeType)...)
		}
	}
	return requests
}

// references are the objects that a set of properties refers to, by itself and by its OSImage.
func (r *Reconciler) references(ctx context.Context, set properties.Set) []string {
	all := referencesOf(set)
	if name, err := set.OSImage(); err == nil && name != "" {
		osImage := &v1alpha1.OSImage{}
		if err := r.client.Get(ctx, types.NamespacedName{Name: name}, osImage); err == nil {
			all = append(all, referencesOf(set.WithOSImage(osImage))...)
		}
	}
	return all
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

func typeOf(machine *v1alpha1.Machine) []string {
	if machine.Status.NodeTypeRef == nil {
		return nil
	}
	return []string{machine.Status.NodeTypeRef.Name}
}

func ownReferencesOf(machine *v1alpha1.Machine) []string {
	return referencesOf(properties.Merge(properties.OfMachine(machine)))
}

const (
	// installedVersion is the version of this list of fields. Records of another version are not compared: a manager with
	// one field more than the one before would have all Machines replaced.
	installedVersion = "v1-"
	// digestLength in hexadecimal digits. A collision only hides a change, so the digest is short.
	digestLength = 16

	// Fields that are no properties.
	kubeReservedField    = "spec.overhead.kubeReserved"
	userTemplateField    = "spec.cloudInitTemplate"
	networkTemplateField = "spec.networkDataTemplate"
	sshKeysField         = "spec.publicKey"
)

// textOf names the property that refers to the objects whose text a field is.
var textOf = map[string]string{
	userTemplateField:    v1alpha1.PropertyUserDataTemplate,
	networkTemplateField: v1alpha1.PropertyNetworkDataTemplate,
	sshKeysField:         v1alpha1.PropertySSHKeys,
}

// reasonOf the change of a field. The other properties do not shape what is installed, unless a template reads them.
var reasonOf = map[string]string{
	kubeReservedField:                    v1alpha1.ReasonNodeTypeChanged,
	userTemplateField:                    v1alpha1.ReasonUserDataChanged,
	sshKeysField:                         v1alpha1.ReasonUserDataChanged,
	networkTemplateField:                 v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyOSImage:             v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyImageURL:            v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyImageChecksum:       v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyImageChecksumType:   v1alpha1.ReasonOSImageChanged,
	v1alpha1.PropertyUserData:            v1alpha1.ReasonUserDataChanged,
	v1alpha1.PropertyUserDataTemplate:    v1alpha1.ReasonUserDataChanged,
	v1alpha1.PropertySSHKeys:             v1alpha1.ReasonUserDataChanged,
	v1alpha1.PropertyNetworkCIDR:         v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNetworkIPRange:      v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyDNSServers:          v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNTPServers:          v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNetworkData:         v1alpha1.ReasonNetworkChanged,
	v1alpha1.PropertyNetworkDataTemplate: v1alpha1.ReasonNetworkChanged,
}

// installed returns the fields that the plan installs, sorted. Values from an OSImage are left out: editing one in place does
// not replace any Machine.
func (p *plan) installed() []v1alpha1.InstalledField {
	fields := []v1alpha1.InstalledField{}
	add := func(field, value, shown string) {
		fields = append(fields, v1alpha1.InstalledField{Field: field, Value: shown, Digest: digest(value)})
	}
	for key, value := range p.set.Map() {
		if p.shapes(key) && !p.set.FromOSImage(key) {
			if isURL(key) {
				value = withoutUser(value)
			}
			add(key, value, p.set.Shown(key))
		}
	}
	if p.kubeReserved != "" {
		add(kubeReservedField, p.kubeReserved, p.kubeReserved)
	}
	for field, text := range p.texts() {
		if text != "" && !p.set.FromOSImage(textOf[field]) {
			add(field, text, "")
		}
	}
	slices.SortFunc(fields, func(a, b v1alpha1.InstalledField) int { return strings.Compare(a.Field, b.Field) })
	return fields
}

// texts are what the properties refer to and what is written into the documents, by field.
func (p *plan) texts() map[string]string {
	texts := map[string]string{sshKeysField: strings.Join(p.sshKeys, "\n")}
	if p.userTemplate != nil {
		texts[userTemplateField] = p.userTemplate.Text
	}
	if p.networkTemplate != nil {
		texts[networkTemplateField] = p.networkTemplate.Text
	}
	return texts
}

// shapes returns whether a property changes what is installed. Of a document and a template for the same purpose only one does,
// and of properties of users' own only those that a template names.
func (p *plan) shapes(key string) bool {
	switch key {
	case v1alpha1.PropertyOSImage:
		for filled := range p.set.Map() {
			if p.set.FromOSImage(filled) && p.shapes(filled) {
				return true
			}
		}
		return false
	case v1alpha1.PropertyUserData:
		return p.userTemplate == nil && p.set.UserData() != ""
	case v1alpha1.PropertyUserDataTemplate:
		return p.userTemplate != nil
	case v1alpha1.PropertyNetworkData:
		return p.networkTemplate == nil && p.set.NetworkData() != ""
	case v1alpha1.PropertyNetworkDataTemplate:
		return p.networkTemplate != nil
	}
	if _, known := reasonOf[key]; known {
		return true
	}
	return p.userTemplate != nil && strings.Contains(p.userTemplate.Text, key) ||
		p.networkTemplate != nil && strings.Contains(p.networkTemplate.Text, key)
}

// hashOf is the hash of all fields.
func hashOf(fields []v1alpha1.InstalledField) string {
	text := strings.Builder{}
	for _, field := range fields {
		text.WriteString(field.Field + "\x00" + field.Digest + "\x00")
	}
	return installedVersion + digest(text.String())
}

// isURL returns whether the value of a field can be a URL with credentials.
func isURL(field string) bool {
	return field == v1alpha1.PropertyImageURL || field == v1alpha1.PropertyImageChecksum
}

// withoutUser returns a URL without its user and password. With them, a reader of the status could try passwords until the digest is the
// same; and other credentials fetch the same image.
func withoutUser(value string) string {
	parsed, err := url.Parse(value)
	if err != nil || parsed.User == nil {
		return value
	}
	parsed.User = nil
	return parsed.String()
}

func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])[:digestLength]
}
