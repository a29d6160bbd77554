// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// EventUnhealthy: the server is quarantined, because the node on it was unhealthy.
const EventUnhealthy EventReason = "QuarantinedUnhealthy"

// quarantineUnhealthy quarantines a server whose node was unhealthy when Karpenter deleted it. It is the first write of the
// release, so that a crash cannot skip it. The limit on quarantined servers applies.
func (r *Reconciler) quarantineUnhealthy(ctx context.Context, machine *v1alpha1.Machine,
	host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	why := machine.Annotations[v1alpha1.UnhealthyAnnotationKey]
	if _, quarantined := host.Annotations[v1alpha1.QuarantinedAnnotationKey]; why == "" || quarantined {
		return host, nil
	}
	host, full, err := r.quarantineWithinLimit(ctx, host, inventory.Quarantine{
		Reason: v1alpha1.ReasonNodeUnhealthy, Since: r.clock.Now(), Machine: client.ObjectKeyFromObject(machine),
	})
	if err != nil {
		return nil, err
	}
	if full != "" {
		if !isEmptied(host) { // only once
			r.event(machine, corev1.EventTypeWarning, string(EventUnhealthy),
				fmt.Sprintf("the node on server %s/%s was unhealthy (%s), and the server is not quarantined: %s",
					host.Namespace, host.Name, why, full))
		}
		return host, nil
	}
	r.event(machine, corev1.EventTypeWarning, string(EventUnhealthy), fmt.Sprintf(
		"server %s/%s is quarantined, because the node on it was unhealthy: %s. To use it again, remove the annotation %s from its BareMetalHost",
		host.Namespace, host.Name, why, v1alpha1.QuarantinedAnnotationKey))
	return host, nil
}
