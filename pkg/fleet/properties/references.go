// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"

// Reference is an object that a property names.
type Reference struct {
	// Property is the key of the property.
	Property string
	// Kind is KindOSImage, KindSSHKey or KindMachineConfigTemplate.
	Kind string
	Name string
	// Overridden is true for a template that a document replaces. Nothing is installed from it.
	Overridden bool
}

// String returns the key of the object in an index: "OSImage/ubuntu".
func (r Reference) String() string { return r.Kind + "/" + r.Name }

// References returns the objects that the properties name: the OSImage, then the SSHKeys, then the templates for user
// data and for network data. It skips values that cannot be names; Validate reports them. It includes the objects that
// the OSImage names only after WithOSImage.
func (s Set) References() []Reference {
	var all []Reference
	if name, err := s.OSImage(); err == nil && name != "" {
		all = append(all, Reference{Property: v1alpha1.PropertyOSImage, Kind: KindOSImage, Name: name})
	}
	names, _ := s.SSHKeys()
	for _, name := range names {
		all = append(all, Reference{Property: v1alpha1.PropertySSHKeys, Kind: KindSSHKey, Name: name})
	}
	for _, template := range []struct{ property, document string }{
		{v1alpha1.PropertyUserDataTemplate, s.UserData()},
		{v1alpha1.PropertyNetworkDataTemplate, s.NetworkData()},
	} {
		if name, err := s.objectName(template.property, "a "+KindMachineConfigTemplate); err == nil && name != "" {
			all = append(all, Reference{Property: template.property, Kind: KindMachineConfigTemplate, Name: name,
				Overridden: template.document != ""})
		}
	}
	return all
}
