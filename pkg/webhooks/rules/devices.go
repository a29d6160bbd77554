// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// devices validates the devices of a type. path is that of its profile.
func (r *Result) devices(path *field.Path, groups []v1alpha1.NodeTypeDevice) {
	for _, fault := range devices.Faults(groups) {
		r.deny(RuleDevices, field.Invalid(path.Child(shown(fault.Field)), fault.Value, fault.Problem))
	}
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
