// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// native are the resources without a domain that a node can have.
var native = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods}

// reservable are the resources that kubelet can set aside.
var reservable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "pid"}

// profile validates a hardware profile of any object, without its properties and its selector.
func (r *Result) profile(path *field.Path, profile *v1alpha1.HardwareProfile) {
	resources := path.Child("resources")
	r.leftOut(resources, profile)
	r.quantities(resources, profile.Resources, true)
	if profile.Cost != nil && *profile.Cost < 0 {
		r.deny(RuleResources, field.Invalid(path.Child("cost"), *profile.Cost,
			"costs are compared and cannot be less than nothing: write 0 or more"))
	}
	r.syntax(RuleNodes, path.Child("zone"), profile.Zone, "it is a label of the nodes: ", validation.IsValidLabelValue)
	if profile.Overhead != nil {
		r.reserved(path.Child("overhead", "kubeReserved"), profile)
	}
	r.deny(RuleDevices, devices.Validate(path.Child("devices"), profile.Devices)...)
	if listed := v1alpha1.Accelerators(profile.Resources); len(listed) > 0 && len(profile.Devices) > 0 {
		r.warn(RuleDevices, path.Child("devices"), "are taken for the same accelerators as %s in resources: they count once, as %d in "+
			"cost and quota. If they are others, write a cost, and a quota with room for them", listed[0], profile.CountAccelerators())
	}
	r.deadline(path.Child("provisioningDeadline"), profile)
}

// leftOut warns of a profile that leaves the size of its servers to inspection, which does not find accelerators.
func (r *Result) leftOut(path *field.Path, profile *v1alpha1.HardwareProfile) {
	if names := profile.LeftOut(); len(names) > 0 {
		r.warn(RuleResources, path, "leaves out %s: the least that Metal3 finds in the servers counts, and servers that it has not inspected "+
			"are not claimed", strings.Join(lo.Map(names, func(name corev1.ResourceName, _ int) string { return string(name) }), " and "))
	}
	if !profile.NamesNothing() {
		return
	}
	var found []string
	if hosts := profile.BareMetalHosts; hosts != nil && hosts.Selector != nil {
		if label := v1alpha1.AcceleratorLabel(hosts.Selector.MatchLabels); label != "" {
			found = []string{label}
		}
	}
	r.warn(RuleResources, path, "%s", capacity.NamesNoAccelerators(found))
}

// reserved validates the resources that a profile sets aside.
func (r *Result) reserved(path *field.Path, profile *v1alpha1.HardwareProfile) {
	for _, name := range sortedKeys(profile.Overhead.KubeReserved) {
		quantity := profile.Overhead.KubeReserved[name]
		entryPath := key(path, string(name))
		there, has := profile.Resources[name]
		switch {
		case !slices.Contains(reservable, name):
			r.deny(RuleResources, field.NotSupported(entryPath, name, reservable))
		case quantity.Sign() < 0:
			r.deny(RuleResources, field.Invalid(entryPath, quantity.String(), "less than nothing cannot be set aside: write 0 or more"))
		case has && quantity.Cmp(there) > 0:
			r.deny(RuleResources,
				field.Invalid(entryPath, quantity.String(),
					fmt.Sprintf("the server has %s of it, and nothing would be left: set less aside", there.String())))
		}
	}
}

// quantities validates names and amounts of resources. If positive is set, it also refuses 0.
func (r *Result) quantities(path *field.Path, resources corev1.ResourceList, positive bool) {
	for _, name := range sortedKeys(resources) {
		quantity, entryPath := resources[name], key(path, string(name))
		r.resourceName(entryPath, name)
		switch {
		case quantity.Sign() < 0:
			r.deny(RuleResources, field.Invalid(entryPath, quantity.String(), "there cannot be less than nothing of it: write how much there is"))
		case quantity.Sign() == 0 && positive:
			r.deny(RuleResources, field.Invalid(entryPath, quantity.String(), "must be greater than zero: leave out what a server does not have"))
		case (v1alpha1.IsExtended(name) || name == corev1.ResourcePods) && !whole(quantity):
			r.deny(RuleResources, field.Invalid(entryPath, quantity.String(), "devices are counted in whole ones: write a whole number"))
		}
	}
}

func (r *Result) resourceName(path *field.Path, name corev1.ResourceName) {
	if slices.Contains(native, name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		return
	}
	if !r.syntax(RuleResources, path, string(name), "is not the name of a resource: ", validation.IsQualifiedName) {
		return
	}
	if !strings.Contains(string(name), "/") {
		names := strings.Join(lo.Map(native, func(name corev1.ResourceName, _ int) string { return string(name) }), ", ")
		r.deny(RuleResources, field.Invalid(path, string(name), "is neither one of "+names+
			" nor an extended resource: write it with its domain, for example nvidia.com/gpu"))
	}
}

