// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

// The API server asks itself whether somebody has these rights while it answers another request. That is no request, so it
// is in no log; that the answer is yes is seen in what that other request does.
const (
	ofOwnerReferences = "the admission plugin OwnerReferencesPermissionEnforcement asks for it, which is off by default"
	ofClaimStatus     = "Kubernetes 1.36 and later ask for it when resourceclaims/status is written"
)

// exceptions are the rights that TestEveryRightIsUsed need not see used, by file and verb, with the reason.
var exceptions = map[string]map[string]string{
	"manager.yaml":             {"update nodeproviders/finalizers": ofOwnerReferences},
	"provider-management.yaml": {"update machines/finalizers": ofOwnerReferences},
	"provider-tenant.yaml": {
		"update nodepools/finalizers":  ofOwnerReferences,
		"update nodeclaims/finalizers": ofOwnerReferences,
	},
	"provider-dra-tenant.yaml": {
		"update pods/finalizers":                      ofOwnerReferences,
		"update resourceclaims/binding":               ofClaimStatus,
		"arbitrary-node:update resourceclaims/driver": ofClaimStatus,
	},
}
