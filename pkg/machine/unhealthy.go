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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// EventUnhealthy: the server is quarantined, because the node on it was unhealthy.
const EventUnhealthy EventReason = "QuarantinedUnhealthy"

// quarantineUnhealthy keeps a server out of the pool whose node was unhealthy when it was given up. That is the first
// thing that is done on the way back, so that it cannot be missed. No more servers are quarantined than by errors.
func (r *Reconciler) quarantineUnhealthy(ctx context.Context, machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	why := machine.Annotations[v1alpha1.UnhealthyAnnotationKey]
	if _, quarantined := host.Annotations[hosts.QuarantinedAnnotation]; why == "" || quarantined {
		return host, nil
	}
	host, full, err := r.quarantineIfRoom(ctx, machine, host, hosts.Quarantine{
		Reason: v1alpha1.ReasonNodeUnhealthy, Since: r.clock.Now(), Machine: client.ObjectKeyFromObject(machine),
	})
	if err != nil {
		return nil, err
	}
	if full != "" {
		if !isEmptied(host) { // said once
			r.event(machine, corev1.EventTypeWarning, string(EventUnhealthy), fmt.Sprintf("the node on server %s/%s was unhealthy (%s), and the server is not quarantined: %s",
				host.Namespace, host.Name, why, full))
		}
		return host, nil
	}
	r.event(machine, corev1.EventTypeWarning, string(EventUnhealthy), fmt.Sprintf(
		"server %s/%s is quarantined, because the node on it was unhealthy: %s. An operator who finds it well removes the annotation %s from its BareMetalHost",
		host.Namespace, host.Name, why, hosts.QuarantinedAnnotation))
	return host, nil
}
