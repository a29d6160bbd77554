// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"slices"

	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Refusals knows of NodeClaims that got no server although the catalog promised one: a quota was reached, or somebody
// else was faster. *cloudprovider.CloudProvider is the one.
type Refusals interface {
	// RefusedLately tells whether a NodeClaim of the NodePool was refused a server for want of one, and none has got one
	// since.
	RefusedLately(nodePool string) bool
}

// Dependencies of the methods. All are required.
type Dependencies struct {
	// Client is the one that Karpenter's core works with.
	Client client.Client
	// Planes are read past every cache before a server is given up.
	Planes tenant.Planes
	// Cluster is core's state.
	Cluster *state.Cluster
	// CloudProvider is the one that core works with. It must be decorated by WithReleased.
	CloudProvider cloudprovider.CloudProvider
	// Refusals of servers.
	Refusals Refusals
	// Recorder of events.
	Recorder events.Recorder
	// Clock for budgets with a schedule.
	Clock clock.Clock
}

// Replace puts a disruption controller into core's controllers that rolls drifted nodes even without a spare server, in
// the place of core's. The error says which controller was not found: this is another version of core.
func Replace(all []controller.Controller, d Dependencies) ([]controller.Controller, error) {
	provisioner, hasProvisioner := find[*provisioning.Provisioner](all)
	queue, hasQueue := find[*disruption.Queue](all)
	at := slices.IndexFunc(all, func(c controller.Controller) bool { _, is := c.(*disruption.Controller); return is })
	if !hasProvisioner || !hasQueue || at < 0 {
		return nil, errors.New("replacing Karpenter's disruption controller, it or its provisioner or queue is not among the controllers")
	}
	result := slices.Clone(all)
	methods := Methods(disruption.NewMethods(d.Clock, d.Cluster, d.Client, provisioner, d.CloudProvider, d.Recorder, queue), d, provisioner, queue)
	result[at] = disruption.NewController(d.Clock, d.Client, provisioner, d.CloudProvider, d.Recorder, d.Cluster, queue, nil, disruption.WithMethods(methods...))
	return result, nil
}

// Methods returns core's methods with those for drift replaced.
func Methods(core []disruption.Method, d Dependencies, provisioner *provisioning.Provisioner, queue *disruption.Queue) []disruption.Method {
	common := terminator{Dependencies: d, provisioner: provisioner, ledger: newLedger(d, provisioner, queue)}
	methods := slices.Clone(core)
	for i, method := range methods {
		switch method.(type) {
		case *disruption.Drift:
			methods[i] = &Drift{Method: method, terminator: common}
		case *disruption.StaticDrift:
			methods[i] = &StaticDrift{Method: method, terminator: common}
		}
	}
	return methods
}

func find[T controller.Controller](all []controller.Controller) (found T, ok bool) {
	for _, c := range all {
		if found, ok = c.(T); ok {
			return found, true
		}
	}
	return found, false
}
