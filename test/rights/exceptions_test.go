// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

const (
	// The API server checks these rights itself during another request. That check is not in the audit log; without the
	// right, the other request would fail.
	ofOwnerReferences = "the admission plugin OwnerReferencesPermissionEnforcement asks for it, which is off by default"
	ofClaimStatus     = "Kubernetes 1.36 and later ask for it when resourceclaims/status is written"
	// Cached objects are listed and watched. Other code may still read past its cache, and the right to get shows no
	// more than the right to list.
	ofCore = "all tests read it from a cache; Karpenter's core reads it too, and its own chart has the right"
	// kwok emulates the kubelets here, and mounts nothing.
	ofVolumes   = "Karpenter's core reads it for pods with volumes, for itself and for our offerings, and no test has such pods"
	ofWorkloads = "Karpenter's core reads it for CapacityBuffers that name a workload; those of the tests name a PodTemplate"
)

// exceptions are the rights that TestEveryRightIsUsed does not require to be used, by file and verb, with the reason.
var exceptions = map[string]map[string]string{
	"manager.yaml":             {"update nodeproviders/finalizers": ofOwnerReferences},
	"provider-management.yaml": {"update machines/finalizers": ofOwnerReferences},
	"provider-tenant.yaml": {
		"update nodepools/finalizers":  ofOwnerReferences,
		"update nodeclaims/finalizers": ofOwnerReferences,
		"get pods":                     ofCore,
		"get nodes":                    ofCore,
		"get daemonsets":               ofCore,
		"get poddisruptionbudgets":     ofCore,
		"get csinodes":                 ofCore,
		"get volumeattachments":        ofCore,
		"get metalnodeclasses":         ofCore,
		"get resourceclaims":           ofCore,
		"get resourceslices":           ofCore,
		"get deviceclasses":            ofCore,
		"get capacitybuffers":          ofCore,
		"get podtemplates":             ofCore,
		"get storageclasses":           ofVolumes,
		"list storageclasses":          ofVolumes,
		"watch storageclasses":         ofVolumes,
		"get persistentvolumes":        ofVolumes,
		"list persistentvolumes":       ofVolumes,
		"watch persistentvolumes":      ofVolumes,
		"get persistentvolumeclaims":   ofVolumes,
		"list persistentvolumeclaims":  ofVolumes,
		"watch persistentvolumeclaims": ofVolumes,
		"get deployments":              ofWorkloads,
		"list deployments":             ofWorkloads,
		"watch deployments":            ofWorkloads,
		"get statefulsets":             ofWorkloads,
		"get replicasets":              ofWorkloads,
		"watch namespaces":             "Karpenter's core reads it for pods whose affinity selects namespaces, which no test has",
		"list namespaces":              "Karpenter's core reads it for pods whose affinity selects namespaces, which no test has",
		"delete pods": "Karpenter's core deletes pods that outlive the terminationGracePeriod of their NodePool, which no test " +
			"has",
	},
	"provider-dra-tenant.yaml": {
		"update pods/finalizers":                      ofOwnerReferences,
		"update resourceclaims/binding":               ofClaimStatus,
		"arbitrary-node:update resourceclaims/driver": ofClaimStatus,
	},
}
