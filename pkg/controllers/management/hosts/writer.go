// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosts writes to BareMetalHosts. It knows which fields and annotations of a host a Machine uses, which writes
// claim, install, reboot, quarantine, empty and release a server, and when a server is clean. It does not know why: the
// Machine controller decides. Package network removes its hook from a host. No other package of ours writes to a host that a
// Machine has.
package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// TakenError means that the chosen server cannot be claimed: it has another consumer, or has changed since the choice.
type TakenError struct {
	// Host is the namespace/name of the server.
	Host   string
	Reason string
	// Live is the server as the API server has it, or nil if it does not exist.
	Live *bmov1alpha1.BareMetalHost
}

// Error names the server and the reason.
func (e *TakenError) Error() string {
	return fmt.Sprintf("server %s cannot be had: %s", e.Host, e.Reason)
}

// Writer writes to servers. A HostClaim of Metal3 would replace only these writes. Every write is a
// compare-and-swap on the version of the host that is passed in or read. An error that satisfies apierrors.IsConflict
// means that the host has changed meanwhile, and that nothing was written.
type Writer struct {
	// Client writes to the API server, and reads from the cache.
	Client client.Client
	// Live reads from the API server, past every cache.
	Live client.Reader
	// Hooks are the names of the hooks, besides v1alpha1.NetworkHook, that hold a server.
	Hooks sets.Set[string]
	// Record is the record of who had which server when.
	Record usage.Record
}

// Claim gives the server to the Machine, unless the Machine has it already. The error is a *TakenError if the server is
// not available. Claim reads the cache first. If the cache is stale, the server may have another consumer, and the
// write fails with a conflict. After any other result of the cache Claim reads the API server.
func (w Writer) Claim(
	ctx context.Context, reference v1alpha1.HostReference, machine *v1alpha1.Machine,
) (*bmov1alpha1.BareMetalHost, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := w.Client.Get(ctx, Key(reference), host); err == nil && host.UID == reference.UID &&
		inventory.EligibilityOf(host).For(machine.Namespace, false).Claimable {
		lacks, err := w.lacks(ctx, host, machine)
		if err != nil {
			return nil, err
		}
		if lacks != "" {
			return w.claimLive(ctx, reference, machine)
		}
		if host, err = w.claim(ctx, host, machine); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return host, err
		}
	}
	return w.claimLive(ctx, reference, machine)
}

func (w Writer) claimLive(ctx context.Context, reference v1alpha1.HostReference,
	machine *v1alpha1.Machine) (*bmov1alpha1.BareMetalHost, error) {
	key, host := Key(reference), &bmov1alpha1.BareMetalHost{}
	taken := func(reason string) error { return &TakenError{Host: key.String(), Reason: reason, Live: host} }
	if err := w.Live.Get(ctx, key, host); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &TakenError{Host: key.String(), Reason: "its BareMetalHost has been deleted"}
		}
		return nil, fmt.Errorf("reading host %s to claim it, %w", key, err)
	}
	switch {
	case host.UID != reference.UID:
		return nil, taken("its BareMetalHost was deleted and recreated")
	case Owns(OwnerOf(machine), host) && host.Spec.Image == nil && NetworkOfHost(host) == "" && machine.Status.Network != "" &&
		!inventory.IsReleasing(host):
		return w.claim(ctx, host, machine) // it has no hooks for the move
	case Owns(OwnerOf(machine), host):
		return host, nil
	case host.Spec.ConsumerRef != nil:
		return nil, taken("it is claimed by " + inventory.Consumer(host))
	}
	eligibility, err := w.eligibility(ctx, host, machine)
	if err != nil {
		return nil, err
	}
	if !eligibility.Claimable {
		return nil, taken("it " + eligibility.Message)
	}
	lacks, err := w.lacks(ctx, host, machine)
	if err != nil {
		return nil, err
	}
	if lacks != "" {
		return nil, taken(fmt.Sprintf("it is too small for NodeType %s (%s)", machine.Status.NodeTypeRef.Name, lacks))
	}
	return w.claim(ctx, host, machine)
}

