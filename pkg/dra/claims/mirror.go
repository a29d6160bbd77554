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

// hostPod returns the metadata of a pod of the host, from the cache, or nil if it does not know the pod. Nothing else of
// the host's pods is kept in memory.
func hostPod(ctx context.Context, clusters tenant.Clusters, name string) (*metav1.PartialObjectMetadata, error) {
	pod := podMetadata()
	if found, err := kube.Find(ctx, clusters.Management.Client, clusters.MachineKey(name), pod); err != nil || !found {
		return nil, err
	}
	return pod, nil
}

// podMetadata is what watches of the host's pods are made with.
func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(names.PodKind)
	return pod
}

// mirrorStatus writes the status of a claim on the host into the tenant's claim, if it differs. Both must be known to
// belong together. The tenant's claim has the new status and version after it.
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

// nextStatus returns what to write into the status of a claim in the tenant, on the way from the current to the wanted
// status. It returns false if nothing is to be written.
//
// An allocation is immutable: nextStatus first returns a status without one, and the new one at the next call. A tenant's
// API server that knows fewer fields than the host's drops some of an allocation; it is still the same allocation, or it
// would be cleared and written for ever. While the claim is being deleted, no consumers are added.
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

// sameAllocation returns whether two allocations are of the same devices to the same requests. Fields that not every server
// knows count only where both have them.
func sameAllocation(a, b *resourcev1.AllocationResult) bool {
	if a.AllocationTimestamp != nil && b.AllocationTimestamp != nil && !a.AllocationTimestamp.Equal(b.AllocationTimestamp) {
		return false
	}
	return slices.EqualFunc(a.Devices.Results, b.Devices.Results, func(a, b resourcev1.DeviceRequestAllocationResult) bool {
		return a.Request == b.Request && a.Driver == b.Driver && a.Pool == b.Pool && a.Device == b.Device &&
			(a.ShareID == nil || b.ShareID == nil || *a.ShareID == *b.ShareID)
	})
}

// ReasonSyncWarning: an event on a pod, claim or template of the tenant. The reason is that of vCluster's syncers of these kinds, so that
// what selects their events finds ours.
const ReasonSyncWarning = "SyncWarning"

// What the messages of these events begin with.
const (
	// ReasonClassNotAllowed: a device class is not one that the tenant may ask for. The object is not on the host.
	ReasonClassNotAllowed = "DeviceClassNotAllowed"
	// ReasonOrphaned: a device class is not allowed any more. The object stays on both sides and is not in sync.
	ReasonOrphaned = "DeviceClassGone"
	// ReasonInvalidSelector: the selector of the allowed classes does not parse.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonInvalidName: the name on the host would not be unique.
	ReasonInvalidName = "InvalidName"
	// ReasonNameTaken: there is an object of that name which belongs to another.
	ReasonNameTaken = "NameTaken"
	// ReasonRefusedByHost: the host's API server rejects the copy.
	ReasonRefusedByHost = "RefusedByHost"
	// ReasonNoAdminAccess: the copy asks for less than the tenant has asked for.
	ReasonNoAdminAccess = "NoAdminAccess"
	// ReasonMetadataTooLarge: the copy has no labels, or no annotations, of the tenant.
	ReasonMetadataTooLarge = "MetadataTooLarge"
	// ReasonOpaqueConfigNotAllowed: the object has configuration for a driver that the platform has not named.
	ReasonOpaqueConfigNotAllowed = "OpaqueConfigNotAllowed"
	// ReasonTooLarge: the copy would be too large.
	ReasonTooLarge = "TooLarge"
	// ReasonTooManyCopies: the tenant has as many copies of the kind on the host as it may have.
	ReasonTooManyCopies = "TooManyCopies"
	// ReasonDeletedOnHost: the copy has been deleted, and the object with it.
	ReasonDeletedOnHost = "DeletedOnHost"
)

// warning is an event whose message begins with its own reason.
func warning(object client.Object, reason, message string) events.Event {
	return tenant.Warning(object, ReasonSyncWarning, reason+": "+message)
}

func (c *CopyController[T]) warn(object T, reason, message string) {
	c.recorder.Publish(warning(object, reason, message))
}

// notInSync has the words of vCluster's event.
func (c *CopyController[T]) notInSync(object T, reason, cause string) {
	c.warn(object, reason, fmt.Sprintf("did not sync %s %q to host. Failures : %s", strings.ToLower(c.kind.Kind), object.GetName(), cause))
}

// allowedBefore is what follows if a class was allowed when the object was synced.
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
