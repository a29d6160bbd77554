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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// SelectAllAnnotation on a NodeProvider or a NodeType names the types, separated by commas, whose empty selector is
// meant: they are to have every server of the namespace.
const SelectAllAnnotation = v1alpha1.Group + "/select-all-hosts"

// hostSelector looks at the selector of a type, and returns it parsed; nil if it is not valid or selects everything by
// mistake.
func (v *Verdict) hostSelector(path *field.Path, selector *metav1.LabelSelector, mayBeEmpty bool) labels.Selector {
	before := len(v.Errors) + v.omittedErrors
	for _, name := range sortedKeys(selector.MatchLabels) {
		at, value := key(path.Child("matchLabels"), name), selector.MatchLabels[name]
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			v.deny(RuleHostSelector, field.Invalid(at, shown(name), "cannot be the key of a label: "+because(problems)))
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			v.deny(RuleHostSelector, field.Invalid(at, shown(value), "cannot be the value of a label: "+because(problems)))
		}
	}
	for i := range selector.MatchExpressions {
		v.expression(path.Child("matchExpressions").Index(i), &selector.MatchExpressions[i])
	}
	if len(v.Errors)+v.omittedErrors > before {
		return nil
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 && !mayBeEmpty {
		v.deny(RuleHostSelector, field.Required(path, "an empty selector selects every server of the namespace: name a label that the servers of this type have, "+
			"or, if all of them are meant, name the type in the annotation "+SelectAllAnnotation))
		return nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		v.deny(RuleHostSelector, field.Invalid(path, "", shown(err.Error())))
		return nil
	}
	requirements, _ := parsed.Requirements()
	if about, why := contradiction(requirements); about != "" {
		v.deny(RuleHostSelector, field.Invalid(path, shown(parsed.String()), fmt.Sprintf("no server can match: of the label %s, %s: take one of the two away", about, why)))
		return nil
	}
	return parsed
}

var labelOperators = []metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
}

func (v *Verdict) expression(path *field.Path, expression *metav1.LabelSelectorRequirement) {
	if problems := validation.IsQualifiedName(expression.Key); len(problems) > 0 {
		v.deny(RuleHostSelector, field.Invalid(path.Child("key"), shown(expression.Key), "cannot be the key of a label: "+because(problems)))
	}
	switch expression.Operator {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if len(expression.Values) == 0 {
			v.deny(RuleHostSelector, field.Required(path.Child("values"), fmt.Sprintf("%s compares with values: write at least one", expression.Operator)))
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(expression.Values) > 0 {
			v.deny(RuleHostSelector, field.Invalid(path.Child("values"), shown(strings.Join(expression.Values, ", ")),
				fmt.Sprintf("%s takes no values: leave them out, or write In or NotIn", expression.Operator)))
		}
	default:
		v.deny(RuleHostSelector, field.NotSupported(path.Child("operator"), metav1.LabelSelectorOperator(shown(string(expression.Operator))), labelOperators))
	}
	for i, value := range expression.Values {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			v.deny(RuleHostSelector, field.Invalid(path.Child("values").Index(i), shown(value), "cannot be the value of a label: "+because(problems)))
		}
	}
}

// selects warns of a selector that selects nothing today, and of other types that have servers in common with it.
// own are the types that it is compared with elsewhere or not at all.
func (v *Verdict) selects(fleet Fleet, path *field.Path, namespace string, selector labels.Selector, own []string) {
	if v.deaf() {
		return
	}
	matching := fleet.Matching(namespace, selector)
	if matching.Total == 0 {
		v.warn(RuleHostSelector, path, "no server in namespace %s matches today: label the servers that are meant, or correct it", namespace)
	}
	for _, other := range sortedKeys(matching.Types) {
		if !slices.Contains(own, other) {
			v.overlap(path, other, matching.Types[other])
		}
	}
}

// warned is how many servers a warning names, which has one line.
const warned = 2

// bigEnough warns of servers that a type selects and that have less than it says. They are registered and labelled by
// others, so the type is admitted.
func (v *Verdict) bigEnough(fleet Fleet, path *field.Path, namespace string, selector labels.Selector, resources corev1.ResourceList) {
	if v.deaf() {
		return
	}
	if first, count := fleet.TooSmall(namespace, selector, resources); count > 0 {
		v.warn(RuleResources, path, "servers that it selects have less, and are not claimed as this type: %s", hosts.Named(first[:min(len(first), warned)], count))
	}
}

func (v *Verdict) overlap(path *field.Path, other string, count int) {
	servers := "servers match"
	if count == 1 {
		servers = "server matches"
	}
	v.warn(RuleHostSelector, path, "%d %s NodeType %s too: each is counted in both and claimed as one of them", count, servers, other)
}

// selectsAll tells whether the annotation says that the empty selector of a type is meant.
func selectsAll(object metav1.Object, name string) bool {
	for named := range strings.SplitSeq(object.GetAnnotations()[SelectAllAnnotation], ",") {
		if strings.TrimSpace(named) == name {
			return true
		}
	}
	return false
}
