// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
)

// install collects the parts of the installation, records them in the status, and then changes the host in one write.
func (r *Reconciler) install(ctx context.Context, v *visit) (result, error) {
	machine, host := v.machine, v.host
	planned, err := r.resolveAgain(ctx, v)
	if err != nil {
		return v.waitForCorrection(err)
	}
	join, missing, err := r.join(ctx, machine)
	if err != nil {
		return result{}, err
	}
	if missing != "" {
		// After a restart, only this shows that the Machine needs an address.
		r.scheduler.assumePool(machine, planned.Pool)
		outcome := v.waitForUserData(missing)
		if machine.Spec.Bootstrap.DataSecretName == "" {
			outcome.after = 0 // the Machine changes when the provider sets it
		}
		return outcome, nil
	}
	if err := r.flush(ctx, v); err != nil {
		return result{}, err
	}
	if changed := v.changedPlan(planned); changed != nil {
		return result{again: true, observed: changed}, nil
	}
	// Reserve the next address for a Machine that already has its server, also after a restart.
	r.scheduler.assumePool(machine, planned.Pool)
	address, err := r.address(ctx, machine, planned)
	var exhausted *ipam.ExhaustedError
	if errors.As(err, &exhausted) {
		return v.waitClaimed(v1alpha1.ReasonNoAddress, exhausted.Error(), objectChanged, addressFreed(planned.Pool.Network())), nil
	}
	if err != nil {
		return result{}, err
	}
	complete, err := r.completeHost(ctx, planned, host)
	if err != nil {
		return result{}, err
	}
	rendered, err := bootstrap.RenderPlan(planned, machine, complete, address, join)
	if err != nil {
		return v.waitForCorrection(err)
	}
	if err = r.writeUserData(ctx, hosts.OwnerOf(machine), host.Namespace, rendered); apierrors.IsForbidden(err) {
		log.FromContext(ctx).Error(err, "Cannot write user data")
		return v.waitForUserData(mayNotWrite(host.Namespace)), nil
	}
	if err != nil {
		return result{}, err
	}
	if v.host, err = r.hosts.Install(ctx, host, planned, rendered, address); err != nil {
		return result{}, err
	}
	outcome := v.reports(v1alpha1.MachineProvisioning, v1alpha1.ReasonProvisioning, "Metal3 has been told to install %s on server %s",
		properties.PublicURL(planned.Image.URL), client.ObjectKeyFromObject(host))
	outcome.again = true
	return outcome, nil
}

// mayNotWrite says what to do about a namespace of servers where the manager has no rights.
func mayNotWrite(namespace string) string {
	return "the manager may not claim servers, or write Secrets, in namespace " + namespace + ", where its server is: add the namespace to " +
		"manager.hostNamespaces of the chart karpenter-metal3"
}

// resolveAgain returns the plan of a Machine that has a server: the plan that the server was chosen with, or a new one
// if an earlier run chose it, because hooks may have held the server for hours. If the new plan differs from the
// status, resolveAgain checks it for the server. The error is a *plan.InvalidError if the plan cannot be carried out.
func (r *Reconciler) resolveAgain(ctx context.Context, v *visit) (*plan.Plan, error) {
	if v.plan != nil {
		return v.plan, nil
	}
	planned, err := plan.Resolve(ctx, r.objects, v.machine, v.machine.Status.NodeTypeRef.Name)
	if err == nil && plan.Hash(planned.Installed()) != v.machine.Status.PropertiesHash {
		err = bootstrap.CheckPlan(planned, v.machine, v.host)
	}
	if err != nil {
		return nil, err
	}
	v.plan = planned
	return planned, nil
}

// completeHost returns the host for templates: the cache has only the fields for decisions (inventory.TrimHost).
func (r *Reconciler) completeHost(
	ctx context.Context, planned *plan.Plan, cached *bmov1alpha1.BareMetalHost,
) (*bmov1alpha1.BareMetalHost, error) {
	if planned.UserTemplate == nil && planned.NetworkTemplate == nil {
		return cached, nil
	}
	host := &bmov1alpha1.BareMetalHost{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(cached), host); err != nil {
		return nil, fmt.Errorf("reading host %s for the templates of its Machine, %w", client.ObjectKeyFromObject(cached), err)
	}
	return host, nil
}

