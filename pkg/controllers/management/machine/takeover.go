// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// takeOver writes into spec.node what a provider of the version before has reported in annotations. It is upgraded after the manager,
// and its nodes must not look as if they had never joined. The next minor version removes this.
func (r *Reconciler) takeOver(ctx context.Context, now *run) error {
	node, more := now.machine.FormerNode()
	if !more {
		return nil
	}
	// One that is not found has been deleted, which the cache does not know yet.
	return client.IgnoreNotFound(r.patch(ctx, now, "taking over what was reported about the node of", func(machine *v1alpha1.Machine) {
		machine.Spec.Node = node
	}))
}
