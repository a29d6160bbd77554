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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/autonodes"
)

// AllowedTypesPolicy is the name of the policy that rejects NodePools with a type that the tenant may not have.
func AllowedTypesPolicy(tenant types.NamespacedName) string {
	return "karpenter-metal3-allowed-types." + autonodes.OwnerLabel(tenant)
}

// RequirementsPolicy is the name of the policy that warns of NodePools with requirements that no NodeType meets.
func RequirementsPolicy(tenant types.NamespacedName) string {
	return "karpenter-metal3-requirements." + autonodes.OwnerLabel(tenant)
}

// servers is what a tenant's NodePools can require.
type servers struct {
	// keys of the labels that nodes can have. Own are those of them that come from NodeTypes.
	keys, own []string
	// types are the names of all NodeTypes, forbidden those that the tenant may not have.
	types, forbidden []string
}

// serversFor collects the types and labels for a tenant.
func serversFor(tenant *v1alpha1.TenantCluster, nodeTypes []v1alpha1.NodeType) servers {
	s := servers{keys: karpv1.WellKnownLabels.UnsortedList()}
	s.keys = append(s.keys, v1alpha1.NodeTypeLabelKey)
	for i := range nodeTypes {
		nodeType := &nodeTypes[i]
		s.types = append(s.types, nodeType.Name)
		if !tenant.Allows(nodeType.Name, nodeType.Spec.ProviderRef.Name) {
			s.forbidden = append(s.forbidden, nodeType.Name)
		}
		for _, requirement := range nodeType.Status.Requirements {
			s.own = append(s.own, requirement.Key)
		}
	}
	s.keys = append(s.keys, s.own...)
	slices.Sort(s.own)
	s.own = slices.Compact(s.own)
	slices.Sort(s.types)
	return s
}

// typeLabels are the labels that hold the name of a type.
var typeLabels = list([]string{v1alpha1.NodeTypeLabelKey, corev1.LabelInstanceTypeStable})

// ofNodePools is a policy about the requirements of NodePools with a MetalNodeClass.
func ofNodePools(name string, users []string, actions []admissionregistrationv1.ValidationAction) policy {
	return policy{name: name, actions: actions, spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		// The manager enforces it in any case.
		FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
			resources("karpenter.sh", write[:2], "nodepools"),
		}},
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

// allowedTypesPolicy rejects NodePools that name types which the tenant may not have.
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
	}}
	return p
}

// requirementsPolicy warns of NodePools that require a label or a type which does not exist.
func requirementsPolicy(tenant types.NamespacedName, users []string, available servers) policy {
	p := ofNodePools(RequirementsPolicy(tenant), users, warn)
	p.spec.Variables = append(p.spec.Variables,
		admissionregistrationv1.Variable{Name: "keys", Expression: list(available.keys)},
		admissionregistrationv1.Variable{Name: "types", Expression: list(available.types)},
		admissionregistrationv1.Variable{Name: "unknown", Expression: "variables.requirements.filter(r, !(r.operator in ['NotIn', " +
			"'DoesNotExist']) && !(r.key in variables.keys)).map(r, r.key)"},
		// All of the names of a requirement must be unknown: one that is known will do.
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
	}
	return p
}

// thereAre lists the first names, and counts the others.
func thereAre(names []string) string {
	return "there are " + cmp.Or(conditions.List(names, listed), "none")
}
