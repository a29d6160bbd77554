// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/nodeprofiles"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// joinBytes is reserved in the user data for the join, which is not known before a server is claimed.
const joinBytes = 64 << 10

// plan is what is to be installed on a server, before it is known which.
type plan struct {
	set   properties.Set
	image bmov1alpha1.Image
	// nodeType is the name of the type, and kubeReserved what it sets aside, as kubelet takes it.
	nodeType, kubeReserved string
	// provider is the name of the type's NodeProvider.
	provider string
	// sshKeys are lines for authorized_keys.
	sshKeys []string
	// userTemplate and networkTemplate are nil if there is none.
	userTemplate, networkTemplate *bootstrap.Template
	// pool of addresses, nil if the server gets none from us.
	pool *ipam.Pool
	dns  []netip.Addr
	// ntp are the time servers.
	ntp []string
}

// documents are what a server reads at its first boot; nil for none.
type documents struct{ userData, networkData []byte }

// effective is what the status says of the properties.
func (p *plan) effective() []v1alpha1.MachineProperty {
	all := []v1alpha1.MachineProperty{}
	for _, entry := range p.set.Entries() {
		all = append(all, v1alpha1.MachineProperty{Key: entry.Key, Value: entry.Value, Source: entry.Source})
	}
	return all
}

// validate checks whether the documents can be rendered for the host, before that is claimed. The error is an *invalid.
func (p *plan) validate(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) error {
	var address *Address
	if p.pool != nil {
		address = &Address{Allocation: p.pool.Example(), DNS: p.dns}
	}
	rendered, err := p.render(machine, host, address, nil)
	if err != nil {
		return err
	}
	if size := len(rendered.userData) + len(rendered.networkData); size+joinBytes > bootstrap.MaxDocumentBytes {
		return invalidf("Machine %s/%s: user data and network data have %d bytes together, and with the join Metal3 takes at most %d: "+
			"fetch large files at boot instead of writing them out", machine.Namespace, machine.Name, size, bootstrap.MaxDocumentBytes)
	}
	return nil
}

// render renders the documents for a server, with the join if there is one. What is written out wins over a template, and that
// over what follows from the network. The error is an *invalid if they cannot be rendered.
func (p *plan) render(
	machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost, address *Address, join []byte,
) (rendered documents, err error) {
	values := p.values(machine, host, address)
	user, subject, err := p.document(v1alpha1.PropertyUserData, p.set.UserData(), p.userTemplate, values)
	if err != nil {
		return documents{}, err
	}
	if rendered.userData, err = bootstrap.UserData(user, p.sshKeys, p.ntp, join); err != nil {
		return documents{}, invalidf("%s %s", subject, err)
	}
	rendered.networkData, err = p.networkData(values, address)
	return rendered, err
}

func (p *plan) values(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost, address *Address) bootstrap.Values {
	values := bootstrap.Values{
		NodeClaim: machine, TypeRef: p.nodeType, ProviderRef: p.provider, Project: machine.Namespace,
		Properties: p.set.Map(), SSHKeys: p.sshKeys, BareMetalHost: host,
	}
	if address != nil {
		values.AllocatedIP, values.PrefixLength = address.Address.Addr().String(), address.Address.Bits()
		if address.Gateway.IsValid() {
			values.Gateway = address.Gateway.String()
		}
	}
	return values
}

// document returns a document that is written out or rendered, empty if it is neither, and what to call it in errors.
func (p *plan) document(
	property, literal string, template *bootstrap.Template, values bootstrap.Values,
) (text []byte, subject string, err error) {
	if literal != "" || template == nil {
		return []byte(literal), fmt.Sprintf("property %s of %s", property, p.set.Source(property)), nil
	}
	if text, err = bootstrap.Render(*template, values); err != nil {
		return nil, "", invalidBecause("", err)
	}
	return text, "the document that is made by " + template.Name, nil
}

