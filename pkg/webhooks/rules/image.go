// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// OSImage looks at an OSImage that is created, or changed from what it was before.
func OSImage(fleet Fleet, before, after *v1alpha1.OSImage) Verdict {
	v := &Verdict{}
	path := field.NewPath("spec", "properties")
	layer := properties.Layer{Source: string(KindOSImage) + " " + after.Name, Values: after.Spec.Properties}
	v.properties(fleet, path, layer)
	set := properties.Merge(layer)
	var wrong *properties.Error
	if _, err := set.Image(); v.Allowed() && errors.As(err, &wrong) {
		// Machines may have what the image lacks, so this is no fault of the image yet.
		v.warn(RuleProperties, key(path, wrong.Property), "%s: %s", wrong.Problem, wrong.Remedy)
	}
	if before != nil && v.Allowed() {
		old := properties.Merge(properties.Layer{Values: before.Spec.Properties})
		if set.Get(v1alpha1.PropertyImageURL) != old.Get(v1alpha1.PropertyImageURL) || set.Get(v1alpha1.PropertyImageChecksum) != old.Get(v1alpha1.PropertyImageChecksum) {
			v.warn(RuleImmutable, path, "machines that are running keep the image that they have: to roll them over, make a new OSImage and name it in the NodeType")
		}
	}
	return v.done()
}

// SSHKey looks at an SSHKey.
func SSHKey(key *v1alpha1.SSHKey) Verdict {
	v := &Verdict{}
	if _, err := bootstrap.AuthorizedKey(key.Spec.PublicKey); err != nil {
		v.deny(RuleSSHKey, field.Invalid(field.NewPath("spec", "publicKey"), bytesOf(key.Spec.PublicKey), err.Error()))
	}
	return v.done()
}

// MachineConfigTemplate looks at a MachineConfigTemplate.
func MachineConfigTemplate(template *v1alpha1.MachineConfigTemplate) Verdict {
	v := &Verdict{}
	for _, one := range []struct{ field, text string }{
		{"cloudInitTemplate", template.Spec.CloudInitTemplate},
		{"networkDataTemplate", template.Spec.NetworkDataTemplate},
	} {
		if one.text == "" {
			continue
		}
		if err := bootstrap.CheckSyntax(bootstrap.Template{Name: "it", Text: one.text}); err != nil {
			v.deny(RuleTemplate, field.Invalid(field.NewPath("spec", one.field), bytesOf(one.text), problemOf(err)))
		}
	}
	return v.done()
}

func problemOf(err error) string {
	var wrong *bootstrap.TemplateError
	if errors.As(err, &wrong) {
		named := *wrong
		named.Template = "is not a template"
		return named.Error()
	}
	return err.Error()
}
