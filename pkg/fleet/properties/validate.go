// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"slices"
	"strings"

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

// pinned finds a pin in an object that stands for many Machines: every one of them would want the same server.
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
