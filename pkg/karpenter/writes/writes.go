// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writes saves writes of NodeClaims that Karpenter's core makes and that say nothing. Writes are what limits a burst
// (designs/writes.md), and each of these delays the launch of a server, or is refused because another one came first.
package writes

import (
	"encoding/json"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// Finalizer gives a NodeClaim core's finalizer when it is created. Core adds it by a patch otherwise, before it launches a server.
func Finalizer(nodeClaim *karpv1.NodeClaim) {
	controllerutil.AddFinalizer(nodeClaim, karpv1.TerminationFinalizer)
}

// Unchanged keeps patches of a NodeClaim from the API server that change only its status: that has a subresource, and the API
// server ignores it here. Core sends one before each patch of the status.
func Unchanged() interceptor.Interceptor {
	return interceptor.SkipPatch(func(_ *karpv1.NodeClaim, patch []byte) bool {
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(patch, &fields); err != nil {
			return false
		}
		delete(fields, "status")
		return len(fields) == 0
	})
}

// awaiting is the reason of a condition that core has not decided on.
const awaiting = "AwaitingReconciliation"

// Unknown keeps patches of the status of a NodeClaim from the API server that say only that no condition is known yet. Core's
// disruption controller makes one of each new NodeClaim, which conflicts with the launch. A condition that is missing means the
// same to core.
func Unknown() interceptor.Interceptor {
	return interceptor.SkipStatusPatch(func(_ *karpv1.NodeClaim, patch []byte) bool {
		changed := struct {
			Status map[string]json.RawMessage `json:"status"`
		}{}
		if err := json.Unmarshal(patch, &changed); err != nil || len(changed.Status) != 1 {
			return false
		}
		var conditions []status.Condition
		if err := json.Unmarshal(changed.Status["conditions"], &conditions); err != nil || len(conditions) == 0 {
			return false
		}
		for _, condition := range conditions {
			// Ready is the sum of the others.
			if condition.Status != metav1.ConditionUnknown || condition.Reason != awaiting && condition.Type != status.ConditionReady {
				return false
			}
		}
		return true
	})
}

// explained are the conditions of NodeClaims and Nodes about which there is an event of this provider: ServerClaimed when a NodeClaim is
// launched, and those of package nodeclaimstatus.
var explained = []string{karpv1.ConditionTypeLaunched, v1alpha1.ConditionServerReady, v1alpha1.ConditionResourcesAdvertised,
	v1alpha1.ConditionNodeAsPlanned}

// Events returns the manager without two kinds of the events that core publishes about status and finalizers: that a condition has
// changed about which there is an event that says why, and those about objects without a name, which nobody finds: when an object
// is gone, core says so of an empty one.
func Events(m manager.Manager) manager.Manager { return quietManager{m} }

type quietManager struct{ manager.Manager }

// GetEventRecorderFor implements cluster.Cluster.
func (m quietManager) GetEventRecorderFor(name string) record.EventRecorder {
	//lint:ignore SA1019 core takes no other
	return quietRecorder{m.Manager.GetEventRecorderFor(name)}
}

type quietRecorder struct{ record.EventRecorder }

// Event implements record.EventRecorder. Core calls no other method of it.
func (r quietRecorder) Event(object runtime.Object, eventType, reason, message string) {
	about, err := meta.Accessor(object)
	if err == nil && about.GetName() == "" || slices.Contains(explained, reason) {
		return
	}
	r.EventRecorder.Event(object, eventType, reason, message)
}
