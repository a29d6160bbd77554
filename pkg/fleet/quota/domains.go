// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Opening is a domain, which is for one tenant at a time, where a tenant would get its first server.
type Opening struct {
	// Label of the servers, and its value in the domain.
	Label, Value string
	// Held are the values of the domains where the tenant has servers, sorted. Free is how many more it could have
	// there.
	Held []string
	Free int
}

// CheckOpening decides whether the tenant may have a server of a type in one domain more. Its first server there keeps
// all other tenants out, so the servers that are free for it alone count as if it had them. Check has passed.
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
