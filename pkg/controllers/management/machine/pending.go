// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// protect secures a Machine that already has a server, or had one before it was restored.
func (r *Reconciler) protect(ctx context.Context, now *run) (result, error) {
	err := r.patch(ctx, now, "adding the finalizer to", secure)
	// One that is not found has been deleted, which the cache does not know yet.
	return result{again: err == nil}, client.IgnoreNotFound(err)
}

// secure adds the finalizer, before anything exists that a Machine could leave behind, and records under which UID it claims,
// for the day on which the Machine is restored under another.
func secure(machine *v1alpha1.Machine) {
	controllerutil.AddFinalizer(machine, v1alpha1.MachineFinalizer)
	if !machine.IsRestored() { // also in the place of what is no UID
		annotate(machine, v1alpha1.ClaimUIDAnnotationKey, string(machine.UID))
	}
}

// choose validates what the Machine refers to, so that a typo ties up no server, has a server, a share of the quota and an
// address assumed for it together, and writes the choice on the Machine. It is a compare-and-swap: of two managers, only one
// goes on to claim.
func (r *Reconciler) choose(ctx context.Context, now *run) (result, error) {
	if !r.inventory.Synced() {
		return result{hints: []scheduling.Event{objectChanged}}, nil
	}
	machine := now.machine
	no, err := r.checkRoom(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if no != nil {
		outcome := refused(machine, nil, no)
		outcome.after = refusedFor
		return outcome, nil
	}
	tenant, no, err := r.validate(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if no != nil {
		return refused(machine, nil, no), r.dropChoice(ctx, now)
	}
	network := networkFor(tenant)
	waiting := newCandidate(machine.DeepCopy(), tenant, inventory.RequestOf(machine, tenant))
	waiting.machine.Status.Network = network // its addresses are of that network
	// A server that has become free is for those that have waited: a namespace that makes Machines without end would have all of them.
	r.schedulePending(ctx)
	r.scheduler.deciding.Lock()
	assigned, no, err := r.decide(ctx, &waiting)
	r.scheduler.deciding.Unlock()
	if err != nil {
		return result{}, err
	}
	if no != nil {
		waiting.request.ChosenHost, waiting.request.ChosenAs = v1alpha1.HostReference{}, ""
		return refused(machine, &waiting, no), r.dropChoice(ctx, now)
	}
	r.reportIgnored(machine)
	r.scheduler.queue.Served(machine.Namespace)
	choice := assigned.choice
	if err := r.patch(ctx, now, "writing the choice on", func(machine *v1alpha1.Machine) {
		secure(machine)
		setNetworkHooks(machine, network)
		machine.SetChosenHost(choice.Host, choice.NodeType)
	}); err != nil {
		r.forget(machine)
		return result{}, client.IgnoreNotFound(err) // the cache may not know yet that it has been deleted
	}
	// The status names the server once it is claimed. Until then the annotation does.
	return result{again: true, putsOff: true, facts: &facts{
		phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, choice: &choice, properties: assigned.plan.effective(),
		installed: assigned.plan.installed(), network: network,
		message: fmt.Sprintf("claiming server %s/%s of type %s", choice.Host.Namespace, choice.Host.Name, choice.NodeType),
	}}, nil
}

// dropChoice takes the choice off a Machine that gets no server, or not that one. While a choice stands there, the provider
// waits for its claim.
func (r *Reconciler) dropChoice(ctx context.Context, now *run) error {
	return r.patch(ctx, now, "taking the choice off", func(machine *v1alpha1.Machine) {
		delete(machine.Annotations, v1alpha1.ChosenHostAnnotationKey)
	})
}

// refused is the result for a Machine that is unschedulable. Candidate is nil if it has not been validated.
func refused(machine *v1alpha1.Machine, candidate *candidate, no *unschedulable) result {
	phase := v1alpha1.MachinePending
	if isPinned(machine) && candidate != nil && no.hostless {
		phase = v1alpha1.MachineFailed
	}
	outcome := result{facts: &facts{phase: phase, reason: no.reason, message: no.message}, hints: no.hints}
	if candidate != nil {
		candidate.reason, candidate.message, candidate.alike = no.reason, no.message, no.alike
		outcome.candidate = *candidate
	}
	return outcome
}

// validate finds errors that make a Machine unschedulable on any server.
func (r *Reconciler) validate(ctx context.Context, machine *v1alpha1.Machine) (*v1alpha1.TenantCluster, *unschedulable, error) {
	no := func(reason, message string) *unschedulable {
		return &unschedulable{reason: reason, message: message, hints: []scheduling.Event{objectChanged}}
	}
	tenant, reason, problem, err := r.tenant(ctx, machine)
	switch {
	case err != nil:
		return nil, nil, err
	case problem != "":
		return nil, no(reason, problem), nil
	case tenant != nil && !tenant.DeletionTimestamp.IsZero():
		message := fmt.Sprintf("TenantCluster %s is being deleted and gets no more servers", client.ObjectKeyFromObject(tenant))
		return nil, no(v1alpha1.ReasonTenantDeleting, message), nil
	}
	// A reference that is not permitted is not looked up: the error would tell whether the object exists.
	if err = r.permitted(ctx, machine); err == nil {
		// What its type adds to the Machine's own properties is known only once a type has been chosen.
		_, err = r.refer(ctx, properties.Merge(properties.OfMachine(machine)))
	}
	if problem, wrong := whatIsInvalid(err); wrong {
		return nil, no(v1alpha1.ReasonInvalidSpec, problem), nil
	}
	return tenant, nil, err
}

// isPinned returns whether the Machine gets one server or none. It fails as long as that cannot be had, and still gets
// it when that changes.
func isPinned(machine *v1alpha1.Machine) bool {
	return machine.Spec.Properties[v1alpha1.PropertyServerName] != ""
}

// tenant returns the TenantCluster that the Machine is charged to, nil if there is none, or why the Machine gets no server.
func (r *Reconciler) tenant(
	ctx context.Context, machine *v1alpha1.Machine,
) (tenant *v1alpha1.TenantCluster, reason, problem string, err error) {
	tenants, err := r.tenantsOf(ctx, machine.Namespace)
	if err != nil {
		return nil, "", "", err
	}
	tenant = quota.ChargedTo(machine, tenants)
	if machine.Spec.TenantClusterRef == nil {
		var labels map[string]string
		if len(tenants) == 0 {
			labels, err = r.namespaceLabels(ctx, machine.Namespace)
		}
		return tenant, v1alpha1.ReasonNotAllowed, quota.StandAloneProblem(machine, tenants, labels), err
	}
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.TenantClusterRef.Name}
	if tenant == nil {
		return nil, v1alpha1.ReasonInvalidSpec, fmt.Sprintf("Machine %s/%s: spec.tenantClusterRef.name is %q, and there is no TenantCluster of "+
			"that name in namespace %s: create it, or recreate the Machine with another one",
			machine.Namespace, machine.Name, key.Name, key.Namespace), nil
	}
	// The provider would find it out only after the claim, and wait with the server until the deadline, again and again.
	join := bootstrap.Join{NodeName: machine.Name, APIServerEndpoint: tenant.Spec.APIServerEndpoint, Labels: machine.Spec.Labels,
		Taints: slices.Concat(machine.Spec.Taints, machine.Spec.StartupTaints), KubeletArgs: machine.Spec.KubeletArgs.Strings()}
	if err := join.ValidateNode(); err != nil {
		return nil, v1alpha1.ReasonInvalidSpec, fmt.Sprintf("no server can join TenantCluster %s: %v", key, err), nil
	}
	return tenant, "", "", nil
}

// tenantsOf returns the TenantClusters of a namespace. They are shared with the cache and must not be changed.
func (r *Reconciler) tenantsOf(ctx context.Context, namespace string) ([]*v1alpha1.TenantCluster, error) {
	list := &v1alpha1.TenantClusterList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the TenantClusters of namespace %s, %w", namespace, err)
	}
	return lo.ToSlicePtr(list.Items), nil
}

// namespaceLabels returns the labels of a namespace, from a cache of metadata.
func (r *Reconciler) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	namespace := controllers.NamespaceMetadata()
	_, err := controllers.Find(ctx, r.client, types.NamespacedName{Name: name}, namespace)
	return namespace.Labels, err
}

// claim writes the consumerRef on the server that has been chosen.
func (r *Reconciler) claim(ctx context.Context, now *run) (result, error) {
	reference := *now.machine.Status.HostRef
	host, err := r.claims.Claim(ctx, reference, now.machine)
	var taken *TakenError
	if errors.As(err, &taken) {
		r.forget(now.machine)
		r.event(now.machine, corev1.EventTypeNormal, string(EventTaken), taken.Error())
		if now.written != nil {
			now.machine.Status, now.written = now.written.Status, nil // of this server nothing has been written yet
		}
		outcome := result{again: true}
		if now.machine.Status.HostRef != nil {
			outcome.facts = &facts{
				phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonClaiming, clearChoice: true,
				message: taken.Error() + "; choosing another",
			}
		}
		return outcome, r.dropChoice(ctx, now)
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
