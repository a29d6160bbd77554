// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Create creates the Machine of a NodeClaim, or finds the Machine of an earlier call, and waits until the manager has
// claimed a server for it. It returns an InsufficientCapacityError if no matching server is free, or if another call
// would not change the answer. It returns a NodeClassNotReadyError if the class is missing or not ready. After any
// other error Karpenter calls again. Create deletes the Machine once the manager has refused it. While there is no
// decision the Machine stays, and the next call finds it.
func (c *CloudProvider) Create(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	class, err := c.nodeClassOf(ctx, nodeClaim)
	if err != nil {
		return nil, err
	}
	s, err := c.scopeOf(ctx, nil)
	if err != nil {
		return nil, createError(reasonManagementUnavailable, err)
	}
	types := instancetypes.LimitTypes(s.rest, c.management.Catalog.InstanceTypes(instancetypes.NewFilter(s.tenant, class)))
	launch, err := c.newLaunch(ctx, nodeClaim, types)
	if err != nil {
		return nil, err
	}
	// Subscribe before the Machine exists, so that Create misses no change of it.
	changes, done := c.management.machines.subscribe(nodeClaim.Name)
	defer done()
	machine, err := c.createMachine(ctx, machineFor(nodeClaim, class, types, c.management.Catalog.Advertises, c.options))
	if noMachine := (*noMachineError)(nil); errors.As(err, &noMachine) {
		return nil, c.refusal(launch, noMachine.result, metav1.Condition{Reason: noMachine.reason, Message: noMachine.message})
	}
	if err != nil {
		return nil, err
	}
	return c.await(ctx, launch, machine, changes)
}

// nodePoolOf returns the NodePool of a NodeClaim, or nil if the NodePool is gone: core deletes the NodeClaim then.
func (c *CloudProvider) nodePoolOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*karpv1.NodePool, error) {
	name, found := nodeClaim.Labels[karpv1.NodePoolLabelKey]
	if !found {
		return nil, nil
	}
	nodePool := &karpv1.NodePool{}
	if found, err := kube.Find(ctx, c.tenant, types.NamespacedName{Name: name}, nodePool); err != nil || !found {
		return nil, err
	}
	return nodePool, nil
}

// createMachine creates the Machine, or returns the existing one if it was made for the same NodeClaim.
func (c *CloudProvider) createMachine(ctx context.Context, wanted *v1alpha1.Machine) (*v1alpha1.Machine, error) {
	// A retry finds it in the cache, without a request that fails. If it is gone, its deletion follows.
	cached := &v1alpha1.Machine{}
	if err := c.management.Client.Get(ctx, client.ObjectKeyFromObject(wanted), cached); err == nil && cached.DeletionTimestamp.IsZero() &&
		sameNodeClaim(cached, wanted) {
		return cached, nil
	}
	err := c.management.Client.Create(ctx, wanted)
	switch {
	case err == nil:
		return wanted, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, &noMachineError{noServer, v1alpha1.ReasonTenantDeleting, fmt.Sprintf("creating machine %s, %v", wanted.Name, err)}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err) && !isUnauthorizedCreate(err):
		return nil, &noMachineError{refused, reasonInvalidMachine, fmt.Sprintf("creating machine %s, %v", wanted.Name, err)}
	case !apierrors.IsAlreadyExists(err):
		return nil, createError(reasonManagementUnavailable, fmt.Errorf("creating machine %s, %w", wanted.Name, err))
	}
	// Read live: a cache may still have a Machine that is gone.
	existing := &v1alpha1.Machine{}
	if err := c.management.Live.Get(ctx, client.ObjectKeyFromObject(wanted), existing); err != nil {
		return nil, createError(reasonManagementUnavailable, fmt.Errorf("reading machine %s, %w", wanted.Name, err))
	}
	switch {
	case !existing.DeletionTimestamp.IsZero():
		return nil, &noMachineError{refused, reasonMachineDeleted, beingDeleted(existing)}
	case !sameNodeClaim(existing, wanted):
		return nil, &noMachineError{refused, reasonNameTaken,
			fmt.Sprintf("machine %s/%s was not made for this NodeClaim", existing.Namespace, existing.Name)}
	}
	return existing, nil
}

func sameNodeClaim(a, b *v1alpha1.Machine) bool {
	return a.Annotations[v1alpha1.NodeClaimUIDAnnotationKey] == b.Annotations[v1alpha1.NodeClaimUIDAnnotationKey]
}

// isUnauthorizedCreate reports whether a 403 comes from the authorizer, and not from admission. The authorizer does not
// know the name of an object that is to be created. An API server that has just started denies requests until it has
// read its RBAC rules, so the NodeClaim must be tried again.
func isUnauthorizedCreate(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind != "" && details.Name == ""
}

// noMachineError says that the NodeClaim can have no Machine. A webhook, a ResourceQuota or a policy engine denies it,
// its namespace is being deleted, or another NodeClaim has one of that name. A retry would not help.
type noMachineError struct {
	result          claimResult
	reason, message string
}

