// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// protect adds the finalizer, before anything exists that a Machine could leave behind.
func (r *Reconciler) protect(ctx context.Context, now *run) (result, error) {
	before := now.machine.DeepCopy()
	controllerutil.AddFinalizer(now.machine, v1alpha1.MachineFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, now.machine, patch); err != nil {
		return result{}, fmt.Errorf("adding the finalizer to Machine %s, %w", client.ObjectKeyFromObject(before), err)
	}
	return result{again: true}, nil
}

// choose picks a server. Whatever could make it useless afterwards, a wrong image or a tenant that does not exist, is
// found out first, so that a typo ties up no server.
func (r *Reconciler) choose(ctx context.Context, now *run) (result, error) {
	if !r.inventory.Synced() {
		return result{waits: true}, nil
	}
	machine := now.machine
	refuse := func(reason, message string) (result, error) {
		return result{facts: &facts{phase: v1alpha1.MachinePending, reason: reason, message: message}, waits: true}, nil
	}
	allowed, problem, err := r.allowed(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if problem != "" {
		return refuse(v1alpha1.ReasonInvalidSpec, problem)
	}
	if problem, err := r.checkOwn(ctx, machine); err != nil || problem != "" {
		if err != nil {
			return result{}, err
		}
		return refuse(v1alpha1.ReasonInvalidSpec, problem)
	}

	// Asked first what it would get, which takes no server: were one taken and given back for the sake of an image that
	// is wrong, both would wake all Machines that wait, this one among them, without end.
	wanted := request(machine, allowed)
	ask := wanted
	ask.Machine = ""
	if choice, err := r.inventory.Choose(ask); err == nil {
		if _, problem, err := r.image(ctx, machine, choice.NodeType); err != nil || problem != "" {
			if err != nil {
				return result{}, err
			}
			return refuse(v1alpha1.ReasonInvalidSpec, problem)
		}
	}
	choice, err := r.inventory.Choose(wanted)
	var none *hosts.NoHostError
	if errors.As(err, &none) {
		return refuse(none.Reason, none.Error())
	}
	if err != nil {
		return result{}, fmt.Errorf("choosing a server for Machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}

	// Another type than before, if the inventory has changed in between.
	_, problem, err = r.image(ctx, machine, choice.NodeType)
	if err != nil || problem != "" {
		r.inventory.Forget(hostKey(choice.Host), machine.UID)
		if err != nil {
			return result{}, err
		}
		return refuse(v1alpha1.ReasonInvalidSpec, problem)
	}
	return result{again: true, facts: &facts{
		phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, choice: &choice,
		message: fmt.Sprintf("claiming server %s/%s of type %s", choice.Host.Namespace, choice.Host.Name, choice.NodeType),
	}}, nil
}

func request(machine *v1alpha1.Machine, allowed func(string, string) bool) hosts.Request {
	request := hosts.Request{
		Machine:      machine.UID,
		Requirements: machine.Spec.Requirements,
		Resources:    machine.Spec.Resources,
		Allowed:      allowed,
		ServerName:   machine.Spec.Properties[v1alpha1.PropertyServerName],
	}
	if machine.Spec.NodeTypeRef != nil {
		request.NodeType = machine.Spec.NodeTypeRef.Name
	}
	return request
}

// allowed returns which types the Machine's tenant may have, or what is wrong with the tenant.
func (r *Reconciler) allowed(ctx context.Context, machine *v1alpha1.Machine) (func(typeName, provider string) bool, string, error) {
	if machine.Spec.TenantClusterRef == nil {
		allowed, err := r.allowedStandAlone(ctx, machine.Namespace)
		return allowed, "", err
	}
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.TenantClusterRef.Name}
	tenant := &v1alpha1.TenantCluster{}
	if err := r.client.Get(ctx, key, tenant); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Sprintf("Machine %s/%s: spec.tenantClusterRef.name is %q, and there is no TenantCluster of that name in namespace %s: create it, or make the Machine anew with another",
				machine.Namespace, machine.Name, key.Name, key.Namespace), nil
		}
		return nil, "", fmt.Errorf("reading TenantCluster %s, %w", key, err)
	}
	return tenant.Allows, "", nil
}

// allowedStandAlone returns which types a Machine without a tenant may have: all of them, but in a namespace with tenants
// those of the tenants. Their providers make Machines there, and leaving the tenant out must not get them any more.
func (r *Reconciler) allowedStandAlone(ctx context.Context, namespace string) (func(typeName, provider string) bool, error) {
	tenants := &v1alpha1.TenantClusterList{}
	if err := r.client.List(ctx, tenants, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the TenantClusters of namespace %s, %w", namespace, err)
	}
	return func(typeName, provider string) bool {
		return len(tenants.Items) == 0 || slices.ContainsFunc(tenants.Items, func(tenant v1alpha1.TenantCluster) bool {
			return tenant.Allows(typeName, provider)
		})
	}, nil
}

// claim writes the choice on the server.
func (r *Reconciler) claim(ctx context.Context, now *run) (result, error) {
	reference := *now.machine.Status.HostRef
	host, err := r.claims.Claim(ctx, reference, now.machine)
	var taken *TakenError
	if errors.As(err, &taken) {
		r.inventory.Forget(hostKey(reference), now.machine.UID)
		r.event(now.machine, corev1.EventTypeNormal, string(EventTaken), taken.Error())
		return result{again: true, facts: &facts{
			phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonClaiming, unchoose: true,
			message: taken.Error() + "; choosing another",
		}}, nil
	}
	if err != nil {
		return result{}, err
	}
	now.host = host
	return result{again: true, facts: &facts{
		phase: v1alpha1.MachineClaimed, reason: v1alpha1.ReasonClaimed, host: host,
		message: fmt.Sprintf("server %s/%s is claimed", host.Namespace, host.Name),
	}}, nil
}
