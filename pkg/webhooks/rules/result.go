// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules validates the kinds of the API. It has one function for each kind, which takes the object, its state
// before an update, and an interface to the rest of the cluster. The result has all errors at once, and warnings for
// the author. Rules read and write nothing themselves, and the size of the object limits their time.
package rules

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Rule names a rule, in metrics.
type Rule string

// The rules.
const (
	// RulePinning: a pin is on a Machine or on a static pool of one server, and the server is available.
	RulePinning Rule = "pinning"
	// RuleHostSelector: the selector of a NodeType selects servers, and the intended ones.
	RuleHostSelector Rule = "host-selector"
	// RuleNodeTypeSelector: the selector of a pool or a Machine selects NodeTypes.
	RuleNodeTypeSelector Rule = "node-type-selector"
	// RuleResources: resources have the names and amounts that Kubernetes uses.
	RuleResources Rule = "resources"
	// RuleProperties: properties have valid keys and values.
	RuleProperties Rule = "properties"
	// RuleReferences: referenced objects exist.
	RuleReferences Rule = "references"
	// RuleInUse: an object in use is not deleted.
	RuleInUse Rule = "in-use"
	// RuleNames: names that must be unique are unique.
	RuleNames Rule = "names"
	// RuleNodes: labels and taints of nodes are valid.
	RuleNodes Rule = "nodes"
	// RuleTemplate: templates parse.
	RuleTemplate Rule = "template"
	// RuleSSHKey: public keys parse.
	RuleSSHKey Rule = "ssh-key"
	// RuleAllowed: the tenant is allowed to use the type.
	RuleAllowed Rule = "allowed-types"
	// RuleNodeProfile: the tenant is allowed to use the NodeProfile.
	RuleNodeProfile Rule = "allowed-profiles"
	// RuleQuota: the tenant may have another server.
	RuleQuota Rule = "quota"
	// RuleNamespaces: tenants do not share a namespace with servers, and do not refer to each other.
	RuleNamespaces Rule = "namespaces"
	// RuleDevices: DRA drivers can publish the devices.
	RuleDevices Rule = "devices"
	// RuleDeadline: healthy servers keep their deadlines.
	RuleDeadline Rule = "deadline"
	// RuleKubeletArgs: a join can pass the arguments to the kubelet.
	RuleKubeletArgs Rule = "kubelet-args"
	// RulePodClaims: the pods of a tenant refer only to its own claims on the host.
	RulePodClaims Rule = "pod-claims"
	// RulePodResources: the pods of a tenant get only devices of its own classes, even by resources of containers.
	RulePodResources Rule = "pod-resources"
	// RuleSpelling: fields have the form of the schema.
	RuleSpelling Rule = "spelling"
	// RuleNoEffect: fields of the reference that do nothing here, and fields that nobody knows.
	RuleNoEffect Rule = "no-effect"
	// RuleTopology: nodes inherit labels that show which servers share a fabric, and its tenants have partitions of it.
	RuleTopology Rule = "topology"
	// RuleMirrors: servers can use the mirrors.
	RuleMirrors Rule = "mirrors"
	// RuleImmutable: fields whose change would need a new server do not change.
	RuleImmutable Rule = "immutable"
)

// Limits of a response. A longer one would not be readable, and the response to a huge object must not be huge.
const (
	maxErrors   = 50
	maxWarnings = 10
	// maxPaths is how many fields a warning names.
	maxPaths = 3
	// maxCollected is how many different warnings are collected before the most important ones are listed.
	maxCollected = 100
	// maxWarning and maxReason are the lengths of one warning and of the detail of one error, in bytes.
	maxWarning = 250
	maxReason  = 1000
)

