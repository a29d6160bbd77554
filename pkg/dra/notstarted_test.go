// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
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
		// The manager writes the status, too, and a look that meets its write is repeated.
		poll.Eventually(t, fmt.Sprintf("look %d says what does not run", look), func(ctx context.Context) error {
			cluster := &v1alpha1.TenantCluster{}
			if err := w.host.Get(ctx, w.cluster, cluster); err != nil {
				return err
			}
			if _, err := controller.Reconcile(ctx, cluster); err != nil {
				return err
			}
			if err := w.host.Get(ctx, w.cluster, cluster); err != nil {
				return err
			}
			condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDRASynced)
			if condition == nil || condition.Reason != v1alpha1.ReasonNotStarted || !strings.Contains(condition.Message, "no such index") {
				return fmt.Errorf("the condition is %+v", condition)
			}
			return nil
		})
	}
}
