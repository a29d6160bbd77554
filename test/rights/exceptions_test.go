// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

const (
	// The API server asks itself whether somebody has these rights while it answers another request. That is no request, so
	// it is in no log; that the answer is yes is seen in what becomes of the other one.
	ofOwnerReferences = "the admission plugin OwnerReferencesPermissionEnforcement asks for it, which is off by default"
	ofClaimStatus     = "Kubernetes 1.36 and later ask for it when resourceclaims/status is written"
	// What is cached is listed and watched. It cannot be known of somebody else's code that it never reads past its cache,
	// and whoever may list may see as much.
	ofCore = "it is read from a cache in all that is tested; Karpenter's core reads it too, and its own chart gives the right"
	// Of the tests, those of the charts have an API server like that.
	ofOldServers = "caches list before they watch where the API server streams no lists; the test that has such a one does not start this " +
		"cache"
	// Nodes here are played by kwok, which mounts nothing.
	ofVolumes   = "Karpenter's core looks at it for pods with volumes, which no test has"
	ofWorkloads = "Karpenter's core looks at it for CapacityBuffers that name a workload; those of the tests name a PodTemplate"
)

// exceptions are the rights that TestEveryRightIsUsed need not see used, by file and verb, with the reason.
var exceptions = map[string]map[string]string{
	"manager.yaml":             {"update nodeproviders/finalizers": ofOwnerReferences},
	"provider-management.yaml": {"update machines/finalizers": ofOwnerReferences},
	"provider-dra-management.yaml": {
		"list pods":                   ofOldServers,
		"list resourceclaims":         ofOldServers,
		"list resourceclaimtemplates": ofOldServers,
	},
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
		"list csinodes":                ofOldServers,
		"list capacitybuffers":         ofOldServers,
		"list podtemplates":            ofOldServers,
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
		"list statefulsets":            ofWorkloads,
		"watch statefulsets":           ofWorkloads,
		"get replicasets":              ofWorkloads,
		"list replicasets":             ofWorkloads,
		"watch replicasets":            ofWorkloads,
		"watch namespaces":             "Karpenter's core looks at it for pods whose affinity selects namespaces, which no test has",
		"list namespaces":              "Karpenter's core looks at it for pods whose affinity selects namespaces, which no test has",
		"delete pods": "Karpenter's core deletes pods that outlive the terminationGracePeriod of their NodePool, which no test " +
			"has",
	},
	"provider-dra-tenant.yaml": {
		"list resourceclaimtemplates":                 ofOldServers,
		"update pods/finalizers":                      ofOwnerReferences,
		"update resourceclaims/binding":               ofClaimStatus,
		"arbitrary-node:update resourceclaims/driver": ofClaimStatus,
	},
}