// lacks lists the resources that the server has less of than the type that it was chosen as: it may have been inspected
// since then. If the type is gone, lacks returns "".
func (w Writer) lacks(ctx context.Context, host *bmov1alpha1.BareMetalHost, machine *v1alpha1.Machine) (string, error) {
	nodeType := &v1alpha1.NodeType{}
	_, err := kube.Find(ctx, w.Client, types.NamespacedName{Name: machine.Status.NodeTypeRef.Name}, nodeType, client.UnsafeDisableDeepCopy)
	return inventory.Lacks(host, nodeType.Spec.Resources), err
}

func (w Writer) claim(
	ctx context.Context, host *bmov1alpha1.BareMetalHost, machine *v1alpha1.Machine,
) (*bmov1alpha1.BareMetalHost, error) {
	recorded, err := w.Record.Claim(ctx, machine)
	if err != nil {
		return nil, err
	}
	return w.write(ctx, host, "claiming", func(host *bmov1alpha1.BareMetalHost) {
		if !Owns(OwnerOf(machine), host) {
			host.Annotations = lo.Assign(host.Annotations, recorded)
		}
		host.Spec.ConsumerRef = OwnerOf(machine).ConsumerRef()
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.NodeTypeAnnotationKey, machine.Status.NodeTypeRef.Name)
		w.setHooks(machine, host)
	})
}

// Install sets the image, user data and power of the server. The documents are in the Secret of the Machine that has
// the server. address is the address that a DHCP server is to give it, or nil to leave that alone.
func (w Writer) Install(
	ctx context.Context, host *bmov1alpha1.BareMetalHost, planned *plan.Plan, documents bootstrap.Documents, address *plan.Address,
) (*bmov1alpha1.BareMetalHost, error) {
	return w.write(ctx, host, "setting the image of", func(host *bmov1alpha1.BareMetalHost) {
		consumer, _ := ConsumerOf(host)
		secret := corev1.SecretReference{Namespace: host.Namespace, Name: UserDataName(consumer)}
		host.Spec.Image = imageOf(planned)
		markUncleaned(host)
		restoreDocuments(host)
		userData, networkData := documentsOf(host)
		if userData.replace(nil); documents.UserData != nil {
			host.Spec.UserData = &secret
		}
		if documents.NetworkData != nil {
			networkData.replace(secret.DeepCopy())
		}
		host.Spec.Online = true
		if address != nil {
			host.Annotations = ipam.Annotate(host.Annotations, address.Allocation, address.DNS, address.NTP)
		}
	})
}

// Power switches the server on or off.
func (w Writer) Power(ctx context.Context, host *bmov1alpha1.BareMetalHost, powered bool) (*bmov1alpha1.BareMetalHost, error) {
	return w.write(ctx, host, "switching the power of", func(host *bmov1alpha1.BareMetalHost) { host.Spec.Online = powered })
}

// Reboot requests one reboot from Metal3, and writes mark, its time and operation, on the host.
func (w Writer) Reboot(
	ctx context.Context, host *bmov1alpha1.BareMetalHost, hard bool, mark string,
) (*bmov1alpha1.BareMetalHost, error) {
	mode := bmov1alpha1.RebootModeSoft
	if hard {
		mode = bmov1alpha1.RebootModeHard
	}
	arguments, err := json.Marshal(bmov1alpha1.RebootAnnotationArguments{Mode: mode})
	if err != nil {
		return nil, fmt.Errorf("encoding a request to reboot, %w", err)
	}
	return w.write(ctx, host, "rebooting", func(host *bmov1alpha1.BareMetalHost) {
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.RebootAnnotationPrefix, string(arguments))
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.RebootedAnnotationKey, mark)
	})
}

// Rebooted removes the mark of Reboot.
func (w Writer) Rebooted(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	return w.write(ctx, host, "taking the mark of a reboot off", func(host *bmov1alpha1.BareMetalHost) {
		delete(host.Annotations, v1alpha1.RebootedAnnotationKey)
	})
}

// SwitchOff begins the release of a server that leaves its tenant's network before it is cleaned.
func (w Writer) SwitchOff(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	return w.write(ctx, host, "switching off", func(host *bmov1alpha1.BareMetalHost) {
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.ReleasingAnnotationKey, "")
		host.Spec.Online = false
	})
}

