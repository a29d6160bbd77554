// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// view is how one tenant sees the host.
type view struct {
	// pod returns the tenant's pod that a pod of the host is a copy of, by the name and UID of the latter. It reports
	// false for pods that are not this tenant's, in the namespace of the claim.
	pod func(name string, uid types.UID) (types.NamespacedName, types.UID, bool)
	// namespace is that of the claim in the tenant.
	namespace string
	// nodes is whether the tenant sees the host's Nodes by their names. If not, pools and devices get pseudonyms:
	// drivers name pools after their nodes.
	nodes bool
	// classConfig is whether the tenant sees the configuration that comes from device classes.
	classConfig bool
	// salt is of the tenant: no two tenants can find out by their pseudonyms that they are on the same server.
	salt string
}

// forTenant returns the status of a claim on the host as the tenant sees it. The status on the host is not changed.
func (v view) forTenant(host *resourcev1.ResourceClaimStatus) resourcev1.ResourceClaimStatus {
	result := *host.DeepCopy()
	result.ReservedFor = v.consumers(host.ReservedFor)
	if allocation := result.Allocation; allocation != nil {
		for i := range allocation.Devices.Results {
			allocation.Devices.Results[i].AdminAccess = nil
		}
		if !v.classConfig {
			allocation.Devices.Config = slices.DeleteFunc(allocation.Devices.Config, func(config resourcev1.DeviceAllocationConfiguration) bool {
				return config.Source == resourcev1.AllocationConfigSourceClass
			})
		}
	}
	if !v.nodes {
		v.anonymize(&result)
	}
	return result
}

// consumers returns the consumers of the claim with the names of the tenant. Those of others are left out.
func (v view) consumers(host []resourcev1.ResourceClaimConsumerReference) []resourcev1.ResourceClaimConsumerReference {
	var result []resourcev1.ResourceClaimConsumerReference
	for _, consumer := range host {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		if pod, uid, ok := v.pod(consumer.Name, consumer.UID); ok && pod.Namespace == v.namespace {
			result = append(result, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: uid})
		}
	}
	return result
}

// anonymize puts pseudonyms in the place of what names the host's nodes, pools and devices.
func (v view) anonymize(status *resourcev1.ResourceClaimStatus) {
	names := map[string]string{}
	if status.Allocation != nil {
		for _, node := range nodeNames(status.Allocation.NodeSelector) {
			names[node] = v.pseudonym("node", node)
		}
		status.Allocation.NodeSelector = nil
		for i := range status.Allocation.Devices.Results {
			result := &status.Allocation.Devices.Results[i]
			pool, device := v.pool(result.Driver, result.Pool), v.device(result.Driver, result.Pool, result.Device)
			names[result.Pool], names[result.Device] = pool, device
			result.Pool, result.Device = pool, device
		}
	}
	messages := replacer(names)
	for i := range status.Devices {
		device := &status.Devices[i]
		device.Pool, device.Device = v.pool(device.Driver, device.Pool), v.device(device.Driver, device.Pool, device.Device)
		// What drivers put here can be anything.
		device.Data = nil
		for j := range device.Conditions {
			device.Conditions[j].Message = messages.Replace(device.Conditions[j].Message)
		}
	}
}

func (v view) pool(driver, pool string) string { return v.pseudonym("pool", driver, pool) }

func (v view) device(driver, pool, device string) string {
	return v.pseudonym("device", driver, pool, device)
}

func (v view) pseudonym(kind string, parts ...string) string {
	digest := sha256.Sum256([]byte(v.salt + "\x00" + kind + "\x00" + strings.Join(parts, "\x00")))
	return kind + "-" + hex.EncodeToString(digest[:])[:10]
}

// replacer replaces longer names first: one may be part of another.
func replacer(names map[string]string) *strings.Replacer {
	var sorted, pairs []string
	for name := range names {
		if name != "" {
			sorted = append(sorted, name)
		}
	}
	slices.SortFunc(sorted, func(a, b string) int { return len(b) - len(a) })
	for _, name := range sorted {
		pairs = append(pairs, name, names[name])
	}
	return strings.NewReplacer(pairs...)
}

func nodeNames(selector *corev1.NodeSelector) []string {
	if selector == nil {
		return nil
	}
	var names []string
	for _, term := range selector.NodeSelectorTerms {
		for _, requirement := range slices.Concat(term.MatchFields, term.MatchExpressions) {
			names = append(names, requirement.Values...)
		}
	}
	return names
}
