// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// hostPod returns the metadata of a pod of the host from the cache, or nil if the cache does not have the pod. Only
// this metadata of the host's pods is kept in memory.
func hostPod(ctx context.Context, clusters tenant.Clusters, name string) (*metav1.PartialObjectMetadata, error) {
	pod := podMetadata()
	if found, err := kube.Find(ctx, clusters.Management.Client, clusters.MachineKey(name), pod); err != nil || !found {
		return nil, err
	}
	return pod, nil
}

// podMetadata returns the object for watches of the host's pods.
func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(names.PodKind)
	return pod
}

// mirrorStatus writes the status of a claim on the host into the tenant's claim, if it differs. The caller must know
// that the two belong together. Afterwards the tenant's claim has the new status and version.
func mirrorStatus(ctx context.Context, clusters tenant.Clusters, s policy.Settings, host, claim *resourcev1.ResourceClaim) error {
	var failed error
	v := view{
		namespace: claim.Namespace, nodes: s.Sync.FromHost.Nodes.Enabled,
		classConfig: !s.Policy.Hides(v1alpha1.DeviceClassConfig), salt: string(s.UID),
		pod: func(name string, uid types.UID) (types.NamespacedName, types.UID, bool) {
			pod, err := hostPod(ctx, clusters, name)
			if err != nil {
				failed = err
			}
			if pod == nil || pod.UID != uid {
				return types.NamespacedName{}, "", false
			}
			origin, ok := names.OriginOf(pod, names.PodKind, clusters.TenantCluster.Name)
			return origin.NamespacedName, origin.UID, ok
		},
	}
	wanted := v.forTenant(&host.Status)
	if failed != nil {
		return failed
	}
	next, changed := nextStatus(&claim.Status, &wanted, !claim.DeletionTimestamp.IsZero())
	if !changed {
		return nil
	}
	updated := claim.DeepCopy()
	updated.Status = *next
	if err := clusters.Tenant.Client.Status().Update(ctx, updated); err != nil {
		return fmt.Errorf("writing the status of ResourceClaim %s in the tenant, %w", client.ObjectKeyFromObject(claim), err)
	}
	updated.DeepCopyInto(claim)
	return nil
}

// nextStatus returns the status to write into a claim in the tenant, on the way from the current to the wanted status.
// It reports false if there is nothing to write.
//
// An allocation is immutable: nextStatus first returns a status without one, and the new one at the next call. A
// tenant's API server that knows fewer fields than the host's drops some of an allocation. It still counts as the same
// one, or it would be cleared and written for ever. While the claim is being deleted, nextStatus adds no consumers.
func nextStatus(current, wanted *resourcev1.ResourceClaimStatus, deleting bool) (*resourcev1.ResourceClaimStatus, bool) {
	next := wanted.DeepCopy()
	if current.Allocation != nil && wanted.Allocation != nil {
		if !sameAllocation(current.Allocation, wanted.Allocation) {
			return &resourcev1.ResourceClaimStatus{}, true
		}
		next.Allocation = current.Allocation.DeepCopy()
	}
	if deleting {
		next.ReservedFor = slices.DeleteFunc(next.ReservedFor, func(consumer resourcev1.ResourceClaimConsumerReference) bool {
			return !slices.Contains(current.ReservedFor, consumer)
		})
	}
	return next, !equality.Semantic.DeepEqual(current, next)
}

// sameAllocation reports whether two allocations give the same devices to the same requests. Fields that not every
// server knows count only if both allocations have them.
func sameAllocation(a, b *resourcev1.AllocationResult) bool {
	if a.AllocationTimestamp != nil && b.AllocationTimestamp != nil && !a.AllocationTimestamp.Equal(b.AllocationTimestamp) {
		return false
	}
	return slices.EqualFunc(a.Devices.Results, b.Devices.Results, func(a, b resourcev1.DeviceRequestAllocationResult) bool {
		return a.Request == b.Request && a.Driver == b.Driver && a.Pool == b.Pool && a.Device == b.Device &&
			(a.ShareID == nil || b.ShareID == nil || *a.ShareID == *b.ShareID)
	})
}

// ReasonSyncWarning: an event on a pod, claim or template of the tenant. vCluster's syncers of these kinds use the same
// reason, so a selection of their events also finds ours.
const ReasonSyncWarning = "SyncWarning"

