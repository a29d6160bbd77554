// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// resolve makes the plan for a Machine of a type out of everything that its properties refer to, and validates it for the
// host. The error is an *invalid if it cannot be carried out.
func (r *Reconciler) resolve(
	ctx context.Context, machine *v1alpha1.Machine, typeName string, host *bmov1alpha1.BareMetalHost,
) (*plan, error) {
	p, err := r.planOf(ctx, machine, typeName)
	if err != nil {
		return nil, err
	}
	return p, p.validate(machine, host)
}

// planOf makes the plan, for whatever host. The error is an *invalid if it cannot be carried out on any.
func (r *Reconciler) planOf(ctx context.Context, machine *v1alpha1.Machine, typeName string) (*plan, error) {
	nodeType, provider := &v1alpha1.NodeType{}, &v1alpha1.NodeProvider{}
	if err := r.find(ctx, typeName, nodeType, "NodeType", ""); err != nil {
		return nil, err
	}
	if err := r.find(ctx, nodeType.Spec.ProviderRef.Name, provider, "NodeProvider", ""); err != nil {
		return nil, err
	}
	set := properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType), properties.OfMachine(machine))
	p, err := r.refer(ctx, set)
	if err != nil {
		return nil, err
	}
	if p.pool != nil {
		p.pool = ptr.To(p.pool.In(networkOf(machine)))
	}
	subject := "NodeType " + nodeType.Name
	if name := p.set.Get(v1alpha1.PropertyOSImage); name != "" {
		subject = "OSImage " + name
	}
	image, err := p.set.Image()
	if err != nil {
		return nil, invalidBecause(subject, err)
	}
	p.image = bmov1alpha1.Image{URL: image.URL, Checksum: image.Checksum, ChecksumType: bmov1alpha1.ChecksumType(image.ChecksumType)}
	if image.Format != "" {
		p.image.DiskFormat = &image.Format
	}
	p.nodeType, p.kubeReserved = nodeType.Name, nodeType.KubeReserved()
	return p, nil
}

// checkOwn checks the Machine's own properties. What its type adds to them is known only once a type has been chosen. The
// error is an *invalid if something is wrong with them.
func (r *Reconciler) checkOwn(ctx context.Context, machine *v1alpha1.Machine) error {
	_, err := r.refer(ctx, properties.Merge(properties.OfMachine(machine)))
	return err
}

