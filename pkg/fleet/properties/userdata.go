// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// UserData returns the document for cloud-init, empty if there is none or if a template that is
// written in a more specific object takes its place. It is not checked.
func (s Set) UserData() string {
	return s.unlessOverridden(v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate)
}

// NetworkData returns the whole network data, empty if it is to be made from the network or from a template that is
// written in a more specific object. Whether it is network data is not looked at.
func (s Set) NetworkData() string {
	return s.unlessOverridden(v1alpha1.PropertyNetworkData, v1alpha1.PropertyNetworkDataTemplate)
}

// UserDataTemplate returns the name of the MachineConfigTemplate that makes the document for cloud-init, empty if none
// does: none is named, or UserData is not empty. The error is an *Error.
func (s Set) UserDataTemplate() (string, error) {
	return s.template(v1alpha1.PropertyUserDataTemplate, s.UserData())
}

// NetworkDataTemplate returns the name of the MachineConfigTemplate that makes the network data, empty if none does:
// none is named, or NetworkData is not empty. The error is an *Error.
func (s Set) NetworkDataTemplate() (string, error) {
	return s.template(v1alpha1.PropertyNetworkDataTemplate, s.NetworkData())
}

func (s Set) template(key, instead string) (string, error) {
	if instead != "" {
		return "", nil
	}
	return s.objectName(key, "a MachineConfigTemplate")
}

// unlessOverridden returns the document, unless a template is named in a more specific object: a Machine that names a
// template wants that, whatever document its NodeProvider has for all. In one and the same object the document wins.
func (s Set) unlessOverridden(document, template string) string {
	if s.Get(template) != "" && s.properties[template].rank > s.properties[document].rank {
		return ""
	}
	return s.Get(document)
}

// SSHKeys returns the names of the SSHKeys whose owners may log in, each once, in the order they are written in. The
// error is an *Error.
func (s Set) SSHKeys() ([]string, error) {
	if err := s.tooMany(v1alpha1.PropertySSHKeys, "names of SSHKeys"); err != nil {
		return nil, err
	}
	var names []string
	for _, name := range s.list(v1alpha1.PropertySSHKeys) {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, s.wrong(v1alpha1.PropertySSHKeys,
				fmt.Sprintf("holds %q, which cannot be the name of an SSHKey (%s)", name, strings.Join(problems, ", ")),
				"set it to the names of SSHKeys that exist, separated by commas")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// maxListed is how many values a list may have. Some are compared each with each.
const maxListed = 1000

// tooMany finds a list that is too long. The error is an *Error.
func (s Set) tooMany(key, what string) error {
	if count := strings.Count(s.Get(key), ",") + 1; count > maxListed {
		return s.wrong(key, fmt.Sprintf("holds %d %s, and %d are the most", count, what, maxListed), "write fewer of them")
	}
	return nil
}

// list returns the comma-separated parts of a value, without the spaces around them; nil if the property is not set.
func (s Set) list(key string) []string {
	value := s.Get(key)
	if value == "" {
		return nil
	}
	parts := strings.Split(value, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
