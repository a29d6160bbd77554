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

// Validate returns everything that is wrong with the values of the set, each fault as an *Error, in the order of the
// keys; nil if nothing is. It looks at what is there: that something is missing, for example an image, may be because
// a more general object has it, so only Image says so. Whether what the values name exists is not looked at, nor are
// whole documents.
func (s Set) Validate() []error {
	checks := []func() error{
		func() error { _, err := s.OSImage(); return err },
		func() error { _, err := s.ServerName(); return err },
		s.pinned,
		func() error { _, err := s.SSHKeys(); return err },
		func() error {
			_, err := s.objectName(v1alpha1.PropertyUserDataTemplate, "a MachineConfigTemplate")
			return err
		},
		func() error {
			_, err := s.objectName(v1alpha1.PropertyNetworkDataTemplate, "a MachineConfigTemplate")
			return err
		},
		s.imageURL,
		func() error { _, _, err := s.checksum(); return err },
		func() error { _, _, err := s.Network(); return err },
	}
	var faults []error
	for _, check := range checks {
		if err := check(); err != nil {
			faults = append(faults, err)
		}
	}
	// Network stops at its first fault, the name servers.
	if _, err := s.nameServers(); err != nil {
		if _, _, other := s.without(v1alpha1.PropertyDNSServers).Network(); other != nil {
			faults = append(faults, other)
		}
	}
	slices.SortStableFunc(faults, func(a, b error) int { return strings.Compare(keyOf(a), keyOf(b)) })
	return faults
}

// pinned finds a pin in an object for many Machines, which would all need the same server.
func (s Set) pinned() error {
	for _, kind := range []string{kindProvider, kindType, kindOSImage} {
		if s.Get(v1alpha1.PropertyServerName) != "" && strings.HasPrefix(s.Source(v1alpha1.PropertyServerName), kind+" ") {
			return s.wrong(v1alpha1.PropertyServerName, "pins every Machine of the "+kind+" to one server",
				"set it on the one Machine that shall have the server")
		}
	}
	return nil
}

func (s Set) imageURL() error {
	if s.Get(v1alpha1.PropertyImageURL) == "" {
		return nil
	}
	_, err := s.parsedImageURL()
	return err
}

// without returns the set without a property.
func (s Set) without(key string) Set {
	rest := Set{properties: make(map[string]property, len(s.properties))}
	for other, value := range s.properties {
		if other != key {
			rest.properties[other] = value
		}
	}
	return rest
}

func keyOf(err error) string {
	if wrong, ok := err.(*Error); ok {
		return wrong.Property
	}
	return ""
}

// anyValue stands for any value of a property.
const anyValue = "*"

// freeText are the properties whose values have a form of their own, which Validate knows, or none: they cannot be
// labels, and cannot be selected by.
var freeText = []string{
	v1alpha1.PropertyOSImage, v1alpha1.PropertyServerName, v1alpha1.PropertySSHKeys,
	v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageChecksumType,
	v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate,
	v1alpha1.PropertyNetworkData, v1alpha1.PropertyNetworkDataTemplate,
	v1alpha1.PropertyNetworkCIDR, v1alpha1.PropertyNetworkIPRange, v1alpha1.PropertyDNSServers,
}

// LabelValues returns the values that a property has as a label of nodes: one, or several separated by commas. any is true
// for "*", which stands for every value. Both are zero if the property cannot be a label. A property with a form of its own
// has at most one.
func LabelValues(key, value string) (values []string, any bool) {
	if value == "" || len(validation.IsQualifiedName(key)) > 0 || key == v1alpha1.PropertyServerName {
		return nil, false
	}
	if slices.Contains(freeText, key) {
		values = []string{value}
	} else if values = splitList(value); slices.Contains(values, anyValue) {
		return nil, true
	}
	for _, one := range values {
		if len(validation.IsValidLabelValue(one)) > 0 {
			return nil, false
		}
	}
	return values, false
}

// ValidateLabels returns what of the set cannot be a label, each fault as an *Error, in the order of the keys; nil if
// nothing is wrong. Keys must be those of labels. Values too, or several of them separated by commas, or "*", unless
// the property has a form of its own. Machines do not fail for it; such a property could not be selected by.
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
