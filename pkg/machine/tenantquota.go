// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/quota"
)

// leaving says that the tenant of a Machine is being deleted, and is empty if it is not: it gets no more servers.
func leaving(tenant *v1alpha1.TenantCluster) string {
	if tenant == nil || tenant.DeletionTimestamp.IsZero() {
		return ""
	}
	return fmt.Sprintf("TenantCluster %s is being deleted and gets no more servers", client.ObjectKeyFromObject(tenant))
}

// exceeded says that a server of the type is more than the tenant's quota, and is empty if it is not. Then the server
// counts from now on.
func (r *Reconciler) exceeded(ctx context.Context, machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster, nodeType string) (string, error) {
	err := r.quota.Take(ctx, tenant, machine, nodeType)
	var beyond *quota.ExceededError
	if errors.As(err, &beyond) {
		return beyond.Error(), nil
	}
	return "", err
}

// unchoose lets others have a server that was chosen for a Machine, and all that goes with it.
func (r *Reconciler) unchoose(host v1alpha1.HostReference, machine *v1alpha1.Machine) {
	r.forgo(machine)
	r.inventory.Forget(hostKey(host), machine.UID)
}

// forgo takes a server that the Machine does not get off its tenant's account, and gives back the address that it was
// promised.
func (r *Reconciler) forgo(machine *v1alpha1.Machine) {
	r.quota.Forget(machine.UID)
	r.addressForgotten(r.promises.Forget(client.ObjectKeyFromObject(machine)))
	r.waiting.serve(func(wants wish) int { return wants.servedByAllowance(machine.Namespace) })
}
