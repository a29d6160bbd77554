// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// protect secures a Machine that already has a server, or had one before it was restored.
func (r *Reconciler) protect(ctx context.Context, v *visit) (result, error) {
	err := r.patch(ctx, v, "adding the finalizer to", secure)
	// A Machine that is not found has been deleted, which the cache does not know yet.
	return result{again: err == nil}, client.IgnoreNotFound(err)
}

// secure adds the finalizer before the Machine can leave anything behind. It also records the UID that the Machine
// claims under, in case the Machine is restored under another UID.
func secure(machine *v1alpha1.Machine) {
	controllerutil.AddFinalizer(machine, v1alpha1.MachineFinalizer)
	if !machine.IsRestored() { // an annotation that is no UID is replaced, too
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.ClaimUIDAnnotationKey, string(machine.UID))
	}
}

// choose validates the objects that the Machine refers to, so that a typo ties up no server. Then it assumes a server,
// a share of the quota and an address together, and writes the choice on the Machine. The write is a compare-and-swap:
// of two managers, only one goes on to claim.
func (r *Reconciler) choose(ctx context.Context, v *visit) (result, error) {
	if resumed, err := r.scheduler.resume(ctx); err != nil || !resumed {
		return result{hints: []scheduling.Event{objectChanged}}, err
	}
	machine := v.machine
	c, no, err := r.scheduler.decision(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if no != nil {
		r.scheduler.forget(client.ObjectKeyFromObject(machine)) // the loop may have assumed a server before the Machine or its tenant changed
		return refused(machine, c, no), r.dropChoice(ctx, v)
	}
	r.reportIgnored(machine)
	choice, network := c.assigned.choice, c.machine.Status.Network
	if err := r.patch(ctx, v, "writing the choice on", func(machine *v1alpha1.Machine) {
		secure(machine)
		setNetworkHooks(machine, network)
		machine.SetChosenHost(choice.Host, choice.NodeType)
	}); err != nil {
		r.scheduler.forget(client.ObjectKeyFromObject(machine))
		return result{}, client.IgnoreNotFound(err) // the cache may not know yet that it has been deleted
	}
	v.plan = c.assigned.plan
	// The status names the server once it is claimed. Until then the annotation does.
	return result{again: true, observed: &observation{
		phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, choice: &choice, network: network,
		properties: v.plan.Set.Entries(), installed: v.plan.Installed(),
		message: fmt.Sprintf("claiming server %s/%s of type %s", choice.Host.Namespace, choice.Host.Name, choice.NodeType),
	}}, nil
}

// decision returns the decision about a Machine, from the loop or made now: a candidate with an assignment, or why the
// Machine is unschedulable. Then a nil candidate means that the Machine gets no server from its tenant.
func (s *scheduler) decision(ctx context.Context, machine *v1alpha1.Machine) (*candidate, *unschedulable, error) {
	if c, decided := s.take(machine); decided {
		return c, c.no, nil
	}
	tenant, no, err := s.tenant(ctx, machine)
	if err != nil || no != nil {
		return nil, no, err
	}
	if tenant != nil && !tenant.DeletionTimestamp.IsZero() {
		return nil, refuse(v1alpha1.ReasonTenantDeleting,
			fmt.Sprintf("TenantCluster %s is being deleted and gets no more servers", client.ObjectKeyFromObject(tenant))), nil
	}
	c := newCandidate(machine.DeepCopy(), tenant, inventory.RequestOf(machine, tenant))
	c.machine.Status.Network = networkFor(tenant) // its addresses are of that network
	// A free server goes to waiting Machines first: else a namespace that makes Machines without end would get all.
	s.schedulePending(ctx)
	s.deciding.Lock()
	defer s.deciding.Unlock()
	if c.assigned, no, err = s.decide(ctx, &c); c.assigned != nil {
		s.queue.Served(machine.Namespace)
	}
	return &c, no, err
}

// dropChoice removes the choice from a Machine that gets no server, or not the chosen one. While a choice is there, the
// provider waits for its claim.
func (r *Reconciler) dropChoice(ctx context.Context, v *visit) error {
	return r.patch(ctx, v, "taking the choice off", func(machine *v1alpha1.Machine) {
		delete(machine.Annotations, v1alpha1.ChosenHostAnnotationKey)
	})
}

// refused returns the result for an unschedulable Machine. candidate is nil if the Machine has not been validated.
func refused(machine *v1alpha1.Machine, candidate *candidate, no *unschedulable) result {
	phase := v1alpha1.MachinePending
	if isPinned(machine) && candidate != nil && no.hostless {
		phase = v1alpha1.MachineFailed
	}
	outcome := result{observed: &observation{phase: phase, reason: no.reason, message: no.message}, hints: no.hints}
	if candidate != nil {
		candidate.reason, candidate.message, candidate.alike, candidate.no = no.reason, no.message, no.alike, nil
		candidate.request.ChosenHost, candidate.request.ChosenAs = v1alpha1.HostReference{}, ""
		outcome.candidate = *candidate
	}
	return outcome
}

// isPinned reports whether only one server will do for the Machine. The Machine fails while that server is not
// available, and still gets it later.
func isPinned(machine *v1alpha1.Machine) bool {
	return machine.Spec.Properties[v1alpha1.PropertyServerName] != ""
}

// tenant returns the TenantCluster that the Machine is charged to, if any, or why the Machine gets no server.
func (s *scheduler) tenant(ctx context.Context, machine *v1alpha1.Machine) (*v1alpha1.TenantCluster, *unschedulable, error) {
	tenants, err := s.objects.tenants(ctx, machine.Namespace)
	if err != nil {
		return nil, nil, err
	}
	tenant := quota.ChargedTo(machine, tenants)
	if machine.Spec.TenantClusterRef == nil {
		var labels map[string]string
		if len(tenants) == 0 {
			namespace := kube.NamespaceMetadata()
			if _, err := kube.Find(ctx, s.objects.cache, types.NamespacedName{Name: machine.Namespace}, namespace); err != nil {
				return nil, nil, err
			}
			labels = namespace.Labels
		}
		if problem := quota.StandAloneProblem(machine, tenants, labels); problem != "" {
			return nil, refuse(v1alpha1.ReasonNotAllowed, problem), nil
		}
		return tenant, nil, nil
	}
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.TenantClusterRef.Name}
	if tenant == nil {
		return nil, refuse(v1alpha1.ReasonInvalidSpec, fmt.Sprintf("Machine %s/%s: spec.tenantClusterRef.name is %q, and there is no "+
			"TenantCluster of that name in namespace %s: create it, or recreate the Machine with another one",
			machine.Namespace, machine.Name, key.Name, key.Namespace)), nil
	}
	// The provider would find this out only after the claim, and hold the server until the deadline, again and again.
	join := bootstrap.Join{NodeName: machine.Name, APIServerEndpoint: tenant.Spec.APIServerEndpoint, Labels: machine.Spec.Labels,
		Taints: slices.Concat(machine.Spec.Taints, machine.Spec.StartupTaints), KubeletArgs: machine.Spec.KubeletArgs.Strings()}
	if err := join.ValidateNode(); err != nil {
		return nil, refuse(v1alpha1.ReasonInvalidSpec, fmt.Sprintf("no server can join TenantCluster %s: %v", key, err)), nil
	}
	return tenant, nil, nil
}

