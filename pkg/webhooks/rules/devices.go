// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/devices"
)

// devices looks at the devices of a type. path is that of its profile.
func (v *Verdict) devices(path *field.Path, groups []v1alpha1.NodeTypeDevice) {
	for _, fault := range devices.Faults(groups) {
		value := fault.Value
		if text, ok := value.(string); ok {
			value = shown(text)
		}
		v.deny(RuleDevices, field.Invalid(path.Child(shown(fault.Field)), value, oneLine(fault.Problem, maxReason)))
	}
}

// drivers looks at the DRA drivers that a Machine asks for.
func (v *Verdict) drivers(path *field.Path, drivers []string) {
	for i, driver := range drivers {
		if len(validation.IsDNS1123Subdomain(driver)) > 0 {
			v.deny(RuleDevices, field.Invalid(path.Index(i), shown(driver), "is not the DNS name of a DRA driver: use a name like gpu.nvidia.com"))
		}
	}
}

// shortestBoot is how long a server takes at the least from one sign of progress to the next: that it is positive, the
// schema sees to.
const shortestBoot = 5 * time.Minute

// deadline warns of a deadline that healthy servers miss.
func (v *Verdict) deadline(path *field.Path, profile *v1alpha1.HardwareProfile) {
	given := profile.ProvisioningDeadline
	if given == nil || given.Duration <= 0 || given.Duration >= shortestBoot {
		return
	}
	what := "given up"
	if profile.OnError == v1alpha1.OnErrorReplace {
		what = "given up and quarantined"
	}
	v.warn(RuleDeadline, path, "%s is less than servers take to boot, and those that boot are %s: set it to how long one may go without progress, for example 60m", given.Duration, what)
}

// kubeletArgs looks at arguments of the kubelet. The schema has the same rules; these are for when it is older.
func (v *Verdict) kubeletArgs(path *field.Path, args v1alpha1.KubeletArgs) {
	for _, name := range sortedKeys(args) {
		if err := bootstrap.CheckKubeletArgs(map[string]string{name: string(args[name])}); err != nil {
			v.deny(RuleKubeletArgs, field.Invalid(key(path, name), shown(string(args[name])), oneLine(fmt.Sprint(err), maxReason)))
		}
	}
}
