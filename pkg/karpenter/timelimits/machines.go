// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// Machines reads the Machines of NodeClaims.
type Machines struct {
	// Client reads Machines, from a cache.
	Client client.Reader
	// Namespace that they are in.
	Namespace string
	// Synced returns an error as long as the cache is not filled.
	Synced func() error
}

// Lifecycle returns core's lifecycle controller with its limit on registration moved.
func Lifecycle(core *lifecycle.Controller, clk clock.PassiveClock, machines Machines) controller.Controller {
	return wrapped(core, func(client.Client) interceptor.Interceptor { return Registering(clk, machines) })
}

// Queue returns core's disruption queue with its limit on replacements moved.
func Queue(core *disruption.Queue, clk clock.PassiveClock, machines Machines) controller.Controller {
	return wrapped(core, func(c client.Client) interceptor.Interceptor { return Replacing(c, core, clk, machines) })
}

// wrappedController is a controller of core that reads the object of a request through an interceptor.
type wrappedController struct {
	controller.Controller
	interceptor func(client.Client) interceptor.Interceptor
}

func wrapped(core controller.Controller, interceptor func(client.Client) interceptor.Interceptor) *wrappedController {
	return &wrappedController{Controller: core, interceptor: interceptor}
}

// Register registers the controller as core does, including its predicates and rate limits.
func (w *wrappedController) Register(ctx context.Context, m manager.Manager) error {
	c := m.GetClient()
	return w.Controller.Register(ctx, operator.WithClient(m, interceptor.NewClient(c, w.interceptor(c))))
}

// startOfWait is when core's limit for a NodeClaim starts: now, as long as its server is being installed or that is not
// known, and the time when it joined afterwards. It is zero if core's own start holds.
func (m Machines) startOfWait(ctx context.Context, nodeClaim *karpenterv1.NodeClaim, now time.Time) (time.Time, error) {
	if m.Synced() != nil {
		return now, nil
	}
	machine := &v1alpha1.Machine{}
	key := types.NamespacedName{Namespace: m.Namespace, Name: nodeClaim.Name}
	if err := m.Client.Get(ctx, key, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return time.Time{}, nil
		}
		return time.Time{}, fmt.Errorf("reading machine %s, %w", key, err)
	}
	conditions := machine.Status.Conditions
	switch {
	case !tenant.MadeFor(machine, nodeClaim), !machine.DeletionTimestamp.IsZero(),
		!meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionClaimed), meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionGivenUp):
		return time.Time{}, nil
	}
	if joined := meta.FindStatusCondition(conditions, v1alpha1.ConditionJoined); joined != nil && joined.Status == metav1.ConditionTrue {
		return joined.LastTransitionTime.Time, nil
	}
	return now, nil
}

// suspended tells whether the server of a NodeClaim makes no progress.
func (m Machines) suspended(ctx context.Context, nodeClaim *karpenterv1.NodeClaim) (bool, error) {
	machine := &v1alpha1.Machine{}
	key := types.NamespacedName{Namespace: m.Namespace, Name: nodeClaim.Name}
	if err := m.Client.Get(ctx, key, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading machine %s, %w", key, err)
	}
	return tenant.MadeFor(machine, nodeClaim) && machine.Status.Progress != nil && machine.Status.Progress.Suspended, nil
}