// resume reports whether decisions can be made: the inventory is complete, and the servers that an earlier process has
// chosen but not claimed are assumed, as far as they are known. A claim of that process may still arrive.
func (s *scheduler) resume(ctx context.Context) (bool, error) {
	if s.resumed.Load() || !s.inventory.Synced() {
		return s.resumed.Load(), nil
	}
	s.deciding.Lock()
	defer s.deciding.Unlock()
	if s.resumed.Load() {
		return true, nil // the caches may still show choices that have been dropped since
	}
	machines := &v1alpha1.MachineList{}
	if err := s.objects.cache.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing Machines for the servers that were chosen for them, %w", err)
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		if chosen, _ := machine.ChosenHost(); chosen != nil && machine.Status.ProviderID == "" {
			// If the Machine cannot have the server any more, hold assumes nothing.
			s.hold(machine, chosen.HostReference, chosen.NodeType)
		}
	}
	s.resumed.Store(true)
	return true, nil
}

// hold assumes the server that was chosen for a Machine until it is claimed, if its domain is for one tenant. It
// returns why another tenant's domain, or another Machine's claim, prevents that. The caller must hold
// scheduler.deciding.
func (s *scheduler) hold(machine *v1alpha1.Machine, host v1alpha1.HostReference, nodeType string) (refused string) {
	key := client.ObjectKeyFromObject(machine)
	choice := inventory.Choice{Tenant: machine.Namespace, Host: host, NodeType: nodeType}
	if refused = s.inventory.Hold(choice, machine.UID); refused != "" {
		return refused
	}
	assumed := s.assumed[key]
	if assumed.uid != machine.UID {
		assumed = assumption{uid: machine.UID, owner: hosts.OwnerOf(machine).Reference()}
	}
	assumed.host, assumed.nodeType = hosts.Key(host), nodeType
	s.assumed[key] = assumed
	return ""
}

