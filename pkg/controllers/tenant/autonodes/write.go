// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// errBeingDeleted: an object of the same name is being deleted. Its deletion leads to the next reconcile.
var errBeingDeleted = errors.New("is being deleted, and is created again once it is gone")

// put creates or updates the objects of a pool: the class first, because the NodePool refers to it.
func (c *Controller) put(ctx context.Context, p *pool) error {
	class := &v1alpha1.MetalNodeClass{}
	// A class that is being deleted waits for its NodeClaims, and the NodePool is still updated.
	pending := c.write(ctx, p.nodeClass, class, func() bool {
		same := equality.Semantic.DeepEqual(class.Spec, p.nodeClass.Spec)
		class.Spec = p.nodeClass.Spec
		return setOwner(class, p.nodeClass) && same
	})
	if pending != nil && !errors.Is(pending, errBeingDeleted) {
		return pending
	}
	nodePool := &karpv1.NodePool{}
	recreate := false
	if err := c.write(ctx, p.nodePool, nodePool, func() bool {
		if (nodePool.Spec.Replicas == nil) != (p.nodePool.Spec.Replicas == nil) {
			// Karpenter cannot turn a static pool into a dynamic one. The next reconcile creates it again.
			recreate = true
			return true
		}
		same := sameSpec(nodePool, p.nodePool)
		nodePool.Spec = p.nodePool.Spec
		return setOwner(nodePool, p.nodePool) && same
	}); err != nil {
		return err
	}
	if !recreate {
		return pending
	}
	if err := c.remove(ctx, nodePool); err != nil {
		return err
	}
	return fmt.Errorf("NodePool %s %w", nodePool.Name, errBeingDeleted)
}

// write creates the wanted object, or lets change correct the existing one and writes it if that changed anything. The error
// is errBeingDeleted while the existing one is being deleted.
func (c *Controller) write(ctx context.Context, wanted, existing client.Object, change func() (same bool)) error {
	key := client.ObjectKeyFromObject(wanted)
	found, err := controllers.Find(ctx, c.clusters.Tenant.Client, key, existing)
	if err != nil {
		return err
	}
	if !found {
		if err := c.clusters.Tenant.Client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating %s %s, %w", kindOf(wanted), key.Name, err)
		}
		return nil
	}
	if !existing.GetDeletionTimestamp().IsZero() {
		return fmt.Errorf("%s %s %w", kindOf(wanted), key.Name, errBeingDeleted)
	}
	before, ok := existing.DeepCopyObject().(client.Object)
	if !ok || change() {
		return nil
	}
	log.FromContext(ctx).Info("Restoring an object of the TenantCluster", "kind", kindOf(wanted), "name", key.Name)
	if err := c.clusters.Tenant.Client.Patch(ctx, existing,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("updating %s %s, %w", kindOf(wanted), key.Name, err)
	}
	return nil
}

// remove deletes the object with this UID, not a later one of its name.
func (c *Controller) remove(ctx context.Context, object client.Object) error {
	return controllers.Delete(ctx, c.clusters.Tenant.Client, object, "deleting")
}

// sameSpec compares as JSON: the struct of a duration keeps how it was written, and would differ.
func sameSpec(a, b *karpv1.NodePool) bool {
	left, errLeft := json.Marshal(a.Spec)
	right, errRight := json.Marshal(b.Spec)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}

func setOwner(existing, wanted client.Object) (had bool) {
	return controllers.SetLabel(existing, v1alpha1.TenantPoolLabelKey, wanted.GetLabels()[v1alpha1.TenantPoolLabelKey])
}

func kindOf(object client.Object) string {
	if _, ok := object.(*karpv1.NodePool); ok {
		return "NodePool"
	}
	return nodeClassKind
}
