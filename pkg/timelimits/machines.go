// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"errors"
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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Machines tells what is known of the Machines of NodeClaims.
type Machines struct {
	// Client reads Machines, from a cache.
	Client client.Reader
	// Namespace that they are in.
	Namespace string
	// Synced returns an error as long as the cache is not filled.
	Synced func() error
}

// Teach returns Karpenter's controllers with those that have limits made patient. The error says that core does not have
// the controllers that this package knows, as after an upgrade.
func Teach(all []controller.Controller, clk clock.PassiveClock, machines Machines) ([]controller.Controller, error) {
	taught := make([]controller.Controller, 0, len(all))
	registering, replacing := false, false
	for _, c := range all {
		switch core := c.(type) {
		case *lifecycle.Controller:
			registering = true
			c = &patient{Controller: core, read: func(of client.Client) client.Client { return Registering(of, clk, machines) }}
		case *disruption.Queue:
			replacing = true
			c = &patient{Controller: core, read: func(of client.Client) client.Client { return Replacing(of, core, clk, machines) }}
		}
		taught = append(taught, c)
	}
	if !registering || !replacing {
		return nil, errors.New("karpenter's core has no NodeClaim lifecycle controller or no disruption queue of the known kind: servers that boot slowly would be given up")
	}
	return taught, nil
}

// patient is a controller of core that reads what it was woken for through another client.
type patient struct {
	controller.Controller
	read func(client.Client) client.Client
}

// Register registers the controller as core does, its predicates and limits included.
func (p *patient) Register(ctx context.Context, m manager.Manager) error {
	return p.Controller.Register(ctx, &reading{Manager: m, client: p.read(m.GetClient())})
}

// reading is a manager whose client is another one.
type reading struct {
	manager.Manager
	client client.Client
}

// GetClient returns the other client.
func (r *reading) GetClient() client.Client { return r.client }

// waitFrom is the time from which core may begin to wait for the server of a NodeClaim: now, while the server is on its way
// to becoming a node or that cannot be told, and when it became one afterwards. It is zero for a NodeClaim that core can
// do with as it does.
func (m Machines) waitFrom(ctx context.Context, nodeClaim *karpenterv1.NodeClaim, now time.Time) (time.Time, error) {
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

// suspended tells whether no progress is to be expected of the server of a NodeClaim.
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
