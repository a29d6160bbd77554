// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// returnGrace is how long a node that was deleted first counts as missing while no NodeClaim replaces it. Then the
// rollout goes on.
const returnGrace = 10 * time.Minute

// entry is a NodeClaim that was deleted before its replacement existed.
type entry struct {
	NodeClaim string    `json:"nodeClaim"`
	UID       types.UID `json:"uid"`
	// Since is the creation time of the youngest NodeClaim that the NodePool had at the deletion, by the clock of the
	// API server. The replacement is younger.
	Since metav1.Time `json:"since"`
}

// replacements records on each NodePool the NodeClaims that were deleted first and have not been replaced. They are
// stored because core counts only nodes that exist: without the record, a restart would break the budget.
type replacements struct {
	Dependencies
	provisioner *provisioning.Provisioner
	queue       *disruption.Queue
	// gone is when a NodeClaim was first seen to be gone. It is not stored: after a restart the grace starts again.
	gone map[types.UID]time.Time
}

func newReplacements(d Dependencies, provisioner *provisioning.Provisioner, queue *disruption.Queue) *replacements {
	return &replacements{Dependencies: d, provisioner: provisioner, queue: queue, gone: map[types.UID]time.Time{}}
}

// open reads the NodePool live, and returns it with its entries that still miss a node.
func (r *replacements) open(ctx context.Context, name string) (*karpv1.NodePool, []entry, error) {
	nodePool := &karpv1.NodePool{}
	if err := r.Clusters.Tenant.Live.Get(ctx, client.ObjectKey{Name: name}, nodePool); err != nil {
		return nil, nil, fmt.Errorf("reading NodePool %s, %w", name, err)
	}
	entries := entriesOf(nodePool)
	if len(entries) == 0 {
		return nodePool, nil, nil
	}
	nodeClaims, err := r.nodeClaimsOf(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	awaited, err := r.awaited(ctx, nodePool, nodeClaims)
	if err != nil {
		return nil, nil, err
	}
	now := r.Clock.Now()
	for _, gone := range entries {
		_, seen := r.gone[gone.UID]
		if exists := slices.ContainsFunc(nodeClaims, func(n karpv1.NodeClaim) bool { return n.UID == gone.UID }); !exists && !seen {
			r.gone[gone.UID] = now
		}
	}
	left := stillMissing(entries, nodeClaims, r.queued, func(uid types.UID) bool {
		return awaited && now.Sub(r.gone[uid]) < returnGrace
	})
	return nodePool, left, nil
}

// nodeClaimsOf reads the NodeClaims of a NodePool live.
func (r *replacements) nodeClaimsOf(ctx context.Context, nodePool string) ([]karpv1.NodeClaim, error) {
	nodeClaims := &karpv1.NodeClaimList{}
	if err := r.Clusters.Tenant.Live.List(ctx, nodeClaims, client.MatchingLabels{karpv1.NodePoolLabelKey: nodePool}); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims of NodePool %s, %w", nodePool, err)
	}
	return nodeClaims.Items, nil
}

// awaited reports whether a replacement can still be expected: there are pending pods, or fewer nodes than replicas.
func (r *replacements) awaited(ctx context.Context, nodePool *karpv1.NodePool, nodeClaims []karpv1.NodeClaim) (bool, error) {
	if nodePool.Spec.Replicas != nil {
		staying := slices.DeleteFunc(slices.Clone(nodeClaims), func(n karpv1.NodeClaim) bool { return !n.DeletionTimestamp.IsZero() })
		return int64(len(staying)) < *nodePool.Spec.Replicas, nil
	}
	pending, err := r.provisioner.GetPendingPods(ctx)
	if err != nil {
		return false, fmt.Errorf("listing the pending pods, %w", err)
	}
	return len(pending) > 0, nil
}

func (r *replacements) queued(nodeClaim *karpv1.NodeClaim) bool {
	return r.queue.HasAny(nodeClaim.Status.ProviderID)
}