// Result is the outcome of the rules for an object. The zero value admits it without a warning.
type Result struct {
	// Errors are the faults in the object's fields. Any error denies the object.
	Errors field.ErrorList
	// Refusal is why the request is denied for a reason other than a field of the object.
	Refusal string
	// Warnings are single lines for the author: first warnings about who gets a server, then names that do not exist
	// yet, and last fields without an effect. A warning about several fields is one line.
	Warnings []string
	// Denied and Warned are the rules of the errors and warnings, each once.
	Denied, Warned []Rule
	// causes are the rules of the errors, one for each error.
	causes []Rule
	// omittedErrors and omittedWarnings count the ones that are not listed.
	omittedErrors, omittedWarnings int
	// warnings become Warnings once all are known.
	warnings []warning
}

// warning is a text about the fields at some paths; more counts further fields.
type warning struct {
	rule  Rule
	paths []string
	more  int
	text  string
}

// rank orders warnings. Higher ranks are listed later.
func (w warning) rank() int {
	switch w.rule {
	case RuleReferences:
		return 1
	case RuleNoEffect, RuleSpelling:
		return 2
	}
	return 0
}

// String returns the warning as one line, with as many paths as fit: "spec.labels, spec.taints and 3 more: ...".
func (w warning) String() string {
	fields, listed := w.paths[0], 1
	for _, path := range w.paths[1:] {
		if len(fields)+len(path)+len(w.text)+len(", and 1000 more: ") > maxWarning {
			break
		}
		fields, listed = fields+", "+path, listed+1
	}
	if more := w.more + len(w.paths) - listed; more > 0 {
		fields += fmt.Sprintf(" and %d more", more)
	}
	return oneLine(fields+": "+w.text, maxWarning)
}

// Allowed reports whether the request is admitted.
func (r *Result) Allowed() bool { return len(r.Errors) == 0 && r.Refusal == "" }

// deny records faults of fields. It cuts values and details: users write them, and some are very long.
func (r *Result) deny(rule Rule, errs ...*field.Error) {
	for _, err := range errs {
		r.Denied = appendOnce(r.Denied, rule)
		if len(r.Errors) >= maxErrors {
			r.omittedErrors++
			continue
		}
		if value := reflect.ValueOf(err.BadValue); value.Kind() == reflect.String {
			err.BadValue = shown(value.String())
		}
		err.Field = oneLine(err.Field, maxReason)
		err.Detail = oneLine(err.Detail, maxReason)
		r.Errors, r.causes = append(r.Errors, err), append(r.causes, rule)
	}
}

// syntax denies a value that a check of apimachinery rejects, and reports whether the value is valid. The detail of the
// error begins with the message.
func (r *Result) syntax(rule Rule, path *field.Path, value, message string, check func(string) []string) bool {
	problems := check(value)
	if len(problems) > 0 {
		r.deny(rule, field.Invalid(path, value, message+properties.Because(problems)))
	}
	return len(problems) == 0
}

// refuse records why the whole request is denied.
func (r *Result) refuse(rule Rule, format string, arguments ...any) {
	r.Denied = appendOnce(r.Denied, rule)
	r.Refusal = fmt.Sprintf(format, arguments...)
}

// warn records a warning about a field for the author.
func (r *Result) warn(rule Rule, path *field.Path, format string, arguments ...any) {
	r.addWarning(warning{rule: rule, paths: []string{path.String()}, text: oneLine(fmt.Sprintf(format, arguments...), maxWarning)})
}

func (r *Result) addWarning(added warning) {
	r.Warned = appendOnce(r.Warned, added.rule)
	same := slices.IndexFunc(r.warnings, func(w warning) bool { return w.rule == added.rule && w.text == added.text })
	switch {
	case same >= 0:
		known := &r.warnings[same]
		room := max(0, min(len(added.paths), maxPaths-len(known.paths)))
		known.paths, known.more = append(known.paths, added.paths[:room]...), known.more+added.more+len(added.paths)-room
	case r.warningsFull():
		r.omittedWarnings++
	default:
		r.warnings = append(r.warnings, added)
	}
}

