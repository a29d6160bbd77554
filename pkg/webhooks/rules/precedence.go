// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// precedence warns of a template that takes the place of a document of the NodeProvider: in the reference, the document wins.
func (r *Result) precedence(path *field.Path, layer properties.Layer, provider *v1alpha1.NodeProvider) {
	general := properties.Merge(properties.OfProvider(provider))
	for _, pair := range []struct{ template, document string }{
		{v1alpha1.PropertyNetworkDataTemplate, v1alpha1.PropertyNetworkData},
		{v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyUserData},
	} {
		_, own := layer.Values[pair.document]
		if layer.Values[pair.template] != "" && !own && general.Get(pair.document) != "" {
			r.warn(RuleProperties, key(path, pair.template), "takes the place of %s of %s, which is less specific; in the reference "+
				"the document wins: leave the template out to have it", pair.document, general.Source(pair.document))
		}
	}
}
