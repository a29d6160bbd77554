// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/autonodes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Names of the policies, and of their bindings.
const (
	// DeviceClassesPolicy protects DeviceClasses while they are in sync.
	DeviceClassesPolicy = "karpenter-metal3-device-classes"
	// ResourceClaimsPolicy warns of claims that name a class that does not exist.
	ResourceClaimsPolicy = "karpenter-metal3-resource-claims"
)

// PoolsPolicy returns the name of the policy that protects the NodePools and MetalNodeClasses of a TenantCluster.
// Several TenantClusters may share a tenant cluster.
func PoolsPolicy(tenant types.NamespacedName) string {
	return "karpenter-metal3-pools." + autonodes.OwnerLabel(tenant)
}

// policy is a ValidatingAdmissionPolicy with its one binding.
type policy struct {
	name    string
	spec    admissionregistrationv1.ValidatingAdmissionPolicySpec
	actions []admissionregistrationv1.ValidationAction
}

var (
	deny  = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	warn  = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	write = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update,
		admissionregistrationv1.Delete}
)

// poolsPolicy protects the objects of a TenantCluster. Only the trusted users may write them, create objects with their
// label, or remove that label. No other class may pin its Machines to one server, even if it has the label with another
// value: any user can write that.
func poolsPolicy(tenant types.NamespacedName, users []string) policy {
	const ownerLabel, pin = v1alpha1.TenantPoolLabelKey, v1alpha1.PropertyServerName
	labelled := func(object string) string {
		return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.labels) && '%[2]s' in %[1]s.metadata.labels", object, ownerLabel)
	}
	marked := func(object string) string {
		return fmt.Sprintf("(%s && %s.metadata.labels['%s'] == '%s')", labelled(object), object, ownerLabel, autonodes.OwnerLabel(tenant))
	}
	message := fmt.Sprintf("it is generated from TenantCluster %s in the management cluster: change its spec.privateNodes.autoNodes there",
		tenant)
	return policy{name: PoolsPolicy(tenant), actions: deny, spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    ptr.To(admissionregistrationv1.Fail),
		MatchConstraints: matching(resources("karpenter.sh", write, "nodepools"), resources(v1alpha1.Group, write, "metalnodeclasses")),
		MatchConditions: []admissionregistrationv1.MatchCondition{
			notBy(users),
			// Karpenter writes finalizers and annotations.
			{Name: "writes", Expression: "request.operation != 'UPDATE' || object.spec != oldObject.spec || " + marked("object") + " != " +
				marked("oldObject")},
		},
		Variables: []admissionregistrationv1.Variable{
			{Name: "marked", Expression: marked("object") + " || " + marked("oldObject")},
			{Name: "ofPool", Expression: marked("object")},
		},
		Validations: []admissionregistrationv1.Validation{
			{Expression: "!variables.marked", Message: message, Reason: ptr.To(metav1.StatusReasonForbidden)},
			{
				Expression: fmt.Sprintf("variables.ofPool || object == null || request.resource.resource != 'metalnodeclasses' || "+
					"!has(object.spec.properties) || !object.spec.properties.exists(key, key in %s)", list(v1alpha1.Spellings(pin))),
				Message: "spec.properties must not hold " + pin +
					", which pins one Machine to one server: a class is for many Machines, so make it a " +
					"static pool of quantity 1",
				Reason: ptr.To(metav1.StatusReasonInvalid),
			},
		},
	}}
}

// deviceClassesPolicy leaves DeviceClasses to the sync.
func deviceClassesPolicy(users []string) policy {
	return policy{name: DeviceClassesPolicy, actions: deny, spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    ptr.To(admissionregistrationv1.Fail),
		MatchConstraints: matching(resources("resource.k8s.io", write, "deviceclasses")),
		MatchConditions:  []admissionregistrationv1.MatchCondition{notBy(users)},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "false", Reason: ptr.To(metav1.StatusReasonForbidden),
			Message: "the DeviceClasses of this cluster are those that the platform allows, and are kept in sync with it: ask the platform for " +
				"others",
		}},
	}}
}