// warningsFull reports whether there are too many warnings to look at more. Rules that only warn are then skipped.
func (r *Result) warningsFull() bool { return len(r.warnings) >= maxCollected }

// errorCount returns how many errors there are, listed or not.
func (r *Result) errorCount() int { return len(r.Errors) + r.omittedErrors }

// done adds how many errors and warnings have been left out.
func (r Result) done() Result {
	if r.omittedErrors > 0 {
		r.Errors = append(r.Errors,
			field.Forbidden(field.NewPath("spec"), fmt.Sprintf("there are %d more errors: correct these first", r.omittedErrors)))
		r.omittedErrors = 0
	}
	slices.SortStableFunc(r.warnings, func(a, b warning) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, warning := range r.warnings[:min(len(r.warnings), maxWarnings)] {
		r.Warnings = append(r.Warnings, warning.String())
	}
	r.omittedWarnings += max(0, len(r.warnings)-maxWarnings)
	r.warnings = nil
	if r.omittedWarnings > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("spec: there are %d more warnings", r.omittedWarnings))
		r.omittedWarnings = 0
	}
	return r
}

// Add adds the errors and the warnings of another result.
func (r *Result) Add(other Result) {
	r.Errors, r.causes = append(r.Errors, other.Errors...), append(r.causes, other.causes...)
	r.Warnings = append(r.Warnings, other.Warnings...)
	for _, rule := range other.Denied {
		r.Denied = appendOnce(r.Denied, rule)
	}
	for _, rule := range other.Warned {
		r.Warned = appendOnce(r.Warned, rule)
	}
}

// Ratchet judges an edit only by the errors that it adds: an error that the object already had becomes a warning. A
// referenced object can disappear, and a new version can be stricter. Neither may keep an operator from another edit.
func Ratchet[T any](judge func(cluster Cluster, before, after *T) Result) func(cluster Cluster, before, after *T) Result {
	return func(cluster Cluster, before, after *T) Result {
		result := judge(cluster, before, after)
		if before == nil || len(result.Errors) == 0 || len(result.Errors) > maxErrors {
			return result
		}
		had := map[string]int{}
		for _, err := range judge(cluster, before, before).Errors {
			had[indexes.ReplaceAllString(err.Error(), "")]++
		}
		errs, causes := result.Errors, result.causes
		result.Errors, result.causes, result.Denied = nil, nil, nil
		for i, err := range errs {
			if same := indexes.ReplaceAllString(err.Error(), ""); had[same] > 0 {
				had[same]--
				result.addWarning(warning{rule: causes[i], paths: []string{err.Field}, text: "it was so before this edit: " + err.ErrorBody()})
				continue
			}
			result.deny(causes[i], err)
		}
		if result.Refusal != "" {
			result.Denied = appendOnce(result.Denied, RuleInUse)
		}
		return result.done()
	}
}

// indexes matches the indexes in paths, which change with earlier entries of a list.
var indexes = regexp.MustCompile(`\[\d+\]`)

func sortedKeys[M ~map[K]V, K cmp.Ordered, V any](m M) []K { return slices.Sorted(maps.Keys(m)) }

