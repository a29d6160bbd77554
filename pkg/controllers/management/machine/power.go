// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
)

// powerToSet returns the value that a host's spec.online must have, and whether the host has another value. A host with
// disablePowerOff stays on. A host in a tenant's network stays on until Metal3 has seen it on: Metal3's report of the
// power may be older than the installation, and a release would take the host for switched off.
func powerToSet(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) (powered, differs bool) {
	if machine.Spec.Power == nil {
		return false, false
	}
	powered = machine.Spec.Power.State != v1alpha1.PowerOff
	if !powered && (host.Spec.DisablePowerOff || hosts.NetworkOfHost(host) != "" && host.Spec.Online && !host.Status.PoweredOn) {
		return true, false
	}
	return powered, host.Spec.Online != powered
}

// wantsPower reports whether the Machine wants its server to be on.
func wantsPower(machine *v1alpha1.Machine) bool {
	return machine.Spec.Power == nil || machine.Spec.Power.State != v1alpha1.PowerOff
}

// needsPowerChange reports whether a host with an image must be switched on or off, or rebooted.
func needsPowerChange(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) bool {
	_, differs := powerToSet(machine, host)
	_, _, requested := rebootRequest(machine)
	_, rebooted := host.Annotations[v1alpha1.RebootedAnnotationKey]
	// A request waits while Metal3 ignores the host: the server has not failed.
	return differs || rebooted || (requested && wantsPower(machine) && hosts.WhyIgnored(host) == "")
}

// rebootRequest returns the request to reboot the server, and the key of its annotation.
func rebootRequest(machine *v1alpha1.Machine) (key, kind string, requested bool) {
	for _, key = range v1alpha1.Spellings(v1alpha1.RebootAnnotationKey) {
		if kind, requested = machine.Annotations[key]; requested {
			return key, kind, true
		}
	}
	return "", "", false
}

// switchPower switches the server on or off, or requests a reboot.
func (r *Reconciler) switchPower(ctx context.Context, v *visit) (result, error) {
	powered, differs := powerToSet(v.machine, v.host)
	if !differs {
		return r.reboot(ctx, v)
	}
	host, err := r.hosts.Power(ctx, v.host, powered)
	if err != nil {
		return result{}, err
	}
	v.host = host
	return result{again: true}, nil
}

// reboot serves a request to reboot exactly once, in four writes: the host's annotations, the status, removing the
// request, removing the mark from the host. It reads live: a cache may still show a request that has been served.
func (r *Reconciler) reboot(ctx context.Context, v *visit) (result, error) {
	machine, host := &v1alpha1.Machine{}, &bmov1alpha1.BareMetalHost{}
	if err := r.flush(ctx, v); err != nil {
		return result{}, err
	}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(v.machine), machine); err != nil {
		return result{}, fmt.Errorf("reading Machine %s to reboot its server, %w", client.ObjectKeyFromObject(v.machine), err)
	}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(v.host), host); err != nil {
		return result{}, fmt.Errorf("reading host %s/%s to reboot it, %w", v.host.Namespace, v.host.Name, err)
	}
	if !hosts.Owns(hosts.OwnerOf(machine), host) || machine.UID != v.machine.UID {
		return result{after: conflictDelay}, nil // the cache is behind
	}
	v.machine, v.host = machine, host
	key, kind, requested := rebootRequest(machine)
	lastReboot, rebooted := hosts.RebootedAt(host)
	var err error
	switch {
	case rebooted && !recorded(machine, lastReboot):
		ready := condition(machine, v1alpha1.ConditionReady)
		return result{again: true, observed: &observation{phase: machine.Status.Phase, reason: ready.Reason, message: ready.Message,
			host: host}}, nil
	case requested && rebooted && hosts.RebootedFor(host, machine.Annotations[v1alpha1.RebootOperationAnnotationKey]):
		err = r.clearRebootRequest(ctx, v)
	case rebooted:
		v.host, err = r.hosts.Rebooted(ctx, host)
	case requested && kind != "" && kind != v1alpha1.RebootHard && kind != v1alpha1.RebootSoft:
		r.event(machine, corev1.EventTypeWarning, string(EventRebootRefused), fmt.Sprintf(
			"annotation %s of Machine %s/%s is %q, which is neither hard nor soft: the server is not rebooted; set it to one of them",
			key, machine.Namespace, machine.Name, kind))
		err = r.clearRebootRequest(ctx, v)
	case requested:
		v.host, err = r.hosts.Reboot(ctx, host, kind == v1alpha1.RebootHard,
			hosts.RebootMark(machine.Annotations[v1alpha1.RebootOperationAnnotationKey], r.clock.Now()))
	}
	return result{again: err == nil}, err
}

func (r *Reconciler) clearRebootRequest(ctx context.Context, v *visit) error {
	return r.patch(ctx, v, "removing the request to reboot from", func(machine *v1alpha1.Machine) {
		for _, key := range v1alpha1.Spellings(v1alpha1.RebootAnnotationKey) {
			delete(machine.Annotations, key)
		}
	})
}

func recorded(machine *v1alpha1.Machine, lastReboot metav1.Time) bool {
	if lastReboot.IsZero() {
		return true
	}
	return machine.Status.Power != nil && machine.Status.Power.LastReboot != nil &&
		!machine.Status.Power.LastReboot.Time.Before(lastReboot.Time)
}
