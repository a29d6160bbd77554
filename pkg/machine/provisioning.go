// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// install waits for everything that the image needs and then tells Metal3 in a single write.
func (r *Reconciler) install(ctx context.Context, now *run) (result, error) {
	machine, host := now.machine, now.host
	// What is wrong with the image is mended in objects that no watch maps to this Machine. User data comes with the
	// Machine itself or with its Secret.
	hold := func(reason, message string) (result, error) {
		return result{
			facts: &facts{phase: v1alpha1.MachineClaimed, reason: reason, message: message, host: host},
			waits: reason == v1alpha1.ReasonInvalidSpec,
		}, nil
	}
	image, problem, err := r.image(ctx, machine, machine.Status.NodeTypeRef.Name)
	if err != nil {
		return result{}, err
	}
	if problem != "" {
		return hold(v1alpha1.ReasonInvalidSpec, problem)
	}
	if machine.Spec.TenantClusterRef != nil && machine.Spec.Bootstrap.DataSecretName == "" {
		return hold(v1alpha1.ReasonWaitingForBootstrapData, "the provider of tenant "+machine.Spec.TenantClusterRef.Name+" has not set spec.bootstrap.dataSecretName yet")
	}
	secret := ""
	if machine.Spec.Bootstrap.DataSecretName != "" {
		userData, missing, err := r.readUserData(ctx, machine)
		if err != nil {
			return result{}, err
		}
		if missing != "" {
			return hold(v1alpha1.ReasonWaitingForBootstrapData, missing)
		}
		if err := r.writeUserData(ctx, ownerOf(machine), host.Namespace, userData); err != nil {
			return result{}, err
		}
		secret = userDataName(ownerOf(machine))
	}
	if now.host, err = r.claims.Install(ctx, host, image, secret); err != nil {
		return result{}, err
	}
	return result{again: true, facts: &facts{
		phase: v1alpha1.MachineProvisioning, reason: v1alpha1.ReasonProvisioning, host: now.host,
		message: fmt.Sprintf("Metal3 has been told to install %s on server %s/%s", properties.PublicURL(image.URL), host.Namespace, host.Name),
	}}, nil
}

func (r *Reconciler) watchProvisioning(_ context.Context, now *run) (result, error) {
	state := cmp.Or(string(now.host.Status.Provisioning.State), "not registered with Metal3")
	return result{facts: &facts{
		phase: v1alpha1.MachineProvisioning, reason: v1alpha1.ReasonProvisioning, host: now.host,
		message: fmt.Sprintf("Metal3 is installing %s on server %s/%s, which is %s", properties.PublicURL(now.host.Spec.Image.URL), now.host.Namespace, now.host.Name, state),
	}}, nil
}

func (r *Reconciler) watchProvisioned(_ context.Context, now *run) (result, error) {
	f := &facts{
		phase: v1alpha1.MachineProvisioned, reason: v1alpha1.ReasonStandAlone, host: now.host,
		message: fmt.Sprintf("server %s/%s is provisioned and stands alone", now.host.Namespace, now.host.Name),
	}
	if tenant := now.machine.Spec.TenantClusterRef; tenant != nil {
		f.reason = v1alpha1.ReasonWaitingForNode
		f.message = fmt.Sprintf("server %s/%s boots; its node has not registered with tenant %s yet", now.host.Namespace, now.host.Name, tenant.Name)
	}
	return result{facts: f}, nil
}

// watchJoined blanks the user data before the status says joined: a crash in between does it once more.
func (r *Reconciler) watchJoined(ctx context.Context, now *run) (result, error) {
	if !meta.IsStatusConditionTrue(now.machine.Status.Conditions, v1alpha1.ConditionJoined) {
		if err := r.blankUserData(ctx, ownerOf(now.machine), now.host.Namespace); err != nil {
			return result{}, err
		}
	}
	return result{facts: &facts{
		phase: v1alpha1.MachineJoined, reason: v1alpha1.ReasonJoined, host: now.host,
		message: fmt.Sprintf("server %s/%s is node %s", now.host.Namespace, now.host.Name, now.machine.Annotations[v1alpha1.NodeNameAnnotationKey]),
	}}, nil
}

// hold keeps a server in error with its Machine, for somebody to look at. The Machine recovers when the server does.
func (r *Reconciler) hold(_ context.Context, now *run) (result, error) {
	return result{facts: &facts{
		phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostError, host: now.host, message: hostError(now.host),
	}}, nil
}

// giveUp says that the server is not the Machine's any more. It does not look for another: what ran there is gone, and
// who asked for it has to know.
func (r *Reconciler) giveUp(_ context.Context, now *run) (result, error) {
	reference := now.machine.Status.HostRef
	name, why := reference.Namespace+"/"+reference.Name, ""
	switch {
	case now.host == nil:
		why = "its BareMetalHost has been deleted"
	case now.host.UID != reference.UID:
		why = "its BareMetalHost has been deleted and made anew"
	case !ownsHost(ownerOf(now.machine), now.host):
		why = "its consumer is now " + consumerName(now.host)
	default:
		why = "somebody has taken its image off"
	}
	return result{facts: &facts{
		phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostLost, host: now.host,
		message: fmt.Sprintf("server %s is lost: %s. Delete the Machine", name, why),
	}}, nil
}
