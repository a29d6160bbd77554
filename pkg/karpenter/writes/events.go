// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// explained are the conditions of NodeClaims and Nodes that package nodeclaimstatus publishes events about.
var explained = []string{v1alpha1.ConditionServerReady, v1alpha1.ConditionResourcesAdvertised, v1alpha1.ConditionNodeAsPlanned}

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
