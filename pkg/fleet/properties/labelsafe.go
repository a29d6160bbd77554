// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// anyValue stands for any value of a property.
const anyValue = "*"

// freeText are the properties whose values have a form of their own, which Validate knows, or none: they cannot be
// labels, and nobody selects by them.
var freeText = []string{
	v1alpha1.PropertyOSImage, v1alpha1.PropertyServerName, v1alpha1.PropertySSHKeys,
	v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageChecksumType,
	v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate,
	v1alpha1.PropertyNetworkData, v1alpha1.PropertyNetworkDataTemplate,
	v1alpha1.PropertyNetworkCIDR, v1alpha1.PropertyNetworkIPRange, v1alpha1.PropertyDNSServers,
}

// ValidateLabels returns what of the set cannot be a label, each fault as an *Error, in the order of the keys; nil if
// nothing is wrong. Keys must be those of labels. Values too, or several of them separated by commas, or "*", unless the
// property has a form of its own. Machines do not fail for it; nobody could select by such a property.
func (s Set) ValidateLabels() []error {
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(s.properties)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			faults = append(faults, s.wrong(key, "has a key that cannot be one of a label ("+Because(problems)+")",
				"write a name, or a domain, a slash and a name, for example example.com/team"))
			continue
		}
		if slices.Contains(freeText, key) {
			continue
		}
		for _, value := range s.list(key) {
			if problems := validation.IsValidLabelValue(value); value != anyValue && len(problems) > 0 {
				faults = append(faults, s.wrong(key, "has a value that cannot be one of a label ("+Because(problems)+")",
					"write letters, digits, -, _ and . only, several values separated by commas, or * for any"))
				break
			}
		}
	}
	return faults
}

// Because joins what apimachinery reports of a value, without the regular expressions.
func Because(problems []string) string {
	short := make([]string, len(problems))
	for i := range problems {
		short[i], _, _ = strings.Cut(problems[i], " (e.g. ")
	}
	return strings.Join(short, ", ")
}
