// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// returnGrace is how long somebody may take to ask for a server again that was given up for want of a spare one. If
// nobody does, the rollout goes on.
const returnGrace = 10 * time.Minute

// entry is a NodeClaim that was given up before its replacement was there.
type entry struct {
	NodeClaim string    `json:"nodeClaim"`
	UID       types.UID `json:"uid"`
	// Since is when it was given up. What replaces it was made later.
	Since metav1.Time `json:"since"`
}

// ledger keeps the entries of each NodePool, on the NodePool itself: whoever comes after a crash has to know what is
// missing.
type ledger struct {
	Dependencies
	provisioner *provisioning.Provisioner
	queue       *disruption.Queue
	// gone is when a NodeClaim was first seen to be gone. It is not kept: after a restart the grace begins anew.
	gone map[types.UID]time.Time
}

func newLedger(d Dependencies, provisioner *provisioning.Provisioner, queue *disruption.Queue) *ledger {
	return &ledger{Dependencies: d, provisioner: provisioner, queue: queue, gone: map[types.UID]time.Time{}}
}

// open returns the NodePool, read live, and its entries that are still missing a node.
func (l *ledger) open(ctx context.Context, name string) (*karpv1.NodePool, []entry, error) {
	nodePool := &karpv1.NodePool{}
	if err := l.Planes.Tenant.Live.Get(ctx, client.ObjectKey{Name: name}, nodePool); err != nil {
		return nil, nil, fmt.Errorf("reading NodePool %s, %w", name, err)
	}
	entries := entriesOf(nodePool)
	if len(entries) == 0 {
		return nodePool, nil, nil
	}
	nodeClaims := &karpv1.NodeClaimList{}
	if err := l.Planes.Tenant.Live.List(ctx, nodeClaims, client.MatchingLabels{karpv1.NodePoolLabelKey: name}); err != nil {
		return nil, nil, fmt.Errorf("listing the NodeClaims of NodePool %s, %w", name, err)
	}
	awaited, err := l.awaited(ctx, nodePool, nodeClaims.Items)
	if err != nil {
		return nil, nil, err
	}
	now := l.Clock.Now()
	for _, gone := range entries {
		_, seen := l.gone[gone.UID]
		if exists := slices.ContainsFunc(nodeClaims.Items, func(n karpv1.NodeClaim) bool { return n.UID == gone.UID }); !exists && !seen {
			l.gone[gone.UID] = now
		}
	}
	left := stillMissing(entries, nodeClaims.Items, l.queued, func(uid types.UID) bool {
		return awaited && now.Sub(l.gone[uid]) < returnGrace
	})
	return nodePool, left, nil
}

// awaited tells whether anybody may be about to ask for a server that is gone: pods that wait, or a fixed number of
// nodes that is not reached.
func (l *ledger) awaited(ctx context.Context, nodePool *karpv1.NodePool, nodeClaims []karpv1.NodeClaim) (bool, error) {
	if nodePool.Spec.Replicas != nil {
		staying := slices.DeleteFunc(slices.Clone(nodeClaims), func(n karpv1.NodeClaim) bool { return !n.DeletionTimestamp.IsZero() })
		return int64(len(staying)) < *nodePool.Spec.Replicas, nil
	}
	pending, err := l.provisioner.GetPendingPods(ctx)
	if err != nil {
		return false, fmt.Errorf("listing the pods that wait for a server, %w", err)
	}
	return len(pending) > 0, nil
}

func (l *ledger) queued(nodeClaim *karpv1.NodeClaim) bool {
	return l.queue.HasAny(nodeClaim.Status.ProviderID)
}

// add puts an entry on the NodePool, in the place of those that were there, as long as the NodePool is the one that was
// read. It is written before the NodeClaim is deleted: an entry too many delays, one too few breaks the budget.
func (l *ledger) add(ctx context.Context, nodePool *karpv1.NodePool, left []entry, nodeClaim *karpv1.NodeClaim) error {
	text, err := json.Marshal(append(slices.Clone(left), entry{NodeClaim: nodeClaim.Name, UID: nodeClaim.UID, Since: metav1.NewTime(l.Clock.Now())}))
	if err != nil {
		return fmt.Errorf("noting that NodeClaim %s goes first, %w", nodeClaim.Name, err)
	}
	before, noted := nodePool.DeepCopy(), entriesOf(nodePool)
	if nodePool.Annotations == nil {
		nodePool.Annotations = map[string]string{}
	}
	nodePool.Annotations[v1alpha1.RolloutAnnotationKey] = string(text)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := l.Client.Patch(ctx, nodePool, patch); err != nil {
		return fmt.Errorf("noting on NodePool %s that NodeClaim %s goes first, %w", nodePool.Name, nodeClaim.Name, err)
	}
	// Not before they are off the NodePool: their grace would begin anew.
	for _, was := range noted {
		if !slices.Contains(left, was) {
			delete(l.gone, was.UID)
		}
	}
	return nil
}

// entriesOf reads what is noted on a NodePool. What somebody has broken counts for nothing.
func entriesOf(nodePool *karpv1.NodePool) []entry {
	text := nodePool.Annotations[v1alpha1.RolloutAnnotationKey]
	if text == "" {
		return nil
	}
	var entries []entry
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		log.Log.Error(err, "ignoring an annotation that is not what this provider has written", "NodePool", nodePool.Name, "annotation", v1alpha1.RolloutAnnotationKey)
		return nil
	}
	return entries
}

// stillMissing returns the entries that have a node missing: those whose NodeClaim is on its way out, and those that no
// newer NodeClaim has replaced for good. Each NodeClaim replaces one. queued tells whether core is about to delete a
// NodeClaim, and awaits whether one that is gone may still be asked for again.
func stillMissing(entries []entry, nodeClaims []karpv1.NodeClaim, queued func(*karpv1.NodeClaim) bool, awaits func(types.UID) bool) []entry {
	byUID := map[types.UID]*karpv1.NodeClaim{}
	var fresh []*karpv1.NodeClaim
	for i := range nodeClaims {
		byUID[nodeClaims[i].UID] = &nodeClaims[i]
		if nodeClaims[i].DeletionTimestamp.IsZero() {
			fresh = append(fresh, &nodeClaims[i])
		}
	}
	// The ones that are initialized replace first, so that an entry is not held up by a NodeClaim that comes later.
	slices.SortStableFunc(fresh, func(a, b *karpv1.NodeClaim) int {
		if initialized(a) != initialized(b) {
			if initialized(a) {
				return -1
			}
			return 1
		}
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var left []entry
	for _, e := range entries {
		if nodeClaim, exists := byUID[e.UID]; exists {
			// One that is neither deleted nor about to be was spared: the process died in between.
			if !nodeClaim.DeletionTimestamp.IsZero() || queued(nodeClaim) {
				left = append(left, e)
			}
			continue
		}
		at := slices.IndexFunc(fresh, func(n *karpv1.NodeClaim) bool { return !n.CreationTimestamp.Time.Before(e.Since.Time) })
		switch {
		case at >= 0 && !initialized(fresh[at]):
			left = append(left, e)
			fresh = slices.Delete(fresh, at, at+1)
		case at >= 0:
			fresh = slices.Delete(fresh, at, at+1)
		case awaits(e.UID):
			left = append(left, e)
		}
	}
	return left
}

func initialized(nodeClaim *karpv1.NodeClaim) bool {
	for i := range nodeClaim.Status.Conditions {
		if nodeClaim.Status.Conditions[i].Type == karpv1.ConditionTypeInitialized {
			return nodeClaim.Status.Conditions[i].IsTrue()
		}
	}
	return false
}