// resourceClaimsPolicy warns of claims and templates that name other classes than the given ones. It admits them: the
// class may be created later.
func resourceClaimsPolicy(classes []string) policy {
	const missing = ".filter(name, name != '' && !(name in variables.available))"
	return policy{name: ResourceClaimsPolicy, actions: warn, spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    ptr.To(admissionregistrationv1.Ignore),
		MatchConstraints: matching(resources("resource.k8s.io", write[:1], "resourceclaims", "resourceclaimtemplates")),
		Variables: []admissionregistrationv1.Variable{
			{Name: "available", Expression: list(classes)},
			{Name: "devices", Expression: "request.resource.resource == 'resourceclaims' ? object.spec.devices : object.spec.spec.devices"},
			{Name: "requests", Expression: "has(variables.devices.requests) ? variables.devices.requests : []"},
			{Name: "exactly", Expression: "variables.requests.filter(r, has(r.exactly)).map(r, r.exactly.deviceClassName)" + missing},
			{Name: "alternatives", Expression: "variables.requests.filter(r, has(r.firstAvailable)).map(r, r.firstAvailable.map(s, " +
				"s.deviceClassName)" + missing + ".join(', ')).filter(names, names != '')"},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "size(variables.exactly) + size(variables.alternatives) == 0",
			MessageExpression: fmt.Sprintf("'DeviceClass ' + (variables.exactly + variables.alternatives).join(', ') + ' is not available in this "+
				"cluster (%s): the claim is not in sync before it is'",
				thereAre(classes)),
		}},
	}}
}

// listed is how many names a warning lists.
const listed = 5

// matching returns the matching rules of a policy with all the API server's defaults, so that they can be compared.
func matching(rules ...admissionregistrationv1.NamedRuleWithOperations) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: rules, MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}
}

func resources(group string, operations []admissionregistrationv1.OperationType,
	names ...string) admissionregistrationv1.NamedRuleWithOperations {
	version := "*"
	if group == "resource.k8s.io" {
		version = "v1" // requests of older versions are converted to it
	}
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: names,
			Scope: ptr.To(admissionregistrationv1.AllScopes)},
	}}
}

// notBy excludes requests of these users.
func notBy(users []string) admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "not-the-provider", Expression: "!(request.userInfo.username in " + list(users) + ")"}
}

// list writes a list in CEL, sorted: the policy must not change with the order of the words.
func list(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range slices.Compact(slices.Sorted(slices.Values(words))) {
		quoted[i] = "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(word) + "'"
	}
	return "[" + strings.Join(slices.DeleteFunc(quoted, func(text string) bool { return text == "" }), ", ") + "]"
}

// AllowedTypesPolicy returns the name of the policy that rejects NodePools with a type that the tenant may not have.
func AllowedTypesPolicy(tenant types.NamespacedName) string {
	return "karpenter-metal3-allowed-types." + autonodes.OwnerLabel(tenant)
}

// RequirementsPolicy returns the name of the policy that warns of NodePools with unmet requirements or an expireAfter.
func RequirementsPolicy(tenant types.NamespacedName) string {
	return "karpenter-metal3-requirements." + autonodes.OwnerLabel(tenant)
}

// servers is what a tenant's NodePools can require.
type servers struct {
	// keys are all node labels; own is the part that NodeTypes define.
	keys, own []string
	// types are the names of all NodeTypes; forbidden are the names that the tenant may not have.
	types, forbidden []string
}

// serversFor collects the types and labels for a tenant.
func serversFor(tenant *v1alpha1.TenantCluster, nodeTypes []v1alpha1.NodeType) servers {
	s := servers{keys: karpv1.WellKnownLabels.UnsortedList()}
	s.keys = append(s.keys, v1alpha1.Spellings(v1alpha1.NodeTypeLabelKey)...)
	for i := range nodeTypes {
		nodeType := &nodeTypes[i]
		s.types = append(s.types, nodeType.Name)
		if !tenant.Allows(nodeType.Name, nodeType.MadeBy()) {
			s.forbidden = append(s.forbidden, nodeType.Name)
		}
		for _, requirement := range nodeType.Status.Requirements {
			s.keys = append(s.keys, v1alpha1.Spellings(requirement.Key)...)
			s.own = append(s.own, v1alpha1.CanonicalKey(requirement.Key))
		}
	}
	slices.Sort(s.own)
	s.own = slices.Compact(s.own)
	slices.Sort(s.types)
	return s
}

// typeLabels are the labels that hold the name of a type.
var typeLabels = list(append(v1alpha1.Spellings(v1alpha1.NodeTypeLabelKey), corev1.LabelInstanceTypeStable))

