// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writes drops writes of NodeClaims by Karpenter's core that carry no information. Writes limit how fast a
// burst goes (designs/writes.md). Each of these delays a launch, or is refused because another came first.
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

// Finalizer sets core's finalizer on a NodeClaim that is about to be created. Otherwise core adds it by a patch before
// it launches a server.
func Finalizer(nodeClaim *karpv1.NodeClaim) {
	controllerutil.AddFinalizer(nodeClaim, karpv1.TerminationFinalizer)
}

// Unchanged drops patches of a NodeClaim that change only its status. The status has a subresource, so the API server
// ignores it here. Core sends such a patch before each patch of the status.
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

// Unknown drops patches of a NodeClaim's status that only say that no condition is known yet. Core's disruption
// controller sends one for each new NodeClaim, and it conflicts with the launch. A missing condition means the same.
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
			// Ready summarizes the others.
			if condition.Status != metav1.ConditionUnknown || condition.Reason != awaiting && condition.Type != status.ConditionReady {
				return false
			}
		}
		return true
	})
}

// explained are the conditions of NodeClaims and Nodes that this provider explains by an event of its own:
// ServerClaimed when a NodeClaim is launched, and the events of package nodeclaimstatus.
var explained = []string{karpv1.ConditionTypeLaunched, v1alpha1.ConditionServerReady, v1alpha1.ConditionResourcesAdvertised,
	v1alpha1.ConditionNodeAsPlanned}

// Events returns the manager without two kinds of core's events about status and finalizers: changes of a condition in
// explained, which have their own event with the cause, and events about objects without a name, which nobody finds.
// Core publishes the latter when an object is gone.
func Events(m manager.Manager) manager.Manager { return quietManager{m} }

type quietManager struct{ manager.Manager }

// GetEventRecorderFor implements cluster.Cluster.
func (m quietManager) GetEventRecorderFor(name string) record.EventRecorder {
	//lint:ignore SA1019 core takes no other
	return quietRecorder{m.Manager.GetEventRecorderFor(name)}
}

type quietRecorder struct{ record.EventRecorder }

// Event implements record.EventRecorder. Core calls no other method of the interface.
func (r quietRecorder) Event(object runtime.Object, eventType, reason, message string) {
	about, err := meta.Accessor(object)
	if err == nil && about.GetName() == "" || slices.Contains(explained, reason) {
		return
	}
	r.EventRecorder.Event(object, eventType, reason, message)
}
