// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// OSImage returns the name of the OSImage to install, empty if none is named. The error is an *Error.
func (s Set) OSImage() (string, error) {
	return s.objectName(v1alpha1.PropertyOSImage, "an OSImage")
}

// ServerName returns the name of the BareMetalHost that the Machine is pinned to, empty if it is not pinned. The error
// is an *Error.
func (s Set) ServerName() (string, error) {
	return s.objectName(v1alpha1.PropertyServerName, "a BareMetalHost")
}

func (s Set) objectName(key, kind string) (string, error) {
	name := s.Get(key)
	if name == "" {
		return "", nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", s.wrong(key, "cannot be the name of "+kind+" ("+strings.Join(problems, ", ")+")", "set it to the name of "+kind+" that exists")
	}
	return name, nil
}