// whole reports whether a quantity is a whole number. Value rounds up, so the result is compared with the original.
func whole(quantity resource.Quantity) bool {
	return quantity.CmpInt64(quantity.Value()) == 0
}

// bytesOf describes a document that must not be shown.
func bytesOf(document string) string { return fmt.Sprintf("(%d bytes)", len(document)) }

func (r *Result) drivers(path *field.Path, drivers []string) {
	for i, driver := range drivers {
		if len(validation.IsDNS1123Subdomain(driver)) > 0 {
			r.deny(RuleDevices, field.Invalid(path.Index(i), driver, "is not the DNS name of a DRA driver: use a name like gpu.nvidia.com"))
		}
	}
}

// shortestBoot is the least time between two signs of progress of a server. The schema demands a positive deadline.
const shortestBoot = 5 * time.Minute

// deadline warns of a deadline that healthy servers would miss.
func (r *Result) deadline(path *field.Path, profile *v1alpha1.HardwareProfile) {
	given := profile.ProvisioningDeadline
	if given == nil || given.Duration <= 0 || given.Duration >= shortestBoot {
		return
	}
	what := "given up"
	if profile.OnError == v1alpha1.OnErrorReplace {
		what = "given up and quarantined"
	}
	r.warn(RuleDeadline, path, "%s is less than servers take to boot, and those that boot are %s: set it to how long one may go without "+
		"progress, for example 60m", given.Duration, what)
}

// kubeletArgs validates arguments of the kubelet. The schemas of Machines and MetalNodeClasses have the same rules.
// These rules are for older schemas, and for pools.
func (r *Result) kubeletArgs(path *field.Path, args v1alpha1.KubeletArgs) {
	for _, name := range sortedKeys(args) {
		r.kubeletArg(key(path, name), name, string(args[name]))
	}
}

func (r *Result) kubeletArg(path *field.Path, name, value string) {
	if err := bootstrap.CheckKubeletArgs(map[string]string{name: value}); err != nil {
		r.deny(RuleKubeletArgs, field.Invalid(path, value, err.Error()))
	}
}

// kubeletConfig validates the KubeletConfiguration of all pools, and returns the result.
func (r *Result) kubeletConfig(nodes *v1alpha1.PrivateNodes) compat.KubeletConfig {
	config := compat.ReadKubeletConfig(nodes)
	r.deny(RuleKubeletArgs, config.Wrong...)
	for _, arg := range config.Args {
		r.kubeletArg(arg.Path, arg.Name, arg.Value)
	}
	for _, set := range config.WithoutEffect {
		r.withoutEffect(set)
	}
	return config
}

// hostSelector validates the selector of a type that an object describes. Other facts change with the servers: whether
// it selects any server, whether the servers are as big as declared, and which other types they belong to. Conditions
// of the NodeType report these.
func (r *Result) hostSelector(path *field.Path, object metav1.Object, profile *v1alpha1.HardwareProfile, name string) {
	selector := profile.HostSelector(object, name)
	if selector == nil {
		r.warn(RuleHostSelector, path, "bareMetalHosts is left out: the type has no servers until it names a selector, or is named in the "+
			"annotation %s", v1alpha1.SelectAllHostsAnnotationKey)
		return
	}
	path = path.Child("selector")
	before := r.errorCount()
	r.deny(RuleHostSelector, bootstrap.CheckLabels(path.Child("matchLabels"), selector.MatchLabels)...)
	for i, expression := range selector.MatchExpressions {
		expressionPath := path.Child("matchExpressions").Index(i)
		if !slices.Contains(labelOperators, expression.Operator) {
			r.deny(RuleHostSelector, field.NotSupported(expressionPath.Child("operator"), expression.Operator, labelOperators))
		}
		r.deny(RuleHostSelector, metav1validation.ValidateLabelSelectorRequirement(expression,
			metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, expressionPath)...)
	}
	if r.errorCount() > before {
		return
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 && !v1alpha1.SelectsAllHosts(object, name) {
		r.deny(RuleHostSelector,
			field.Required(path, "an empty selector selects every server of the namespace: name a label that the servers of this type have, "+
				"or, if all of them are meant, name the type in the annotation "+v1alpha1.SelectAllHostsAnnotationKey))
		return
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		r.deny(RuleHostSelector, field.Invalid(path, "", err.Error()))
		return
	}
	requirements, _ := parsed.Requirements()
	if about, why := conflict(requirements); about != "" {
		r.deny(RuleHostSelector, field.Invalid(path, parsed.String(), "no server can match: "+why))
	}
}

var labelOperators = []metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
}