// Empty tells Metal3 to remove the image and all data from the server and to switch it off.
func (w Writer) Empty(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	return w.write(ctx, host, "taking the image off", func(host *bmov1alpha1.BareMetalHost) {
		expectCleaning(host)
		host.Spec.Image = nil
		restoreDocuments(host)
		host.Spec.Online = host.Spec.DisablePowerOff
	})
}

// Release removes the claim from a clean server, after the record of its end.
func (w Writer) Release(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	if !IsEmptied(host) {
		return errors.New("releasing host " + host.Namespace + "/" + host.Name + ", its spec still asks for an image or power")
	}
	if err := w.Record.End(ctx, host); err != nil {
		return err
	}
	_, err := w.write(ctx, host, "releasing", func(host *bmov1alpha1.BareMetalHost) {
		if IsCleaned(host) {
			delete(host.Annotations, v1alpha1.LastTenantAnnotationKey)
		}
		host.Spec.ConsumerRef = nil
		unmark(host)
	})
	return err
}

// document is a field of a host that refers to a Secret. While a Machine has the host, the annotation saved keeps the
// operator's own reference. All metadata is an operator's.
type document struct {
	host  *bmov1alpha1.BareMetalHost
	field **corev1.SecretReference
	saved string
}

func documentsOf(host *bmov1alpha1.BareMetalHost) (userData, networkData document) {
	return document{host, &host.Spec.UserData, v1alpha1.SavedUserDataAnnotationKey},
		document{host, &host.Spec.NetworkData, v1alpha1.SavedNetworkDataAnnotationKey}
}

// replace sets the Machine's reference, which may be nil, and saves the operator's.
func (d document) replace(secret *corev1.SecretReference) {
	if before := *d.field; before != nil {
		metav1.SetMetaDataAnnotation(&d.host.ObjectMeta, d.saved, before.Namespace+"/"+before.Name)
	}
	*d.field = secret
}

// isReplaced reports whether the field has a Machine's document, or is empty although an operator had one there. An
// operator has written anything else.
func (d document) isReplaced() bool {
	if *d.field == nil {
		_, saved := d.host.Annotations[d.saved]
		return saved
	}
	o, claimed := ConsumerOf(d.host)
	return claimed && (*d.field).Name == UserDataName(o)
}

// restoreDocuments puts the operator's references back.
func restoreDocuments(host *bmov1alpha1.BareMetalHost) {
	userData, networkData := documentsOf(host)
	for _, d := range []document{userData, networkData} {
		if !d.isReplaced() {
			continue
		}
		*d.field = nil
		if namespace, name, saved := strings.Cut(host.Annotations[d.saved], "/"); saved {
			*d.field = &corev1.SecretReference{Namespace: namespace, Name: name}
		}
		delete(host.Annotations, d.saved)
	}
}

// unmark removes everything that claims have written on a host beside its spec. A reboot request that Metal3 has not
// served yet would reboot the next owner's server.
func unmark(host *bmov1alpha1.BareMetalHost) {
	for _, key := range []string{v1alpha1.NodeTypeAnnotationKey, v1alpha1.ClaimAnnotationKey, v1alpha1.CleaningAnnotationKey,
		v1alpha1.ReleasingAnnotationKey} {
		delete(host.Annotations, key)
	}
	for _, prefix := range HookPrefixes {
		for _, name := range v1alpha1.Hooks(host.Annotations, prefix) {
			delete(host.Annotations, v1alpha1.HookKey(prefix, name))
		}
	}
	if _, rebooted := host.Annotations[v1alpha1.RebootedAnnotationKey]; rebooted {
		delete(host.Annotations, v1alpha1.RebootedAnnotationKey)
		delete(host.Annotations, bmov1alpha1.RebootAnnotationPrefix)
	}
	host.Annotations = ipam.Restore(host.Annotations)
}