// refer looks up what the properties refer to and checks each value. Properties that are missing are no error.
func (r *Reconciler) refer(ctx context.Context, set properties.Set) (*plan, error) {
	if name, err := set.OSImage(); err == nil && name != "" {
		osImage := &v1alpha1.OSImage{}
		if err := r.find(ctx, name, osImage, "OSImage", refersTo(set, v1alpha1.PropertyOSImage)); err != nil {
			return nil, err
		}
		set = set.WithOSImage(osImage)
	}
	if err := invalidBecause("", set.Validate()...); err != nil {
		return nil, err
	}
	p := &plan{set: set}
	for _, step := range []func(context.Context, *plan) error{r.referToKeys, r.referToTemplates, referToNetwork} {
		if err := step(ctx, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (r *Reconciler) referToKeys(ctx context.Context, p *plan) error {
	names, err := p.set.SSHKeys()
	if err != nil {
		return invalidBecause("", err)
	}
	for _, name := range names {
		key := &v1alpha1.SSHKey{}
		if err := r.find(ctx, name, key, "SSHKey", refersTo(p.set, v1alpha1.PropertySSHKeys)); err != nil {
			return err
		}
		line, err := bootstrap.AuthorizedKey(key.Spec.PublicKey)
		if err != nil {
			return invalidf("spec.publicKey of SSHKey %q %s", name, err)
		}
		p.sshKeys = append(p.sshKeys, line)
	}
	return nil
}

func (r *Reconciler) referToTemplates(ctx context.Context, p *plan) error {
	for _, one := range []struct {
		property, field string
		name            func() (string, error)
		text            func(*v1alpha1.MachineConfigTemplate) string
		into            **bootstrap.Template
	}{
		{v1alpha1.PropertyUserDataTemplate, "cloudInitTemplate", p.set.UserDataTemplate,
			func(t *v1alpha1.MachineConfigTemplate) string { return t.Spec.CloudInitTemplate }, &p.userTemplate},
		{v1alpha1.PropertyNetworkDataTemplate, "networkDataTemplate", p.set.NetworkDataTemplate,
			func(t *v1alpha1.MachineConfigTemplate) string { return t.Spec.NetworkDataTemplate }, &p.networkTemplate},
	} {
		name, err := one.name()
		if err != nil {
			return invalidBecause("", err)
		}
		if name == "" {
			continue
		}
		object := &v1alpha1.MachineConfigTemplate{}
		if err := r.find(ctx, name, object, "MachineConfigTemplate", refersTo(p.set, one.property)); err != nil {
			return err
		}
		template := bootstrap.Template{Name: one.field + " of MachineConfigTemplate " + name, Text: one.text(object)}
		if template.Text == "" {
			return invalidf("%s, which has no spec.%s: write one there, or name another template", refersTo(p.set, one.property), one.field)
		}
		if err := bootstrap.CheckSyntax(template); err != nil {
			return invalidBecause("", err)
		}
		*one.into = &template
	}
	return nil
}

func referToNetwork(_ context.Context, p *plan) error {
	network, set, err := p.set.Network()
	if err != nil || !set {
		return invalidBecause("", err)
	}
	pool, err := ipam.NewPool(network.CIDR, network.Gateway, network.Ranges...)
	if err != nil {
		return invalidf("%s: %s", refersTo(p.set, v1alpha1.PropertyNetworkCIDR), err)
	}
	p.pool, p.dns = &pool, network.DNS
	return nil
}

// refersTo says where a property is written and what it says.
func refersTo(set properties.Set, key string) string {
	return fmt.Sprintf("property %s of %s is %q", key, set.Source(key), set.Get(key))
}

// find reads a cluster-scoped object. The error is an *invalid if it does not exist. The reference is the property that
// names it, empty if none does.
func (r *Reconciler) find(ctx context.Context, name string, into client.Object, kind, reference string) error {
	err := r.client.Get(ctx, types.NamespacedName{Name: name}, into)
	switch {
	case apierrors.IsNotFound(err) && reference == "":
		return invalidf("%s %q does not exist: create it", kind, name)
	case apierrors.IsNotFound(err):
		return invalidf("%s, and there is no %s of that name (%q): create it or correct the property", reference, kind, name)
	case err != nil:
		return fmt.Errorf("reading %s %s, %w", kind, name, err)
	}
	return nil
}

// invalid is an error in a Machine or in something that it refers to. Its message names object, field, value and remedy. The
// Machine waits until one of those objects changes.
type invalid struct{ message string }

// Error implements error.
func (e *invalid) Error() string { return e.message }

func invalidf(format string, arguments ...any) error {
	return &invalid{message: fmt.Sprintf(format, arguments...)}
}

// invalidBecause returns an *invalid with all faults, nil if there are none. The subject is the object to correct, for faults
// that do not name one.
func invalidBecause(subject string, faults ...error) error {
	var messages []string
	for _, fault := range faults {
		if fault != nil {
			messages = append(messages, withSubject(fault, subject))
		}
	}
	if len(messages) == 0 {
		return nil
	}
	return &invalid{message: strings.Join(messages, "; ")}
}

// whatIsInvalid returns the message of an invalid.
func whatIsInvalid(err error) (string, bool) {
	var wrong *invalid
	if errors.As(err, &wrong) {
		return wrong.message, true
	}
	return "", false
}

// withSubject names the object to correct, if the error does not name one itself.
func withSubject(err error, subject string) string {
	var wrong *properties.Error
	if errors.As(err, &wrong) && wrong.Source == "" && subject != "" {
		return subject + ": " + err.Error()
	}
	return err.Error()
}