// waitClaimed keeps the Machine in the phase Claimed, for the reason.
func (v *visit) waitClaimed(reason, message string, hints ...scheduling.Event) result {
	outcome := v.reports(v1alpha1.MachineClaimed, reason, "%s", message)
	outcome.hints = hints
	return outcome
}

// waitForUserData waits for a Secret, or for the right to write it.
func (v *visit) waitForUserData(missing string) result {
	outcome := v.waitClaimed(v1alpha1.ReasonWaitingForBootstrapData, missing)
	outcome.after = userDataRetry
	return outcome
}

// waitForCorrection waits until an invalid object is corrected, which no watch reports. It returns other errors.
func (v *visit) waitForCorrection(err error) (result, error) {
	if problem, wrong := plan.Problem(err); wrong {
		return v.waitClaimed(v1alpha1.ReasonInvalidSpec, problem, objectChanged), nil
	}
	return result{}, err
}

// changedPlan returns the status of the new plan if it differs from the plan in the status, which is from the choice of
// the server. The status must match the installation.
func (v *visit) changedPlan(planned *plan.Plan) *observation {
	status, effective, installed := &v.machine.Status, planned.Set.Entries(), planned.Installed()
	if equality.Semantic.DeepEqual(status.Properties, effective) && status.PropertiesHash == plan.Hash(installed) {
		return nil
	}
	ready := condition(v.machine, v1alpha1.ConditionReady)
	return &observation{
		phase: v1alpha1.MachineClaimed, reason: ready.Reason, message: ready.Message, host: v.host,
		properties: effective, installed: installed,
	}
}

// join returns the user data that spec.bootstrap refers to. It joins the node of a Machine with a tenant. If the data
// is missing, join returns a message about it. A Machine without a tenant needs no data.
func (r *Reconciler) join(ctx context.Context, machine *v1alpha1.Machine) (data []byte, missing string, err error) {
	switch tenant := machine.Spec.TenantClusterRef; {
	case machine.Spec.Bootstrap.DataSecretName != "":
		return r.readUserData(ctx, machine)
	case tenant != nil:
		return nil, "the provider of tenant " + tenant.Name + " has not set spec.bootstrap.dataSecretName yet", nil
	}
	return nil, "", nil
}

// address returns the Machine's address, or nil if the manager gives it none.
func (r *Reconciler) address(ctx context.Context, machine *v1alpha1.Machine, planned *plan.Plan) (*plan.Address, error) {
	if planned.Pool == nil {
		return nil, nil
	}
	owner := hosts.OwnerOf(machine).Reference()
	allocation, err := r.addresses.Ensure(ctx, owner, *planned.Pool)
	if err == nil && !planned.Pool.Holds(allocation) {
		// The properties have changed since a failed attempt. No server has booted with the address yet.
		if err := r.addresses.Release(ctx, owner); err != nil {
			return nil, err
		}
		allocation, err = r.addresses.Ensure(ctx, owner, *planned.Pool)
	}
	if err != nil {
		return nil, err
	}
	taken := &v1alpha1.IPAddressList{}
	if err := r.client.List(ctx, taken, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for pools that overlap pool %s, %w", planned.Pool, err)
	}
	overlaps := planned.Pool.Overlapping(taken.Items, r.scheduler.assumedBy(machine))
	if len(overlaps) > 0 {
		log.FromContext(ctx).Info("The address pool overlaps others", "pool", planned.Pool.String(), "others", overlaps)
		r.event(machine, corev1.EventTypeWarning, string(EventPoolsOverlap), overlapping(*planned.Pool))
	}
	return planned.Address(allocation), nil
}

// overlapping does not name the pools: tenants read events, and the pools may be another tenant's. The log names them.
func overlapping(pool ipam.Pool) string {
	return fmt.Sprintf("address pool %s overlaps others: what one gives out is missing in the other; give them ranges that are apart, or the "+
		"same ones (%s)", pool, v1alpha1.PropertyNetworkIPRange)
}

// HoldsServer returns the test for ipam.Sweep: whether a server still has the Machine as its consumer, so that the
// Machine's address may still be in use. The test reads all hosts, past every cache, so it is only for Machines that
// were deleted by force.
func HoldsServer(live client.Reader) func(context.Context, v1alpha1.MachineReference) (bool, error) {
	return func(ctx context.Context, machine v1alpha1.MachineReference) (bool, error) {
		host, err := hosts.FindOwned(ctx, live,
			hosts.Owner{NamespacedName: types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name}, UID: machine.UID})
		return host != nil, err
	}
}