// write sends only the changes that change makes to a copy of the host: fields that only a newer Metal3 knows survive.
// The patch contains the version, which makes it a compare-and-swap.
func (w Writer) write(
	ctx context.Context, before *bmov1alpha1.BareMetalHost, doing string, change func(*bmov1alpha1.BareMetalHost),
) (*bmov1alpha1.BareMetalHost, error) {
	host := before.DeepCopy()
	change(host)
	if err := w.Client.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return host, fmt.Errorf("%s host %s/%s, %w", doing, host.Namespace, host.Name, err)
	}
	return host, nil
}

// Quarantine keeps the server from being claimed until an operator removes the annotation. An existing one stays.
func (w Writer) Quarantine(
	ctx context.Context, host *bmov1alpha1.BareMetalHost, why inventory.Quarantine,
) (*bmov1alpha1.BareMetalHost, error) {
	return w.AnnotateOnce(ctx, host, "quarantining", v1alpha1.QuarantinedAnnotationKey, why.String())
}

// AnnotateOnce writes an annotation, unless the host has it with any value.
func (w Writer) AnnotateOnce(ctx context.Context, host *bmov1alpha1.BareMetalHost, doing, key, value string) (
	*bmov1alpha1.BareMetalHost, error) {
	if _, has := host.Annotations[key]; has {
		return host, nil
	}
	return w.write(ctx, host, doing, func(host *bmov1alpha1.BareMetalHost) { metav1.SetMetaDataAnnotation(&host.ObjectMeta, key, value) })
}

// EndFault removes the fault from a server: it can be chosen like any other.
func (w Writer) EndFault(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	return w.write(ctx, host, "ending the fault of", func(host *bmov1alpha1.BareMetalHost) {
		delete(host.Annotations, v1alpha1.FaultAnnotationKey)
	})
}

// EndQuarantine lets the server back into the pool once it is released.
func (w Writer) EndQuarantine(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	return w.write(ctx, host, "ending the quarantine of", func(host *bmov1alpha1.BareMetalHost) {
		delete(host.Annotations, v1alpha1.QuarantinedAnnotationKey)
	})
}

// HookPrefixes are the prefixes of the hooks that hold a server.
var HookPrefixes = []string{v1alpha1.PreProvisionHookPrefix, v1alpha1.PreReturnHookPrefix}

// NetworkOfHost returns the network that a host was claimed for.
func NetworkOfHost(host *bmov1alpha1.BareMetalHost) string {
	return host.Annotations[v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)]
}

// setHooks writes the hooks on the host, with the claim: the network's hook, and the Machine's hooks that the manager
// knows. Hooks take effect on the host only, because the tenant can edit or recreate the Machine. Until the owners of
// the hooks have removed them, nothing is installed on the server and no other Machine claims it.
func (w Writer) setHooks(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) {
	for _, prefix := range HookPrefixes {
		for _, name := range v1alpha1.Hooks(machine.Annotations, prefix) {
			if key := v1alpha1.HookKey(prefix, name); w.Hooks.Has(name) {
				metav1.SetMetaDataAnnotation(&host.ObjectMeta, key, machine.Annotations[key])
			}
		}
		if network := machine.Status.Network; network != "" {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.HookKey(prefix, v1alpha1.NetworkHook), network)
		}
	}
}

// ReturnHooks returns the names of the hooks that a release waits for: the host's hooks, and the known hooks that were
// set on the Machine since the claim.
func (w Writer) ReturnHooks(host *bmov1alpha1.BareMetalHost, ofMachine map[string]string) []string {
	names := sets.New(v1alpha1.Hooks(host.Annotations, v1alpha1.PreReturnHookPrefix)...)
	for _, name := range v1alpha1.Hooks(ofMachine, v1alpha1.PreReturnHookPrefix) {
		if w.Hooks.Has(name) {
			names.Insert(name)
		}
	}
	return sets.List(names)
}

// Move requests the move into the network that the host was claimed for. It may be repeated at any time.
func (w Writer) Move(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.BareMetalHost, error) {
	key := v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, v1alpha1.NetworkHook)
	if _, asked := host.Annotations[key]; asked {
		return host, nil
	}
	return w.write(ctx, host, "setting the network hook of", func(host *bmov1alpha1.BareMetalHost) {
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, key, NetworkOfHost(host))
	})
}
