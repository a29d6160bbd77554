// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timelimits makes Karpenter's core wait for a server until its Machine is given up.
//
// Core deletes a NodeClaim whose node has not registered 15 minutes after the launch, and gives up on a replacement
// that is not ready after 10 minutes. Neither limit can be set. Both count from a time that core stores: the last
// transition of the condition Registered, and the creation of the disruption command. In both cases the controller that
// compares the time first reads the NodeClaim of its request. That read moves the time: core compares it there and
// then, so it makes no difference how long the provider was down, which controller is first after a restart, or whether
// a write was lost. Nothing is written for it.
//
// Machines are read from a cache. A stale cache, or an API server that does not answer, makes core wait, and never
// makes it give up. Only the manager gives a Machine up, by the condition GivenUp.
package timelimits

import (
	"context"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Machines reads the Machines of NodeClaims.
type Machines struct {
	// Client reads Machines, from a cache.
	Client    client.Reader
	Namespace string
	// Synced returns an error until the cache is filled.
	Synced func() error
}

// Lifecycle returns core's lifecycle controller with its limit on registration moved. The others change other reads.
func Lifecycle(core *lifecycle.Controller, clk clock.PassiveClock, machines Machines,
	others ...interceptor.Interceptor) controller.Controller {
	return &wrappedController{core, func(client.Client) []interceptor.Interceptor {
		return append([]interceptor.Interceptor{Registering(clk, machines)}, others...)
	}}
}

// Queue returns core's disruption queue with its limit on replacements moved.
func Queue(core *disruption.Queue, clk clock.PassiveClock, machines Machines) controller.Controller {
	return &wrappedController{core, func(c client.Client) []interceptor.Interceptor {
		return []interceptor.Interceptor{Replacing(c, core, clk, machines)}
	}}
}

// wrappedController is a controller of core that reads the object of a request through interceptors.
type wrappedController struct {
	controller.Controller
	interceptors func(client.Client) []interceptor.Interceptor
}

// Register registers the controller as core does, including its predicates and rate limits.
func (w *wrappedController) Register(ctx context.Context, m manager.Manager) error {
	c := m.GetClient()
	return w.Controller.Register(ctx, operator.WithClient(m, interceptor.NewClient(c, w.interceptors(c)...)))
}

// startOfWait returns when core's limit for a NodeClaim starts: now while its server is being installed or its state is
// unknown, and afterwards the time when the server joined. It returns zero if core's own start applies.
func (m Machines) startOfWait(ctx context.Context, nodeClaim *karpv1.NodeClaim, now time.Time) (time.Time, error) {
	if m.Synced() != nil {
		return now, nil
	}
	machine, err := m.machineOf(ctx, nodeClaim)
	if err != nil || machine == nil {
		return time.Time{}, err
	}
	conditions := machine.Status.Conditions
	switch {
	case !machine.DeletionTimestamp.IsZero(),
		!meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionClaimed), meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionGivenUp):
		return time.Time{}, nil
	}
	if joined := meta.FindStatusCondition(conditions, v1alpha1.ConditionJoined); joined != nil && joined.Status == metav1.ConditionTrue {
		return joined.LastTransitionTime.Time, nil
	}
	return now, nil
}

// suspended reports whether the server of a NodeClaim makes no progress.
func (m Machines) suspended(ctx context.Context, nodeClaim *karpv1.NodeClaim) (bool, error) {
	machine, err := m.machineOf(ctx, nodeClaim)
	return machine != nil && machine.Status.Progress != nil && machine.Status.Progress.Suspended, err
}

// machineOf returns the Machine of a NodeClaim, nil if there is none.
func (m Machines) machineOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*v1alpha1.Machine, error) {
	machine := &v1alpha1.Machine{}
	found, err := kube.Find(ctx, m.Client, client.ObjectKey{Namespace: m.Namespace, Name: nodeClaim.Name}, machine)
	if err != nil || !found || !tenant.MadeFor(machine, nodeClaim) {
		return nil, err
	}
	return machine, nil
}

// Registering changes the reads of core's lifecycle controller. It applies to a NodeClaim that has been launched, has
// not registered, and has a Machine with a server. The last transition of its condition Registered becomes the current
// time. Once the server has joined, core has its own 15 minutes to register it.
func Registering(clk clock.PassiveClock, machines Machines) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, nodeClaim *karpv1.NodeClaim, _ []client.GetOption) error {
		if !nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Status.ProviderID == "" {
			return nil
		}
		// StatusConditions would add missing conditions.
		index := slices.IndexFunc(nodeClaim.Status.Conditions, func(condition status.Condition) bool {
			return condition.Type == karpv1.ConditionTypeRegistered
		})
		if index < 0 || nodeClaim.Status.Conditions[index].Status == metav1.ConditionTrue {
			return nil
		}
		start, err := machines.startOfWait(ctx, nodeClaim, clk.Now())
		if err != nil {
			return err
		}
		// The object is the caller's own copy. If core writes its conditions, this time is stored, which does no harm.
		if registered := &nodeClaim.Status.Conditions[index]; start.After(registered.LastTransitionTime.Time) {
			registered.LastTransitionTime = metav1.NewTime(start)
		}
		return nil
	})
}

// Replacing changes the reads of core's disruption queue. It moves the creation time of the command that the NodeClaim
// belongs to while the server of one of its replacements is being installed. Once the last server has joined, its node
// has core's own 10 minutes to get ready. The same limit applies to a server that makes no progress, because it is held
// in error or paused: the old node is tainted meanwhile, and must not stay so for ever.
//
// The queue has many workers. It puts a command into its workqueue by one key, the NodeClaim of the first candidate,
// and workers start with this read. No two have the same key at a time, so nothing else reads this time concurrently.
func Replacing(c client.Reader, queue *disruption.Queue, clk clock.PassiveClock, machines Machines) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, nodeClaim *karpv1.NodeClaim, _ []client.GetOption) error {
		queue.RLock()
		command := queue.ProviderIDToCommand[nodeClaim.Status.ProviderID]
		queue.RUnlock()
		if command == nil {
			return nil
		}
		for _, replacement := range command.Replacements {
			if replacement.Initialized || replacement.Name == "" {
				continue
			}
			start, err := startOfReplacement(ctx, c, replacement.Name, clk, machines)
			if err != nil {
				return err
			}
			if start.After(command.CreationTimestamp) {
				command.CreationTimestamp = start
			}
		}
		return nil
	})
}

func startOfReplacement(ctx context.Context, c client.Reader, name string, clk clock.PassiveClock, machines Machines) (time.Time, error) {
	nodeClaim := &karpv1.NodeClaim{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, nodeClaim); err != nil {
		return time.Time{}, client.IgnoreNotFound(err) // core handles that it is gone
	}
	if !nodeClaim.DeletionTimestamp.IsZero() {
		return time.Time{}, nil
	}
	if suspended, err := machines.suspended(ctx, nodeClaim); err != nil || suspended {
		return time.Time{}, err
	}
	return machines.startOfWait(ctx, nodeClaim, clk.Now())
}