func (p *plan) networkData(values bootstrap.Values, address *Address) ([]byte, error) {
	document, subject, err := p.document(v1alpha1.PropertyNetworkData, p.set.NetworkData(), p.networkTemplate, values)
	if err != nil {
		return nil, err
	}
	if len(document) > 0 || p.networkTemplate != nil {
		if document, err = bootstrap.ReadNetworkData(document, values.BareMetalHost); err != nil {
			return nil, invalidf("%s %s", subject, err)
		}
		return document, nil
	}
	if address == nil {
		return nil, nil
	}
	document, err = bootstrap.NetworkData(bootstrap.NetworkConfig{
		Address: address.Address, Gateway: address.Gateway, DNS: address.DNS, MAC: values.BareMetalHost.Spec.BootMACAddress,
	})
	if err != nil {
		return nil, invalidf("Machine %s/%s on server %s: %s", values.Project, values.NodeClaim.Name, values.BareMetalHost.Name, err)
	}
	return document, nil
}

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
	// A reference that is not permitted is not looked up: the error would tell whether the object exists.
	if err := r.permitted(ctx, machine); err != nil {
		return nil, err
	}
	if err := r.profiled(ctx, machine); err != nil {
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
	if err := p.set.CheckImageHosts(provider); err != nil {
		return nil, invalidBecause("", err)
	}
	p.image = bmov1alpha1.Image{URL: image.URL, Checksum: image.Checksum, ChecksumType: bmov1alpha1.ChecksumType(image.ChecksumType)}
	if image.Format != "" {
		p.image.DiskFormat = &image.Format
	}
	p.nodeType, p.provider, p.kubeReserved = nodeType.Name, provider.Name, nodeType.KubeReserved()
	return p, nil
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
	var err error
	if p.ntp, err = p.set.NTPServers(); err != nil {
		return invalidBecause("", err)
	}
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

// permitted checks whether the tenant may set the properties of its Machine, except those that its server was installed with. The
// error is an *invalid if it may not.
func (r *Reconciler) permitted(ctx context.Context, machine *v1alpha1.Machine) error {
	layer := properties.OfMachine(machine)
	layer.Values = lo.OmitBy(layer.Values, func(key, value string) bool {
		return slices.ContainsFunc(machine.Status.Installed, func(one v1alpha1.InstalledField) bool {
			return one.Field == key && one.Digest == digest(value)
		}) || key == v1alpha1.PropertyServerName && machine.Status.HostRef != nil
	})
	if len(layer.Values) == 0 {
		return nil // most Machines have none, and this is part of each decision
	}
	tenants, err := r.tenantsOf(ctx, machine.Namespace)
	tenant := quota.ChargedTo(machine, tenants)
	if err != nil || tenant == nil {
		return err
	}
	nodeTypes, providers := &v1alpha1.NodeTypeList{}, &v1alpha1.NodeProviderList{}
	for _, list := range []client.ObjectList{nodeTypes, providers} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing what the tenant may refer to, %w", err)
		}
	}
	return invalidBecause("", properties.CheckTenant(
		layer, tenant, lo.ToSlicePtr(nodeTypes.Items), lo.ToSlicePtr(providers.Items))...)
}

// profiled checks the NodeProfile that a Machine names, before a server is claimed that could not join with it. What happens to the
// profile later concerns the Node, and reinstalls nothing.
func (r *Reconciler) profiled(ctx context.Context, machine *v1alpha1.Machine) error {
	if machine.Spec.ProfileRef == nil || machine.Status.HostRef != nil {
		return nil
	}
	tenants, err := r.tenantsOf(ctx, machine.Namespace)
	tenant := quota.ChargedTo(machine, tenants)
	if err != nil || tenant == nil {
		return err
	}
	if problem := nodeprofiles.NotAllowed(tenant, machine.Spec.ProfileRef.Name); problem != "" {
		return invalidf("spec.profileRef of Machine %s/%s: %s", machine.Namespace, machine.Name, problem)
	}
	return r.find(ctx, machine.Spec.ProfileRef.Name, &v1alpha1.NodeProfile{}, "NodeProfile", "")
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
			var wrong *properties.Error
			if errors.As(fault, &wrong) && wrong.Source == "" && subject != "" {
				fault = fmt.Errorf("%s: %w", subject, fault)
			}
			messages = append(messages, fault.Error())
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
