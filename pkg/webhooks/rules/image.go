// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// OSImage validates an OSImage that is created, or updated from before.
func OSImage(cluster Cluster, before, after *v1alpha1.OSImage) Result {
	r := &Result{}
	path := field.NewPath("spec", "properties")
	layer := properties.Layer{Source: string(KindOSImage) + " " + after.Name, Values: after.Spec.Properties}
	r.properties(cluster, path, layer)
	set := properties.Merge(layer)
	var wrong *properties.Error
	if _, err := set.Image(); r.Allowed() && errors.As(err, &wrong) {
		// Machines may have what the image lacks, so this is no fault of the image yet.
		r.warn(RuleProperties, key(path, wrong.Property), "%s: %s", wrong.Problem, wrong.Remedy)
	}
	if before != nil && r.Allowed() {
		old := properties.Merge(properties.Layer{Values: before.Spec.Properties})
		if set.Get(v1alpha1.PropertyImageURL) != old.Get(v1alpha1.PropertyImageURL) ||
			set.Get(v1alpha1.PropertyImageChecksum) != old.Get(v1alpha1.PropertyImageChecksum) {
			r.warn(RuleImmutable, path, "machines that are running keep the image that they have: to roll them over, make a new OSImage and name "+
				"it in the NodeType")
		}
	}
	return r.done()
}

// SSHKey validates an SSHKey.
func SSHKey(key *v1alpha1.SSHKey) Result {
	r := &Result{}
	if _, err := bootstrap.AuthorizedKey(key.Spec.PublicKey); err != nil {
		r.deny(RuleSSHKey, field.Invalid(field.NewPath("spec", "publicKey"), bytesOf(key.Spec.PublicKey), err.Error()))
	}
	return r.done()
}

// MachineConfigTemplate validates a MachineConfigTemplate.
func MachineConfigTemplate(template *v1alpha1.MachineConfigTemplate) Result {
	r := &Result{}
	for _, one := range []struct{ field, text string }{
		{"cloudInitTemplate", template.Spec.CloudInitTemplate},
		{"networkDataTemplate", template.Spec.NetworkDataTemplate},
	} {
		if one.text == "" {
			continue
		}
		if err := bootstrap.CheckSyntax(bootstrap.Template{Name: "it", Text: one.text}); err != nil {
			r.deny(RuleTemplate, field.Invalid(field.NewPath("spec", one.field), bytesOf(one.text), problemOf(err)))
		}
	}
	return r.done()
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