// bound notes that the claim of a Machine is on its host.
func (s *scheduler) bound(machine *v1alpha1.Machine) {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	key := client.ObjectKeyFromObject(machine)
	if assumed := s.assumed[key]; assumed.uid == machine.UID {
		assumed.claimed = true
		s.assumed[key] = assumed
	}
}

// claimableSince returns since when only the manager has held up the claim of a Machine, or zero if that is not known.
func (s *scheduler) claimableSince(machine *v1alpha1.Machine) time.Time {
	s.deciding.Lock()
	defer s.deciding.Unlock()
	if assumed := s.assumed[client.ObjectKeyFromObject(machine)]; assumed.uid == machine.UID {
		return assumed.claimable
	}
	return time.Time{}
}

// claim writes the consumerRef on the chosen server.
func (r *Reconciler) claim(ctx context.Context, v *visit) (result, error) {
	if resumed, err := r.scheduler.resume(ctx); err != nil || !resumed {
		return result{hints: []scheduling.Event{objectChanged}}, err
	}
	reference := *v.machine.Status.HostRef
	r.scheduler.deciding.Lock()
	refused := r.scheduler.hold(v.machine, reference, v.machine.Status.NodeTypeRef.Name)
	r.scheduler.deciding.Unlock()
	if refused != "" {
		return r.chooseAnother(ctx, v, &hosts.TakenError{Host: hosts.Key(reference).String(), Reason: "it " + refused})
	}
	host, err := r.hosts.Claim(ctx, reference, v.machine)
	var taken *hosts.TakenError
	if errors.As(err, &taken) {
		// The inventory may be behind, and would choose the same server again until its watch has caught up.
		if taken.Live == nil {
			r.inventory.DeleteHost(hosts.Key(reference))
		} else {
			r.inventory.SetHost(taken.Live)
		}
		return r.chooseAnother(ctx, v, taken)
	}
	if apierrors.IsForbidden(err) {
		log.FromContext(ctx).Error(err, "Cannot claim a server")
		return result{after: userDataRetry, observed: &observation{
			phase: v1alpha1.MachineClaiming, reason: v1alpha1.ReasonClaiming, message: mayNotWrite(reference.Namespace),
		}}, nil
	}
	if err != nil {
		return result{}, err
	}
	v.host = host
	r.scheduler.bound(v.machine)
	// The next state mostly reports something at once. Until then, a run after a crash finds the claim on the host.
	return result{again: true, observed: &observation{
		phase: v1alpha1.MachineClaimed, reason: v1alpha1.ReasonClaimed, host: host,
		claimNumber: r.inventory.ClaimNumber(hosts.Key(reference), v.machine.UID, v.machine.Status.NodeTypeRef.Name),
		message:     fmt.Sprintf("server %s/%s is claimed", host.Namespace, host.Name),
	}}, nil
}

// chooseAnother drops the choice of a server that the Machine cannot have.
func (r *Reconciler) chooseAnother(ctx context.Context, v *visit, taken *hosts.TakenError) (result, error) {
	r.scheduler.forget(client.ObjectKeyFromObject(v.machine))
	r.event(v.machine, corev1.EventTypeNormal, string(EventTaken), taken.Error())
	if v.stored != nil {
		v.machine.Status, v.stored = v.stored.Status, nil // nothing about this server has been written yet
	}
	outcome := result{again: true}
	if v.machine.Status.HostRef != nil {
		outcome.observed = &observation{
			phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonClaiming, clearChoice: true,
			message: taken.Error() + "; choosing another",
		}
	}
	return outcome, r.dropChoice(ctx, v)
}