// Error implements error.
func (e *noMachineError) Error() string { return e.message }

// await returns the manager's decision about a Machine, or an error after the timeout.
func (c *CloudProvider) await(ctx context.Context, launch launch, machine *v1alpha1.Machine,
	changes <-chan change) (*karpv1.NodeClaim, error) {
	timeout := c.clock.NewTimer(c.options.ClaimTimeout)
	defer timeout.Stop()
	for {
		result, condition := resultOf(machine)
		if condition.Reason == v1alpha1.ReasonGangIncomplete && c.refusals.waitsTooLong(launch.nodeClaim.UID) {
			result = noServer
		}
		var instanceType *cloudprovider.InstanceType
		if result == claimed {
			var problem string
			if instanceType, problem = c.instanceTypeOf(machine); problem != "" {
				result, condition = refused, metav1.Condition{Reason: reasonUnknownType, Message: problem}
			}
		}
		switch result {
		case claimed:
			return c.succeed(launch.nodeClaim, machine, instanceType, condition), nil
		case noServer, refused:
			gone, err := c.withdraw(ctx, machine)
			if err != nil {
				return nil, err
			}
			if gone {
				return nil, c.refusal(launch, result, condition)
			}
			// The manager has written since: the update is being delivered, or is in changes already.
		}
		select {
		case update := <-changes:
			if update.machine.UID != machine.UID {
				continue // of an earlier Machine of that name
			}
			switch {
			case update.deleted:
				return nil, c.refusal(launch, refused, metav1.Condition{Reason: reasonMachineDeleted,
					Message: fmt.Sprintf("machine %s was deleted before it had a server", machine.Name)})
			case !update.machine.DeletionTimestamp.IsZero():
				return nil, c.refusal(launch, refused, metav1.Condition{Reason: reasonMachineDeleted, Message: beingDeleted(machine)})
			}
			machine = update.machine
		case <-timeout.C():
			return nil, createError(reasonWaitingForManager,
				fmt.Errorf("machine %s has no server after %v: %s", machine.Name, c.options.ClaimTimeout, describeProgress(machine, condition)))
		case <-ctx.Done():
			return nil, createError(reasonWaitingForManager, fmt.Errorf("waiting for machine %s, %w", machine.Name, ctx.Err()))
		}
	}
}

// withdraw deletes a Machine that got no server, or got a server that this provider cannot use. It returns false if the
// Machine has changed since Create read it.
func (c *CloudProvider) withdraw(ctx context.Context, machine *v1alpha1.Machine) (bool, error) {
	err := c.management.Client.Delete(ctx, machine.DeepCopy(),
		client.Preconditions{UID: &machine.UID, ResourceVersion: &machine.ResourceVersion})
	switch {
	case err == nil, kube.IsGone(err):
		return true, nil
	case apierrors.IsConflict(err):
		return false, nil
	}
	return false, createError(reasonManagementUnavailable, fmt.Errorf("deleting machine %s, which is refused, %w", machine.Name, err))
}

// refusal returns the error for a NodeClaim that gets no server, with the manager's message. It makes core delete the
// NodeClaim, even if no retry can succeed: while one has no provider ID, core creates none for any pod of the tenant.
func (c *CloudProvider) refusal(l launch, result claimResult, condition metav1.Condition) error {
	err := fmt.Errorf("%s: %s", condition.Reason, condition.Message)
	c.backOff(l, condition)
	if result == refused { // in the other case core publishes the event
		c.recorder.Publish(tenant.Warning(l.nodeClaim, reasonServerRefused, err.Error()))
	}
	return cloudprovider.NewInsufficientCapacityError(err)
}

// instanceTypeOf returns the type of a Machine's server, or why there is none. A node without a capacity would fit no
// pod, and core would create another node.
func (c *CloudProvider) instanceTypeOf(machine *v1alpha1.Machine) (*cloudprovider.InstanceType, string) {
	if machine.Status.NodeTypeRef == nil {
		return nil, fmt.Sprintf("machine %s has a server and no NodeType in its status", machine.Name)
	}
	instanceType, found := c.management.Catalog.InstanceType(machine.Status.NodeTypeRef.Name)
	if !found {
		return nil, fmt.Sprintf("machine %s has a server of NodeType %s, which this provider does not see", machine.Name,
			machine.Status.NodeTypeRef.Name)
	}
	return instanceType, ""
}

