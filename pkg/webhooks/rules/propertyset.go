// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// properties looks at the properties of one object: keys, values, whole documents, and whether what they name exists.
func (v *Verdict) properties(fleet Fleet, path *field.Path, layer properties.Layer) {
	set := properties.Merge(layer)
	for _, err := range slices.Concat(set.Validate(), set.ValidateLabels()) {
		v.wrongProperty(path, err)
	}
	v.documents(path, set)
	v.references(fleet, path, set)
}

// wrongProperty notes what pkg/properties has found.
func (v *Verdict) wrongProperty(path *field.Path, err error) {
	var wrong *properties.Error
	if !errors.As(err, &wrong) {
		v.deny(RuleProperties, field.Invalid(path, "", shown(err.Error())))
		return
	}
	rule := RuleProperties
	if wrong.Property == v1alpha1.PropertyServerName {
		rule = RulePinning
	}
	v.deny(rule, field.Invalid(key(path, wrong.Property), wrong.Value, wrong.Problem+": "+wrong.Remedy))
}

// documents looks at whole documents that are written out. Their content is not repeated: it may hold secrets.
func (v *Verdict) documents(path *field.Path, set properties.Set) {
	if document := set.Get(v1alpha1.PropertyUserData); document != "" {
		if err := bootstrap.CheckCloudConfig([]byte(document)); err != nil {
			v.deny(RuleProperties, field.Invalid(key(path, v1alpha1.PropertyUserData), bytesOf(document), err.Error()))
		}
	}
	if document := set.Get(v1alpha1.PropertyNetworkData); document != "" {
		if err := bootstrap.CheckNetworkData([]byte(document)); err != nil {
			v.deny(RuleProperties, field.Invalid(key(path, v1alpha1.PropertyNetworkData), bytesOf(document), err.Error()))
		}
	}
}

// references warns of objects that do not exist. They may come later: nobody should have to write things in an order.
func (v *Verdict) references(fleet Fleet, path *field.Path, set properties.Set) {
	missing := func(property string, kind Kind, name string) {
		if name != "" && !fleet.Exists(kind, name) {
			v.warn(RuleReferences, key(path, property), "there is no %s %q yet: Machines get no server before there is", kind, name)
		}
	}
	// What cannot be a name has been said already.
	if name, err := set.OSImage(); err == nil {
		missing(v1alpha1.PropertyOSImage, KindOSImage, name)
	}
	if name, err := set.UserDataTemplate(); err == nil {
		missing(v1alpha1.PropertyUserDataTemplate, KindMachineConfigTemplate, name)
	}
	if name, err := set.NetworkDataTemplate(); err == nil {
		missing(v1alpha1.PropertyNetworkDataTemplate, KindMachineConfigTemplate, name)
	}
	if names, err := set.SSHKeys(); err == nil {
		for _, name := range names {
			missing(v1alpha1.PropertySSHKeys, KindSSHKey, name)
		}
	}
}
