// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// managerPatience is how long the manager may take to answer. Its first answer takes less than a second. When its
	// leader dies, another replica leads within 20 seconds.
	managerPatience = time.Minute
	managerRemedy   = "see that the manager runs: kubectl get pods -A -l app.kubernetes.io/component=manager"
)

// unanswered says that the manager does not answer, and names the object that has waited longest. The manager writes
// to an object's status that it has seen the creation or the deletion. A change of the spec does not count, as no
// object has its time.
func unanswered(m *Management, now time.Time) Cause {
	oldest, since := "", now.Add(-managerPatience)
	note := func(kind string, object client.Object, observed int64, finalizer string) {
		var asked metav1.Time
		switch deleted := object.GetDeletionTimestamp(); {
		case observed < 0:
			asked = object.GetCreationTimestamp()
		case deleted != nil && observed < object.GetGeneration() && controllerutil.ContainsFinalizer(object, finalizer):
			asked = *deleted
		default:
			return
		}
		if asked.Time.Before(since) {
			oldest, since = kind+" "+nameOf(object), asked.Time
		}
	}
	for i := range m.Machines {
		note("Machine", &m.Machines[i], m.Machines[i].Status.ObservedGeneration, v1alpha1.MachineFinalizer)
	}
	for i := range m.TenantClusters {
		note("TenantCluster", &m.TenantClusters[i], m.TenantClusters[i].Status.ObservedGeneration, v1alpha1.TenantClusterFinalizer)
	}
	if oldest == "" {
		return Cause{}
	}
	return Cause{Text: fmt.Sprintf("the manager has not answered for %s: %s waits for it. It is down, hangs, or is late",
		ago(now, since), oldest), Verdict: Wrong, Remedy: managerRemedy}
}

// stopped says which program does nothing for a tenant now: the manager, or the tenant's provider.
func (f *Fleet) stopped(tenant *v1alpha1.TenantCluster) []Cause {
	var causes []Cause
	if f.manager.Text != "" {
		causes = append(causes, f.manager)
	}
	for _, condition := range tenant.Blocked() {
		causes = append(causes, Cause{Text: fmt.Sprintf("TenantCluster %s is blocked: %s", nameOf(tenant), quoted(condition.Message)),
			Verdict: Wrong})
	}
	return causes
}
