// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// unstartable is a controller that the manager does not take.
type unstartable struct{}

func (unstartable) Register(context.Context, manager.Manager) error {
	return errors.New("no such index")
}

// A sync of which a part does not run is not in sync, however often it is looked at.
func TestNotStarted(t *testing.T) {
	w := newFixture(t)
	clusters := tenant.Clusters{
		TenantCluster: w.cluster,
		Tenant:        tenant.Cluster{Client: w.tenant, Live: w.tenant},
		Management:    tenant.Cluster{Client: w.host, Live: w.host},
	}
	controller := NewController(clock.RealClock{}, clusters, unstartable{})
	for look := range 2 {
		cluster := &v1alpha1.TenantCluster{}
		w.must(w.host.Get(t.Context(), w.cluster, cluster))
		if _, err := controller.Reconcile(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		w.must(w.host.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
		condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDRASynced)
		if condition == nil || condition.Reason != v1alpha1.ReasonNotStarted || !strings.Contains(condition.Message, "no such index") {
			t.Errorf("at look %d the condition is %+v", look, condition)
		}
	}
}