// Prefixes of the messages of these events.
const (
	// ReasonClassNotAllowed: the tenant may not ask for a device class. The object is not on the host.
	ReasonClassNotAllowed = "DeviceClassNotAllowed"
	// ReasonOrphaned: a device class is no longer allowed. The object stays on both sides and is not in sync.
	ReasonOrphaned = "DeviceClassGone"
	// ReasonInvalidSelector: the selector of the allowed classes does not parse.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonInvalidName: the name on the host would not be unique.
	ReasonInvalidName = "InvalidName"
	// ReasonNameTaken: an object with the name belongs to another origin.
	ReasonNameTaken = "NameTaken"
	// ReasonRefusedByHost: the host's API server rejects the copy.
	ReasonRefusedByHost = "RefusedByHost"
	// ReasonNoAdminAccess: the copy lacks the admin access that the tenant has asked for.
	ReasonNoAdminAccess = "NoAdminAccess"
	// ReasonMetadataTooLarge: the copy has none of the tenant's labels, or none of its annotations.
	ReasonMetadataTooLarge = "MetadataTooLarge"
	// ReasonOpaqueConfigNotAllowed: the object has configuration for a driver that the platform does not allow.
	ReasonOpaqueConfigNotAllowed = "OpaqueConfigNotAllowed"
	// ReasonTooLarge: the copy would be too large.
	ReasonTooLarge = "TooLarge"
	// ReasonTooManyCopies: the tenant has reached the limit of copies of the kind on the host.
	ReasonTooManyCopies = "TooManyCopies"
	// ReasonDeletedOnHost: the copy was deleted on the host, so the object is deleted, too.
	ReasonDeletedOnHost = "DeletedOnHost"
)

// warning returns an event whose message begins with its own reason.
func warning(object client.Object, reason, message string) events.Event {
	return tenant.Warning(object, ReasonSyncWarning, reason+": "+message)
}

func (c *CopyController[T]) warn(object T, reason, message string) {
	c.recorder.Publish(warning(object, reason, message))
}

// notInSync publishes an event in the words of vCluster.
func (c *CopyController[T]) notInSync(object T, reason, cause string) {
	c.warn(object, reason, fmt.Sprintf("did not sync %s %q to host. Failures : %s", strings.ToLower(c.kind.Kind), object.GetName(), cause))
}

// allowedBefore completes the message if the class was allowed when the object was synced.
const allowedBefore = ". The class was allowed before: it stays here and on the host, and the sync resumes when the class is allowed again"

func (c *CopyController[T]) notAllowed(object T, why string, synced bool) {
	if !synced {
		c.notInSync(object, ReasonClassNotAllowed, why)
		return
	}
	c.notInSync(object, ReasonOrphaned, why+allowedBefore)
}

func generatedOrphaned(object client.Object, podClaim, why string) events.Event {
	return warning(object, ReasonOrphaned,
		fmt.Sprintf("did not sync claim %q of the pod from host. Failures : %s%s", podClaim, why, allowedBefore))
}

func generatedNameTaken(pod *corev1.Pod, podClaim, name string) events.Event {
	return warning(pod, ReasonNameTaken, fmt.Sprintf("did not sync claim %q of the pod from host. Failures : ResourceClaim %s exists and "+
		"does not belong to this pod; delete it", podClaim, name))
}

// view is one tenant's view of the host.
type view struct {
	// pod returns the tenant's pod that a pod of the host is a copy of, given the name and UID of the host's pod. It
	// reports false for pods that are not this tenant's, in the namespace of the claim.
	pod func(name string, uid types.UID) (types.NamespacedName, types.UID, bool)
	// namespace is the claim's namespace in the tenant.
	namespace string
	// nodes is true if the tenant sees the host's Nodes by their names. Otherwise pools and devices get pseudonyms,
	// because drivers name pools after their nodes.
	nodes bool
	// classConfig is true if the tenant sees the configuration from device classes.
	classConfig bool
	// salt is unique to the tenant: no two tenants can tell from their pseudonyms that they share a server.
	salt string
}

// forTenant returns the tenant's view of the status of a claim on the host. It does not modify the status on the host.
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

// consumers returns the consumers of the claim by their names in the tenant. It omits consumers of others.
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

// anonymize replaces the names of the host's nodes, pools and devices by pseudonyms.
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
		// Drivers can put anything here.
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

// replacer replaces longer names first, because one name may be part of another.
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
