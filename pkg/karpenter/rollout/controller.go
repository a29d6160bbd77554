// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout replaces drifted nodes where servers are finite. Karpenter launches the replacement first and drains
// the old node afterwards. Without a free server it waits for ever, and for a static NodePool it creates and loses
// NodeClaims without end. Here such a node is deleted first: core drains it, its server is released, and the drained
// pods get it again with the current image. One node goes at a time, within the NodePool's budgets for drift.
//
// Two disruption methods replace core's, and consolidation leaves some nodes alone. Core still decides which nodes may
// be disrupted, with its rules for do-not-disrupt, PodDisruptionBudgets and terminationGracePeriod, drains them, and
// publishes the events. As long as a replacement can be launched, core's own methods also decide the rest.
//
// A budget limits how many nodes are missing. Core counts nodes, and no node whose server is released. So the NodePool
// records the NodeClaims that were deleted first (replacements.go) until their replacement is initialized.
//
// The nodes of one NVLink domain are replaced before the nodes of the next (domains.go). Pods of a PodGroup whose
// disruptionMode asks for it are disrupted together (groups.go): its drifted nodes are replaced once the budgets allow
// all of its nodes, and none of them is consolidated.
package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Servers knows which servers NodePools can get. *cloudprovider.CloudProvider implements it.
type Servers interface {
	// RefusedLately reports whether the NodePool was refused a server of the type although the catalog had one, because
	// of a quota or another tenant, and has got none since.
	RefusedLately(nodePool, nodeType string) bool
	// Refusal returns why a NodePool would not even get back a server that it releases, "" if nothing is known.
	Refusal(ctx context.Context, nodePool *karpv1.NodePool, nodeType string) (string, error)
	// FreeFor returns how many more servers a static NodePool could get now, and after which time there may be more.
	FreeFor(ctx context.Context, nodePool *karpv1.NodePool) (free int64, retryAfter time.Duration, err error)
}

// Dependencies of the methods. All are required.
type Dependencies struct {
	// Client is the client of Karpenter's core.
	Client client.Client
	// Clusters are the clients for reads past every cache, before a node is deleted.
	Clusters tenant.Clusters
	// Cluster is core's state.
	Cluster *state.Cluster
	// CloudProvider is core's CloudProvider.
	CloudProvider cloudprovider.CloudProvider
	Servers       Servers
	Recorder      events.Recorder
	// DisruptedTogether reports whether a PodGroup may only be disrupted as a whole (gangs.DisruptionModes).
	DisruptedTogether func(ctx context.Context, podGroup client.ObjectKey) (bool, error)
	// Clock evaluates the schedules of budgets.
	Clock clock.Clock
}

// Core has the parts of core that the methods work with.
type Core struct {
	Provisioner *provisioning.Provisioner
	Queue       *disruption.Queue
	// DeviceAllocation is nil if core ignores resource claims.
	DeviceAllocation *deviceallocation.Controller
}

// NewController returns core's disruption controller with our methods for drift. Core finds its options in the context.
func NewController(ctx context.Context, d Dependencies, core Core) *disruption.Controller {
	// Core does not hand out its ClusterCost. Without it, consolidationPolicy Balanced takes the prices of the
	// candidates for the total cost of a NodePool, so nodes that cannot be disrupted do not count.
	methods := disruption.NewMethods(ctx, d.Clock, d.Cluster, d.Client, core.Provisioner, d.CloudProvider, d.Recorder, core.Queue)
	return disruption.NewController(ctx, d.Clock, d.Client, core.Provisioner, d.CloudProvider, d.Recorder, d.Cluster, core.Queue, nil,
		disruption.WithMethods(replaceDrift(methods, d, core)...))
}

func replaceDrift(methods []disruption.Method, d Dependencies, core Core) []disruption.Method {
	common := terminator{Dependencies: d, replacements: newReplacements(d, core.Provisioner, core.Queue)}
	methods = slices.Clone(methods)
	for i, method := range methods {
		switch method := method.(type) {
		case *disruption.Drift:
			methods[i] = &Drift{Method: method, terminator: common, deviceAllocation: core.DeviceAllocation}
		case *disruption.StaticDrift:
			methods[i] = &StaticDrift{Method: method, terminator: common}
		case *disruption.MultiNodeConsolidation:
			methods[i] = &consolidation{consolidates: method, terminator: common}
		case *disruption.SingleNodeConsolidation:
			methods[i] = &consolidation{consolidates: method, terminator: common}
		}
	}
	return methods
}

// Reasons of events on NodeClaims and Nodes.
const (
	// reasonWithoutSpare: the node is drained before its replacement is there.
	reasonWithoutSpare = "RolloutWithoutSpare"
	// reasonBlocked: the node is not disrupted, because its pods would not get a server again.
	reasonBlocked = "RolloutBlocked"
)

func drainedFirst(candidate *disruption.Candidate, why string) []events.Event {
	return both(candidate, corev1.EventTypeNormal, reasonWithoutSpare,
		fmt.Sprintf("%s: this node is drained first, and its server is reinstalled", why))
}

func blocked(candidate *disruption.Candidate, why string) []events.Event {
	return both(candidate, corev1.EventTypeWarning, reasonBlocked, "this node has drifted and stays: "+why)
}

func both(candidate *disruption.Candidate, kind, reason, message string) []events.Event {
	var all []events.Event
	for _, object := range []runtime.Object{candidate.NodeClaim, candidate.Node} {
		all = append(all, events.Event{
			InvolvedObject: object, Type: kind, Reason: reason, Message: message,
			DedupeValues: []string{string(candidate.NodeClaim.UID), reason},
		})
	}
	return all
}
