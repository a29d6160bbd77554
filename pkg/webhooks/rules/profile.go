// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// native are the resources without a domain that a node can have.
var native = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods}

// reservable are what kubelet can set aside.
var reservable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "pid"}

// profile validates a hardware profile, wherever it is written. Properties and selector are looked at elsewhere.
func (r *Result) profile(path *field.Path, profile *v1alpha1.HardwareProfile) {
	resources := path.Child("resources")
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, named := profile.Resources[name]; !named {
			r.deny(RuleResources,
				field.Required(key(resources, string(name)), "every server has some: say how much, for example {cpu: \"96\", memory: 768Gi}"))
		}
	}
	r.quantities(resources, profile.Resources, true)
	if profile.Cost != nil && *profile.Cost < 0 {
		r.deny(RuleResources, field.Invalid(path.Child("cost"), *profile.Cost,
			"costs are compared and cannot be less than nothing: write 0 or more"))
	}
	r.syntax(RuleNodes, path.Child("zone"), profile.Zone, "it is a label of the nodes: ", validation.IsValidLabelValue)
	if profile.Overhead != nil {
		r.reserved(path.Child("overhead", "kubeReserved"), profile)
	}
	r.devices(path, profile.Devices)
	r.deadline(path.Child("provisioningDeadline"), profile)
}

// reserved validates what is set aside of a profile's resources.
func (r *Result) reserved(path *field.Path, profile *v1alpha1.HardwareProfile) {
	for _, name := range sortedKeys(profile.Overhead.KubeReserved) {
		quantity := profile.Overhead.KubeReserved[name]
		at := key(path, string(name))
		there, has := profile.Resources[name]
		switch {
		case !slices.Contains(reservable, name):
			r.deny(RuleResources, field.NotSupported(at, name, reservable))
		case quantity.Sign() < 0:
			r.deny(RuleResources, field.Invalid(at, quantity.String(), "less than nothing cannot be set aside: write 0 or more"))
		case has && quantity.Cmp(there) > 0:
			r.deny(RuleResources,
				field.Invalid(at, quantity.String(), fmt.Sprintf("the server has %s of it, and nothing would be left: set less aside", there.String())))
		}
	}
}

// quantities validates names and amounts of resources. If they are to be positive, 0 is refused too.
func (r *Result) quantities(path *field.Path, resources corev1.ResourceList, positive bool) {
	for _, name := range sortedKeys(resources) {
		quantity, at := resources[name], key(path, string(name))
		r.resourceName(at, name)
		switch {
		case quantity.Sign() < 0:
			r.deny(RuleResources, field.Invalid(at, quantity.String(), "there cannot be less than nothing of it: write how much there is"))
		case quantity.Sign() == 0 && positive:
			r.deny(RuleResources, field.Invalid(at, quantity.String(), "must be greater than zero: leave out what a server does not have"))
		case counted(name) && !whole(quantity):
			r.deny(RuleResources, field.Invalid(at, quantity.String(), "devices are counted in whole ones: write a whole number"))
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
		r.deny(RuleResources, field.Invalid(path, string(name), "is neither one of "+join(native)+
			" nor an extended resource: write it with its domain, for example nvidia.com/gpu"))
	}
}

// counted tells whether there are only whole ones of a resource.
func counted(name corev1.ResourceName) bool {
	return v1alpha1.IsAccelerator(name) || name == corev1.ResourcePods
}

// whole tells whether a quantity is a whole number. Value rounds up, so it is compared with what it was made of.
func whole(quantity resource.Quantity) bool {
	return quantity.CmpInt64(quantity.Value()) == 0
}

func join[T ~string](words []T) string {
	text := make([]string, len(words))
	for i := range words {
		text[i] = string(words[i])
	}
	return strings.Join(text, ", ")
}

// bytesOf describes a document that is not to be shown.
func bytesOf(document string) string { return fmt.Sprintf("(%d bytes)", len(document)) }

// devices validates the devices of a type. path is that of its profile.
func (r *Result) devices(path *field.Path, groups []v1alpha1.NodeTypeDevice) {
	r.deny(RuleDevices, devices.Validate(path.Child("devices"), groups)...)
}

// drivers validates the DRA drivers that a Machine asks for.
func (r *Result) drivers(path *field.Path, drivers []string) {
	for i, driver := range drivers {
		if len(validation.IsDNS1123Subdomain(driver)) > 0 {
			r.deny(RuleDevices, field.Invalid(path.Index(i), driver, "is not the DNS name of a DRA driver: use a name like gpu.nvidia.com"))
		}
	}
}

// shortestBoot is how long a server takes at the least from one sign of progress to the next: that it is positive, the
// schema sees to.
const shortestBoot = 5 * time.Minute

// deadline warns of a deadline that healthy servers miss.
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

// kubeletArgs validates arguments of the kubelet. The schema has the same rules; these are for when it is older.
func (r *Result) kubeletArgs(path *field.Path, args v1alpha1.KubeletArgs) {
	for _, name := range sortedKeys(args) {
		if err := bootstrap.CheckKubeletArgs(map[string]string{name: string(args[name])}); err != nil {
			r.deny(RuleKubeletArgs, field.Invalid(key(path, name), string(args[name]), err.Error()))
		}
	}
}
