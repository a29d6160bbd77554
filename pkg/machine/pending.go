// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// protect adds the finalizer, before anything exists that a Machine could leave behind, and writes down under which UID it
// claims, for the day on which the Machine is restored under another.
func (r *Reconciler) protect(ctx context.Context, now *run) (result, error) {
	before := now.machine.DeepCopy()
	controllerutil.AddFinalizer(now.machine, v1alpha1.MachineFinalizer)
	if now.machine.Annotations[v1alpha1.ClaimUIDAnnotationKey] == "" {
		annotate(now.machine, v1alpha1.ClaimUIDAnnotationKey, string(now.machine.UID))
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, now.machine, patch); err != nil {
		if apierrors.IsNotFound(err) {
			return result{}, nil // the cache does not know yet that it has been deleted
		}
		return result{}, fmt.Errorf("adding the finalizer to Machine %s, %w", client.ObjectKeyFromObject(before), err)
	}
	r.echoes.expect(now.machine, r.clock.Now())
	return result{again: true}, nil
}

// choose picks a server. Whatever could make it useless afterwards, a wrong image or a tenant that does not exist, is
// found out first, so that a typo ties up no server.
func (r *Reconciler) choose(ctx context.Context, now *run) (result, error) {
	if !r.inventory.Synced() {
		return result{wants: wish{need: correction}}, nil
	}
	machine := now.machine
	refuse := func(reason, message string) (result, error) {
		return result{facts: &facts{phase: v1alpha1.MachinePending, reason: reason, message: message}, wants: wish{need: correction}}, nil
	}
	tenant, problem, err := r.tenant(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if problem != "" {
		return refuse(v1alpha1.ReasonInvalidSpec, problem)
	}
	if problem := leaving(tenant); problem != "" {
		return refuse(v1alpha1.ReasonTenantDeleting, problem)
	}
	if hooks := missingHooks(machine, tenant); len(hooks) > 0 {
		return r.setHooks(ctx, now, hooks)
	}
	if err := r.checkOwn(ctx, machine); err != nil {
		if problem, wrong := whatIsInvalid(err); wrong {
			return refuse(v1alpha1.ReasonInvalidSpec, problem)
		}
		return result{}, err
	}

	allowed, err := r.allowed(ctx, machine, tenant)
	if err != nil {
		return result{}, err
	}
	// Asked first what it would get, which takes no server: were one taken and given back for the sake of a value that
	// is wrong, both would wake all Machines that wait, this one among them, without end.
	wanted := request(machine, allowed)
	ask := wanted
	ask.Machine = ""
	if likely, err := r.inventory.Choose(ask); err == nil {
		if _, no, err := r.suits(ctx, machine, tenant, likely); err != nil || no != nil {
			if err != nil {
				return result{}, err
			}
			outcome, _ := refuse(no.reason, no.message)
			outcome.wants = no.wants
			return outcome, nil
		}
	}
	choice, err := r.inventory.Choose(wanted)
	var none *hosts.NoHostError
	if errors.As(err, &none) {
		r.forgo(machine)
		outcome, _ := refuse(none.Reason, none.Error())
		outcome.wants = wishForServer(none)
		if isPinned(machine) {
			outcome.facts.phase = v1alpha1.MachineFailed
		}
		return outcome, nil
	}
	if err != nil {
		return result{}, fmt.Errorf("choosing a server for Machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}

	// Another server than before, if the inventory has changed in between.
	planned, no, err := r.suits(ctx, machine, tenant, choice)
	if err != nil || no != nil {
		r.unchoose(choice.Host, machine)
		if err != nil {
			return result{}, err
		}
		outcome, _ := refuse(no.reason, no.message)
		outcome.wants = no.wants
		return outcome, nil
	}
	return result{again: true, facts: &facts{
		phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, choice: &choice, properties: planned.effective(),
		message: fmt.Sprintf("claiming server %s/%s of type %s", choice.Host.Namespace, choice.Host.Name, choice.NodeType),
	}}, nil
}

// obstacle is why a Machine does not get a server that would be free, and what would have to happen for that.
type obstacle struct {
	reason, message string
	wants           wish
}

// suits makes the plan for a server that could be or has been chosen, or says why the Machine cannot have it: a value is
// wrong, its tenant has as much as it may have, or its pool has no address for it.
func (r *Reconciler) suits(ctx context.Context, machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster, choice hosts.Choice) (*plan, *obstacle, error) {
	planned, err := r.planFor(ctx, machine, choice)
	if problem, wrong := whatIsInvalid(err); wrong {
		return nil, &obstacle{v1alpha1.ReasonInvalidSpec, problem, wish{need: correction, anotherChoice: true}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	problem, err := r.exceeded(ctx, machine, tenant, choice.NodeType)
	if err != nil {
		return nil, nil, err
	}
	if problem != "" {
		return nil, &obstacle{v1alpha1.ReasonQuotaExceeded, problem,
			wish{need: allowance, namespace: tenant.Namespace, tenant: tenant.Name, nodeType: choice.NodeType, anotherChoice: true}}, nil
	}
	if problem, err = r.noAddress(ctx, machine, planned); err != nil {
		return nil, nil, err
	}
	if problem != "" {
		r.forgo(machine)
		wants := wishForAddress(*planned.pool)
		wants.anotherChoice = true
		return nil, &obstacle{v1alpha1.ReasonNoAddress, problem, wants}, nil
	}
	return planned, nil, nil
}

// planFor makes the plan for the server that has been chosen.
func (r *Reconciler) planFor(ctx context.Context, machine *v1alpha1.Machine, choice hosts.Choice) (*plan, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := r.client.Get(ctx, hostKey(choice.Host), host); err != nil {
		return nil, fmt.Errorf("reading host %s, which has been chosen, %w", hostKey(choice.Host), err)
	}
	return r.resolve(ctx, machine, choice.NodeType, host)
}

// isPinned tells whether the Machine gets one server or none. It fails as long as that cannot be had, and still gets
// it when that changes.
func isPinned(machine *v1alpha1.Machine) bool {
	return machine.Spec.Properties[v1alpha1.PropertyServerName] != ""
}

func request(machine *v1alpha1.Machine, allowed func(typeName, provider string) bool) hosts.Request {
	request := hosts.Request{
		Allowed:      allowed,
		Machine:      machine.UID,
		Requirements: machine.Spec.Requirements,
		Resources:    machine.Spec.Resources,
		Drivers:      machine.Spec.RequestedDrivers,
		ServerName:   machine.Spec.Properties[v1alpha1.PropertyServerName],
	}
	if machine.Spec.NodeTypeRef != nil {
		request.NodeType = machine.Spec.NodeTypeRef.Name
	}
	return request
}

// tenant returns the TenantCluster of the Machine, nil if the Machine stands alone, or what is wrong with it.
func (r *Reconciler) tenant(ctx context.Context, machine *v1alpha1.Machine) (*v1alpha1.TenantCluster, string, error) {
	if machine.Spec.TenantClusterRef == nil {
		return nil, "", nil
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
	return tenant, "", nil
}

// allowed returns which types the Machine may have.
func (r *Reconciler) allowed(ctx context.Context, machine *v1alpha1.Machine, tenant *v1alpha1.TenantCluster) (func(typeName, provider string) bool, error) {
	if tenant == nil {
		return r.allowedStandAlone(ctx, machine.Namespace)
	}
	return tenant.Allows, nil
}

// allowedStandAlone returns which types a Machine without a tenant may have.
func (r *Reconciler) allowedStandAlone(ctx context.Context, namespace string) (func(typeName, provider string) bool, error) {
	list := &v1alpha1.TenantClusterList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the TenantClusters of namespace %s, %w", namespace, err)
	}
	tenants := make([]*v1alpha1.TenantCluster, len(list.Items))
	for i := range list.Items {
		tenants[i] = &list.Items[i]
	}
	return func(typeName, provider string) bool { return v1alpha1.AllowsStandAlone(tenants, typeName, provider) }, nil
}

// claim writes the choice on the server.
func (r *Reconciler) claim(ctx context.Context, now *run) (result, error) {
	reference := *now.machine.Status.HostRef
	host, err := r.claims.Claim(ctx, reference, now.machine)
	var taken *TakenError
	if errors.As(err, &taken) {
		r.unchoose(reference, now.machine)
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
	// The next state mostly has something to say at once. Until that is written, the claim stands on the host, where a
	// run that comes after a crash finds it.
	return result{again: true, putsOff: true, facts: &facts{
		phase: v1alpha1.MachineClaimed, reason: v1alpha1.ReasonClaimed, host: host,
		message: fmt.Sprintf("server %s/%s is claimed", host.Namespace, host.Name),
	}}, nil
}
