// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// secretWords are in user data that has a secret. That other user data has one is not seen.
var secretWords = regexp.MustCompile(`(?i)passw|secret|token|private key|api[-_]?key|chpasswd`)

// readByAll warns of secrets in the properties of a NodeProvider or a NodeType, which the providers of all tenants read.
func (r *Result) readByAll(path *field.Path, layer properties.Layer) {
	for _, name := range []string{v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum} {
		if parsed, err := url.Parse(layer.Values[name]); err == nil && (parsed.User != nil || parsed.RawQuery != "") {
			r.warn(RuleProperties, key(path, name), "has credentials or a query, which the providers of all tenants read here: put it "+
				"into an OSImage, which they do not read")
		}
	}
	for _, name := range []string{v1alpha1.PropertyUserData, v1alpha1.PropertyNetworkData} {
		if secretWords.MatchString(layer.Values[name]) {
			r.warn(RuleProperties, key(path, name), "seems to have a secret, which the providers of all tenants read here: put it into a "+
				"MachineConfigTemplate, which they do not read")
		}
	}
}

// unbounded warns of a TenantCluster that is made so, or becomes so, that its tenant may have everything.
func (r *Result) unbounded(before, after *v1alpha1.TenantCluster) {
	if !r.Allowed() {
		return
	}
	spec := field.NewPath("spec")
	if after.Spec.AllowedNodeTypes == nil && (before == nil || before.Spec.AllowedNodeTypes != nil) {
		r.warn(RuleAllowed, spec.Child("allowedNodeTypes"), "is not set: the tenant may have servers of every NodeType, also of those that are "+
			"made later; name them, or <provider>.*")
	}
	bounded := func(quota *v1alpha1.Quota) bool { return quota != nil && (quota.Servers != nil || quota.GPUs != nil) }
	if !bounded(after.Spec.Quota) && (before == nil || bounded(before.Spec.Quota)) {
		r.warn(RuleQuota, spec.Child("quota"), "is not set: the tenant may have every server that is free; set servers, gpus or both")
	}
}