// ofNodePools returns a policy about the requirements of NodePools with a MetalNodeClass.
func ofNodePools(name string, users []string, actions []admissionregistrationv1.ValidationAction) policy {
	return policy{name: name, actions: actions, spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		// The manager enforces the allowed types in any case.
		FailurePolicy:    ptr.To(admissionregistrationv1.Ignore),
		MatchConstraints: matching(resources("karpenter.sh", write[:2], "nodepools")),
		MatchConditions: []admissionregistrationv1.MatchCondition{
			notBy(users),
			{Name: "spec-changes", Expression: "request.operation != 'UPDATE' || object.spec != oldObject.spec"},
			{Name: "metal3", Expression: fmt.Sprintf("object.spec.template.spec.nodeClassRef.group == '%s'", v1alpha1.Group)},
		},
		Variables: []admissionregistrationv1.Variable{
			{Name: "requirements", Expression: "has(object.spec.template.spec.requirements) ? object.spec.template.spec.requirements : []"},
			{Name: "named", Expression: "variables.requirements.filter(r, r.key in " + typeLabels + " && r.operator == 'In').map(r, r.values)"},
		},
	}}
}

// allowedTypesPolicy rejects NodePools with types that the tenant may not have, or bounds that core cannot plan.
func allowedTypesPolicy(tenant types.NamespacedName, users []string, available servers) policy {
	p := ofNodePools(AllowedTypesPolicy(tenant), users, deny)
	p.spec.Variables = append(p.spec.Variables,
		admissionregistrationv1.Variable{Name: "forbidden", Expression: list(available.forbidden)},
		admissionregistrationv1.Variable{Name: "wrong", Expression: "variables.named.map(values, values.filter(value, value in " +
			"variables.forbidden).join(', ')).filter(names, names != '')"})
	p.spec.Validations = []admissionregistrationv1.Validation{{
		Expression: "size(variables.wrong) == 0", Reason: ptr.To(metav1.StatusReasonForbidden),
		MessageExpression: "'spec.template.spec.requirements: NodeType ' + variables.wrong.join(', ') + ' is not among the allowedNodeTypes of " +
			"TenantCluster " + tenant.String() + ": require another, or have it allowed'",
	}, {
		// For a label that no NodeType has, Karpenter takes a random number within the bounds. If there is no number,
		// it panics, and makes no node for any pod of the tenant.
		Expression: "variables.requirements.all(r, !(r.operator in ['Gt', 'Gte', 'Lt', 'Lte']) || int(r.values[0]) <= 999999999999999999 && " +
			"(r.operator != 'Lt' || int(r.values[0]) > 0))",
		Message: "spec.template.spec.requirements: the value of Gt, Gte, Lt and Lte is a number of at most 18 digits, and more than 0 with Lt: " +
			"no server has a label beyond these",
	}}
	return p
}

// requirementsPolicy warns of NodePools that require a label or a type that does not exist, or whose nodes expire.
func requirementsPolicy(tenant types.NamespacedName, users []string, available servers) policy {
	p := ofNodePools(RequirementsPolicy(tenant), users, warn)
	p.spec.Variables = append(p.spec.Variables,
		admissionregistrationv1.Variable{Name: "keys", Expression: list(available.keys)},
		admissionregistrationv1.Variable{Name: "types", Expression: list(available.types)},
		admissionregistrationv1.Variable{Name: "unknown", Expression: "variables.requirements.filter(r, !(r.operator in ['NotIn', " +
			"'DoesNotExist']) && !(r.key in variables.keys)).map(r, r.key)"},
		// All names of a requirement must be unknown: one known name is enough.
		admissionregistrationv1.Variable{Name: "missing", Expression: "variables.named.filter(values, !values.exists(value, value in " +
			"variables.types)).map(values, values.join(', '))"})
	p.spec.Validations = []admissionregistrationv1.Validation{
		{
			Expression: "size(variables.unknown) == 0",
			MessageExpression: "'spec.template.spec.requirements: no NodeType has the property ' + variables.unknown.join(', ') + ' (" +
				strings.ReplaceAll(thereAre(available.own), "'", "") + "): it selects no servers, and becomes a label of the nodes'",
		},
		{
			Expression: "size(variables.missing) == 0",
			MessageExpression: "'spec.template.spec.requirements: there is no NodeType ' + variables.missing.join(', ') + ' (" +
				strings.ReplaceAll(thereAre(available.types), "'", "") + ")'",
		},
		{
			Expression: "!has(object.spec.template.spec.expireAfter) || object.spec.template.spec.expireAfter == 'Never'",
			Message:    "spec.template.spec.expireAfter: " + v1alpha1.ExpiryWarning,
		},
	}
	return p
}

// thereAre lists the first names, and counts the others.
func thereAre(names []string) string {
	return "there are " + cmp.Or(conditions.List(names, listed), "none")
}