func (c *CloudProvider) succeed(nodeClaim *karpv1.NodeClaim, machine *v1alpha1.Machine, instanceType *cloudprovider.InstanceType,
	condition metav1.Condition) *karpv1.NodeClaim {
	got := poolType{nodePool: nodeClaim.Labels[karpv1.NodePoolLabelKey], nodeType: machine.Status.NodeTypeRef.Name}
	c.refusals.noServer.Delete(got)
	c.refusals.forget(func(key poolType, _ refusal) bool { return key == got })
	c.recorder.Publish(events.Event{
		InvolvedObject: nodeClaim,
		Type:           corev1.EventTypeNormal,
		Reason:         reasonServerClaimed,
		Message:        claimedMessage(machine, condition),
		DedupeValues:   []string{string(nodeClaim.UID), machine.Status.ProviderID},
	})
	launched := c.nodeClaimOf(machine)
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(nodeClaim.Labels).Values()...)
	if instancetypes.CapacityTypeFor(wanted) == karpv1.CapacityTypeOnDemand {
		launched.Labels[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeOnDemand
		delete(launched.Labels, v1alpha1.ReservationIDLabelKey)
	}
	launched.Annotations = awaitedDrivers(nodeClaim, instanceType)
	return launched
}

func claimedMessage(machine *v1alpha1.Machine, condition metav1.Condition) string {
	message := "NodeType " + machine.Status.NodeTypeRef.Name
	if machine.Status.Cost != nil {
		message += fmt.Sprintf(" (cost %d)", *machine.Status.Cost)
	}
	if host := machine.Status.HostRef; host != nil {
		message += fmt.Sprintf(", server %s", types.NamespacedName{Namespace: host.Namespace, Name: host.Name})
	}
	if condition.Message != "" {
		message += ": " + condition.Message
	}
	return message
}

func describeProgress(machine *v1alpha1.Machine, condition metav1.Condition) string {
	switch {
	case condition.Message != "":
		return condition.Message
	case machine.Status.Phase != "":
		return "it is " + string(machine.Status.Phase)
	}
	return "the manager has not reconciled it: check that karpenter-metal3-manager runs in the management cluster"
}

// beingDeleted is the message for a NodeClaim whose Machine is being deleted, from a cache, a watch or a live read.
func beingDeleted(machine *v1alpha1.Machine) string {
	return fmt.Sprintf("machine %s is being deleted", machine.Name)
}

// createError returns an error that makes core call again and keep the NodeClaim. While the NodeClaim has no provider
// ID, core creates no other for any pod of the tenant. So it is only for problems that end by themselves: an API server
// that is away, or a manager that has not decided.
func createError(reason string, err error) error {
	return cloudprovider.NewCreateError(err, reason, err.Error())
}

// Reasons of events and of the Launched condition of NodeClaims.
const (
	// reasonServerClaimed: the NodeClaim has its server. An event only.
	reasonServerClaimed = "ServerClaimed"
	// reasonServerRefused: the NodeClaim gets no server, or its NodePool is not offered a refused type. An event only.
	reasonServerRefused = "ServerRefused"
	// reasonNodeClassUnknown: the MetalNodeClass has not been reconciled yet.
	reasonNodeClassUnknown = "NodeClassReadinessUnknown"
	// reasonManagementUnavailable: a request to the management cluster failed.
	reasonManagementUnavailable = "ManagementClusterUnavailable"
	// reasonInvalidMachine: the management cluster does not accept the Machine.
	reasonInvalidMachine = "InvalidMachine"
	// reasonWaitingForManager: the manager has not decided in time.
	reasonWaitingForManager = "WaitingForManager"
	// reasonMachineDeleted: the Machine was deleted while its server was being claimed.
	reasonMachineDeleted = "MachineDeleted"
	// reasonNameTaken: a Machine of that name belongs to another NodeClaim.
	reasonNameTaken = "MachineNameTaken"
	// reasonNodePoolUnavailable: the provider cannot read the NodePool.
	reasonNodePoolUnavailable = "NodePoolUnavailable"
	// reasonUnknownType: the manager chose a NodeType that this provider does not see.
	reasonUnknownType = "UnknownNodeType"
)

// claimResult is the manager's decision about a Machine.
type claimResult int

const (
	// pending: no decision yet, or one about an earlier generation.
	pending claimResult = iota
	// claimed: the Machine has a server.
	claimed
	// noServer: no matching server is free now.
	noServer
	// refused: the Machine will not get a server, whatever is free.
	refused
)

// resultOf returns the decision in the status of a Machine, and the condition Claimed that contains it.
func resultOf(machine *v1alpha1.Machine) (claimResult, metav1.Condition) {
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionClaimed)
	switch {
	case condition == nil:
		return pending, metav1.Condition{}
	case condition.Status == metav1.ConditionTrue:
		if machine.Status.ProviderID == "" {
			return pending, *condition
		}
		return claimed, *condition
	case condition.Status != metav1.ConditionFalse, condition.ObservedGeneration != machine.Generation, machine.HasHost():
		return pending, *condition
	}
	switch condition.Reason {
	case v1alpha1.ReasonClaiming, v1alpha1.ReasonGangIncomplete:
		return pending, *condition
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed:
		return refused, *condition
	}
	// Also for reasons of later versions: while the NodeClaim stays, core makes none for any pod of the tenant.
	return noServer, *condition
}