func appendOnce(rules []Rule, rule Rule) []Rule {
	if slices.Contains(rules, rule) {
		return rules
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

// shown returns a value in a form for an error.
func shown(value string) string { return oneLine(value, 100) }

// key returns the path of an entry of a map, in the notation of the documentation:
// properties["karpenter.metal3.io/os-image"].
func key(path *field.Path, name string) *field.Path {
	return path.Key(fmt.Sprintf("%q", shown(name)))
}

// Kind is a kind that other objects refer to.
type Kind string

// Kinds that other objects refer to.
const (
	KindNodeProvider          Kind = "NodeProvider"
	KindNodeType              Kind = "NodeType"
	KindNodeProfile           Kind = "NodeProfile"
	KindOSImage               Kind = "OSImage"
	KindSSHKey                Kind = "SSHKey"
	KindMachineConfigTemplate Kind = "MachineConfigTemplate"
	// KindTenantCluster is namespaced: its names are namespace/name.
	KindTenantCluster Kind = "TenantCluster"
)

// Cluster is the view of the management cluster for rules. Its results are shared and must not be modified.
type Cluster interface {
	// NodeProviders returns all NodeProviders, sorted by name.
	NodeProviders() []*v1alpha1.NodeProvider
	// NodeTypes returns all NodeTypes, sorted by name.
	NodeTypes() []*v1alpha1.NodeType
	// NodeType returns the NodeType with the name, nil if there is none.
	NodeType(name string) *v1alpha1.NodeType
	// Exists reports whether there is an object with the name.
	Exists(kind Kind, name string) bool
	// TenantClusters returns the TenantClusters of a namespace, or all if it is empty.
	TenantClusters(namespace string) []*v1alpha1.TenantCluster
	// NamespaceLabels returns the labels of a namespace.
	NamespaceLabels(name string) map[string]string
	// PinnedTo returns the Machines that are pinned to a server with the name.
	PinnedTo(server string) []*v1alpha1.Machine
	// Charged returns the Machines that are charged to a TenantCluster.
	Charged(tenant types.NamespacedName) []*v1alpha1.Machine
	// Users returns the objects that refer to an object, by kind and name, sorted.
	Users(kind Kind, name string) []string
	// QuotaRest returns what the quota of a tenant leaves beside its servers, not counting the Machine's.
	QuotaRest(tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine) quota.Rest

	// Server returns a server, and reports whether it is known.
	Server(key types.NamespacedName) (inventory.Server, bool)
	// Inherits reports whether nodes inherit a label of hosts.
	Inherits(label string) bool
	// Offered returns the labels that nodes of a type can have, with all their values.
	Offered(nodeType string) []v1alpha1.NodeTypeRequirement
	// Choose returns the server that a Machine would get now. It reserves nothing.
	Choose(request inventory.Request) (inventory.Choice, error)
}

// Deleted validates the deletion of an object, and refuses it while others refer to the object.
func Deleted(cluster Cluster, kind Kind, name string) Result {
	r := &Result{}
	if users := cluster.Users(kind, name); len(users) > 0 {
		r.refuse(RuleInUse, "it is in use by %s: have them use something else, or delete them first", list(users))
	}
	return *r
}

// ProviderDeleted validates the deletion of a NodeProvider, which also deletes its NodeTypes.
func ProviderDeleted(cluster Cluster, provider *v1alpha1.NodeProvider) Result {
	r := &Result{}
	for _, nodeType := range cluster.NodeTypes() {
		if nodeType.Spec.ProviderRef.Name != provider.Name {
			continue
		}
		if users := cluster.Users(KindNodeType, nodeType.Name); len(users) > 0 {
			r.refuse(RuleInUse, "its NodeType %s is in use by %s: delete them first", nodeType.Name, list(users))
			return *r
		}
	}
	return *r
}

// TenantDeleted validates the deletion of a TenantCluster. It also deletes its Machines, and limits the drain of their
// nodes.
func TenantDeleted(cluster Cluster, tenant *v1alpha1.TenantCluster) Result {
	r := &Result{}
	machines := cluster.Users(KindTenantCluster, client.ObjectKeyFromObject(tenant).String())
	if len(machines) > 0 && tenant.DeletionTimestamp.IsZero() && !tenant.ConfirmsDeletion(len(machines)) {
		r.refuse(RuleInUse, "%d of its servers would be released, and their nodes drained for no longer than "+
			"spec.drainTimeout: %s. Delete the tenant's NodePools first, or confirm: %s", len(machines), list(machines),
			tenant.HowToConfirmDeletion(len(machines)))
	}
	return *r
}
