// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// hostSelector validates the selector of a type, and returns it parsed; nil if it is not valid or selects everything by
// mistake.
func (r *Result) hostSelector(path *field.Path, selector *metav1.LabelSelector, mayBeEmpty bool) labels.Selector {
	before := r.errorCount()
	for _, name := range sortedKeys(selector.MatchLabels) {
		at := key(path.Child("matchLabels"), name)
		r.syntax(RuleHostSelector, at, name, "cannot be the key of a label: ", validation.IsQualifiedName)
		r.syntax(RuleHostSelector, at, selector.MatchLabels[name], "cannot be the value of a label: ", validation.IsValidLabelValue)
	}
	for i := range selector.MatchExpressions {
		r.expression(path.Child("matchExpressions").Index(i), &selector.MatchExpressions[i])
	}
	if r.errorCount() > before {
		return nil
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 && !mayBeEmpty {
		r.deny(RuleHostSelector,
			field.Required(path, "an empty selector selects every server of the namespace: name a label that the servers of this type have, "+
				"or, if all of them are meant, name the type in the annotation "+v1alpha1.SelectAllHostsAnnotationKey))
		return nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		r.deny(RuleHostSelector, field.Invalid(path, "", err.Error()))
		return nil
	}
	requirements, _ := parsed.Requirements()
	if about, why := conflict(requirements); about != "" {
		r.deny(RuleHostSelector,
			field.Invalid(path, parsed.String(), fmt.Sprintf("no server can match: of the label %s, %s: take one of the two away", about, why)))
		return nil
	}
	return parsed
}

var labelOperators = []metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
}

func (r *Result) expression(path *field.Path, expression *metav1.LabelSelectorRequirement) {
	r.syntax(RuleHostSelector, path.Child("key"), expression.Key, "cannot be the key of a label: ", validation.IsQualifiedName)
	switch expression.Operator {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if len(expression.Values) == 0 {
			r.deny(RuleHostSelector,
				field.Required(path.Child("values"), fmt.Sprintf("%s compares with values: write at least one", expression.Operator)))
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(expression.Values) > 0 {
			r.deny(RuleHostSelector, field.Invalid(path.Child("values"), strings.Join(expression.Values, ", "),
				fmt.Sprintf("%s takes no values: leave them out, or write In or NotIn", expression.Operator)))
		}
	default:
		r.deny(RuleHostSelector, field.NotSupported(path.Child("operator"), expression.Operator, labelOperators))
	}
	for i, value := range expression.Values {
		r.syntax(RuleHostSelector, path.Child("values").Index(i), value, "cannot be the value of a label: ", validation.IsValidLabelValue)
	}
}

// selects warns of a selector that selects no server today, or servers of other types. own are the types not to compare
// with.
func (r *Result) selects(cluster Cluster, path *field.Path, namespace string, selector labels.Selector, own []string) {
	if r.warningsFull() {
		return
	}
	matching := cluster.Matching(namespace, selector)
	if matching.Total == 0 {
		r.warn(RuleHostSelector, path, "no server in namespace %s matches today: label the servers that are meant, or correct it", namespace)
	}
	for _, other := range sortedKeys(matching.Types) {
		if !slices.Contains(own, other) {
			r.overlap(path, other, matching.Types[other])
		}
	}
}

// warned is how many servers a warning names, which has one line.
const warned = 2

// bigEnough warns of servers that a type selects and that have less than it says. They are registered and labelled by
// others, so the type is admitted.
func (r *Result) bigEnough(cluster Cluster, path *field.Path, namespace string, selector labels.Selector, resources corev1.ResourceList) {
	if r.warningsFull() {
		return
	}
	if first, count := cluster.TooSmall(namespace, selector, resources); count > 0 {
		r.warn(RuleResources, path, "servers that it selects have less, and are not claimed as this type: %s",
			inventory.Named(first[:min(len(first), warned)], count))
	}
}

func (r *Result) overlap(path *field.Path, other string, count int) {
	servers := "servers match"
	if count == 1 {
		servers = "server matches"
	}
	r.warn(RuleHostSelector, path, "%d %s NodeType %s too: each is counted in both and claimed as one of them", count, servers, other)
}

// selectsAll tells whether the annotation says that the empty selector of a type is meant.
func selectsAll(object metav1.Object, name string) bool {
	for named := range strings.SplitSeq(object.GetAnnotations()[v1alpha1.SelectAllHostsAnnotationKey], ",") {
		if strings.TrimSpace(named) == name {
			return true
		}
	}
	return false
}