// add writes the remaining entries and a new one to the NodePool, if the NodePool has not changed since it was read. It
// writes before the NodeClaim is deleted: an extra entry delays the rollout, but a missing one breaks the budget.
func (r *replacements) add(ctx context.Context, nodePool *karpv1.NodePool, left []entry, nodeClaim *karpv1.NodeClaim) error {
	nodeClaims, err := r.nodeClaimsOf(ctx, nodePool.Name)
	if err != nil {
		return err
	}
	since := nodeClaim.CreationTimestamp
	for i := range nodeClaims {
		if made := nodeClaims[i].CreationTimestamp; since.Before(&made) {
			since = made
		}
	}
	text, err := json.Marshal(append(slices.Clone(left), entry{NodeClaim: nodeClaim.Name, UID: nodeClaim.UID, Since: since}))
	if err != nil {
		return fmt.Errorf("encoding that NodeClaim %s is deleted first, %w", nodeClaim.Name, err)
	}
	recorded := entriesOf(nodePool)
	if err := kube.Patch(ctx, r.Client, nodePool, "recording that NodeClaim "+nodeClaim.Name+" is deleted first on", func() {
		metav1.SetMetaDataAnnotation(&nodePool.ObjectMeta, v1alpha1.RolloutAnnotationKey, string(text))
	}); err != nil {
		return err
	}
	// Not before the NodePool is written: their grace would start again.
	for _, was := range recorded {
		if !slices.Contains(left, was) {
			delete(r.gone, was.UID)
		}
	}
	return nil
}

// entriesOf reads the entries of a NodePool. An invalid annotation counts as no entries.
func entriesOf(nodePool *karpv1.NodePool) []entry {
	text := nodePool.Annotations[v1alpha1.RolloutAnnotationKey]
	if text == "" {
		return nil
	}
	var entries []entry
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		log.Log.Error(err, "Ignoring an annotation that this provider has not written", "NodePool", nodePool.Name, "annotation",
			v1alpha1.RolloutAnnotationKey)
		return nil
	}
	return entries
}

// stillMissing returns the entries whose node is missing: the NodeClaim is being deleted, or no newer, initialized
// NodeClaim replaces it. Each NodeClaim replaces one entry. queued reports whether core is about to delete a NodeClaim.
// awaits reports whether a replacement for a NodeClaim that is gone can still be expected.
func stillMissing(entries []entry, nodeClaims []karpv1.NodeClaim, queued func(*karpv1.NodeClaim) bool,
	awaits func(types.UID) bool) []entry {
	byUID := map[types.UID]*karpv1.NodeClaim{}
	var fresh []*karpv1.NodeClaim
	for i := range nodeClaims {
		byUID[nodeClaims[i].UID] = &nodeClaims[i]
		if nodeClaims[i].DeletionTimestamp.IsZero() {
			fresh = append(fresh, &nodeClaims[i])
		}
	}
	// Initialized ones first, so that a NodeClaim that starts later does not delay an entry.
	slices.SortStableFunc(fresh, func(a, b *karpv1.NodeClaim) int {
		if initialized(a) != initialized(b) {
			return lo.Ternary(initialized(a), -1, 1)
		}
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var left []entry
	for _, e := range entries {
		if nodeClaim, exists := byUID[e.UID]; exists {
			// Neither deleted nor queued: the process died between recording and deleting this NodeClaim.
			if !nodeClaim.DeletionTimestamp.IsZero() || queued(nodeClaim) {
				left = append(left, e)
			}
			continue
		}
		index := slices.IndexFunc(fresh, func(n *karpv1.NodeClaim) bool { return n.CreationTimestamp.After(e.Since.Time) })
		switch {
		case index >= 0 && !initialized(fresh[index]):
			left = append(left, e)
			fresh = slices.Delete(fresh, index, index+1)
		case index >= 0:
			fresh = slices.Delete(fresh, index, index+1)
		case awaits(e.UID):
			left = append(left, e)
		}
	}
	return left
}

func initialized(nodeClaim *karpv1.NodeClaim) bool {
	return conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeInitialized).Status == metav1.ConditionTrue
}
