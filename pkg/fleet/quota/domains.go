// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Opening is a domain where a tenant would get its first server. One tenant at a time can have the domain.
type Opening struct {
	// Label is a label of the servers; Value is its value in the domain.
	Label, Value string
	// Held are the values of the domains where the tenant has servers, sorted. Free is how many more it could have.
	Held []string
	Free int
}

// CheckOpening decides whether the tenant may open one domain more for a server of a type. The first server keeps all
// other tenants out, so servers that are free for this tenant alone count as used. Call it after Check has passed.
func (r Rest) CheckOpening(nodeType string, opening Opening) error {
	why := ""
	switch {
	case r.Quota == nil:
		return nil
	case r.Quota.Domains != nil:
		if int64(len(opening.Held)) < *r.Quota.Domains {
			return nil
		}
		why = "as many as its spec.quota.domains allows"
	default:
		if int64(opening.Free) < r.Of(nodeType) {
			return nil
		}
		why = fmt.Sprintf("where %d more are free, and its spec.quota lets it have no more than those", opening.Free)
	}
	held := "no " + opening.Label
	if len(opening.Held) > 0 {
		held = opening.Label + " " + conditions.List(opening.Held, 5)
	}
	return &ExceededError{Elsewhere: true, Message: fmt.Sprintf("TenantCluster %s has servers in %s, %s: it gets none in %s %s, "+
		"which would be for no other tenant then: ask for one where it has some, or raise spec.quota.domains",
		r.Tenant, held, why, opening.Label, opening.Value)}
}
