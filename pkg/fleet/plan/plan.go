// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a Machine is installed with: the image, the SSH keys, the templates of the documents, the
// network and what its NodeType sets aside. Only Resolve reads the objects that properties refer to. The plan is made
// before a server is claimed, so a wrong property, template or key claims no server. The status records the fields of
// the plan (Installed), Drift compares them with later plans, and pkg/bootstrap renders the documents.
package plan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/nodeprofiles"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Plan is what to install on a server, before the server is chosen.
type Plan struct {
	// Set has the properties, including the properties of the OSImage.
	Set   properties.Set
	Image properties.Image
	// NodeType and Provider are the names of the type and of its NodeProvider. KubeReserved is what the type sets
	// aside, in the syntax of the kubelet.
	NodeType, Provider, KubeReserved string
	// SSHKeys are lines for authorized_keys.
	SSHKeys []string
	// UserTemplate and NetworkTemplate are nil if there is none. Their syntax is not checked.
	UserTemplate, NetworkTemplate *Template
	// Pool of addresses, nil if the server gets its address elsewhere.
	Pool *ipam.Pool
	DNS  []netip.Addr
	// NTP are the time servers.
	NTP []string
	// Mirrors of the NodeProvider, nil if it has none. Installed does not include them.
	Mirrors *v1alpha1.Mirrors
}

// Template is the text of a template and where it comes from.
type Template struct {
	// Name says where people find the text: "cloudInitTemplate of MachineConfigTemplate ubuntu".
	Name string
	// Text is in the language of text/template.
	Text string
}

// Address is the address of a server, with its DNS and NTP servers.
type Address struct {
	ipam.Allocation
	// DNS servers in the order of use; may be empty.
	DNS []netip.Addr
	// NTP servers, for the DHCP server only: in network data, cloud-init would take them for name servers.
	NTP []string
}

// Address combines an allocation from the pool with the plan's DNS and NTP servers.
func (p *Plan) Address(allocation ipam.Allocation) *Address {
	return &Address{Allocation: allocation, DNS: p.DNS, NTP: p.NTP}
}

// Object is an object of the management cluster.
type Object interface {
	metav1.Object
	runtime.Object
}

// Cluster reads the objects that a plan needs. The caller must not modify the results.
type Cluster interface {
	// Find reads a cluster-scoped object, and reports false if it does not exist.
	Find(ctx context.Context, name string, object Object) (bool, error)
	// ChargedTo returns the TenantCluster that a Machine is charged to, nil if there is none.
	ChargedTo(ctx context.Context, machine *v1alpha1.Machine) (*v1alpha1.TenantCluster, error)
	// Types returns all NodeTypes and NodeProviders.
	Types(ctx context.Context) ([]*v1alpha1.NodeType, []*v1alpha1.NodeProvider, error)
}

// Resolve makes the plan for a Machine of a NodeType. An empty typeName means that no type has been chosen: then the
// plan has only what the Machine itself sets, and no image. The error is an *InvalidError if the plan cannot be carried
// out on any server.
func Resolve(ctx context.Context, cluster Cluster, machine *v1alpha1.Machine, typeName string) (*Plan, error) {
	r := resolver{ctx: ctx, cluster: cluster}
	nodeType, provider, own := &v1alpha1.NodeType{}, &v1alpha1.NodeProvider{}, properties.OfMachine(machine)
	layers := []properties.Layer{own}
	if typeName != "" {
		if err := r.find(typeName, nodeType, "NodeType", ""); err != nil {
			return nil, err
		}
		if err := r.find(nodeType.Spec.ProviderRef.Name, provider, "NodeProvider", ""); err != nil {
			return nil, err
		}
		layers = []properties.Layer{properties.OfProvider(provider), properties.OfType(nodeType), own}
	}
	// A reference that is not permitted is not looked up. Otherwise the error would tell whether the object exists.
	if err := r.permitted(machine, own); err != nil {
		return nil, err
	}
	if err := r.profiled(machine); err != nil {
		return nil, err
	}
	p := &Plan{Set: properties.Merge(layers...)}
	if err := r.refer(p); err != nil {
		return nil, err
	}
	if p.Pool != nil {
		p.Pool = ptr.To(p.Pool.In(machine.Status.Network))
	}
	if typeName == "" {
		return p, nil
	}
	subject := "NodeType " + nodeType.Name
	if name := p.Set.Get(v1alpha1.PropertyOSImage); name != "" {
		subject = "OSImage " + name
	}
	var err error
	if p.Image, err = p.Set.Image(); err != nil {
		return nil, invalidBecause(subject, err)
	}
	p.NodeType, p.Provider, p.KubeReserved = nodeType.Name, provider.Name, nodeType.KubeReserved()
	p.Mirrors = provider.Spec.Mirrors
	return p, invalidBecause("", p.Set.CheckImageHosts(provider))
}

// resolver reads the objects that a plan refers to.
type resolver struct {
	ctx     context.Context
	cluster Cluster
}

// refer looks up the objects that the properties refer to, and checks each value. Missing properties are no error.
func (r resolver) refer(p *Plan) error {
	if named := p.Set.References(); len(named) > 0 && named[0].Kind == properties.KindOSImage {
		osImage := &v1alpha1.OSImage{}
		if err := r.find(named[0].Name, osImage, named[0].Kind, p.refersTo(v1alpha1.PropertyOSImage)); err != nil {
			return err
		}
		p.Set = p.Set.WithOSImage(osImage)
	}
	if err := invalidBecause("", p.Set.Validate()...); err != nil {
		return err
	}
	for _, named := range p.Set.References() {
		var err error
		switch {
		case named.Kind == properties.KindSSHKey:
			err = r.addKey(p, named)
		case named.Kind == properties.KindMachineConfigTemplate && !named.Overridden:
			err = r.addTemplate(p, named)
		}
		if err != nil {
			return err
		}
	}
	return p.addNetwork()
}

func (r resolver) addKey(p *Plan, named properties.Reference) error {
	key := &v1alpha1.SSHKey{}
	if err := r.find(named.Name, key, named.Kind, p.refersTo(named.Property)); err != nil {
		return err
	}
	line, err := AuthorizedKey(key.Spec.PublicKey)
	if err != nil {
		return Invalidf("spec.publicKey of SSHKey %q %s", named.Name, err)
	}
	p.SSHKeys = append(p.SSHKeys, line)
	return nil
}

func (r resolver) addTemplate(p *Plan, named properties.Reference) error {
	object := &v1alpha1.MachineConfigTemplate{}
	if err := r.find(named.Name, object, named.Kind, p.refersTo(named.Property)); err != nil {
		return err
	}
	field, text, target := "cloudInitTemplate", object.Spec.CloudInitTemplate, &p.UserTemplate
	if named.Property == v1alpha1.PropertyNetworkDataTemplate {
		field, text, target = "networkDataTemplate", object.Spec.NetworkDataTemplate, &p.NetworkTemplate
	}
	if text == "" {
		return Invalidf("%s, which has no spec.%s: write one there, or name another template",
			p.refersTo(named.Property), field)
	}
	*target = &Template{Name: field + " of MachineConfigTemplate " + named.Name, Text: text}
	return nil
}

func (p *Plan) addNetwork() error {
	var err error
	if p.NTP, err = p.Set.NTPServers(); err != nil {
		return invalidBecause("", err)
	}
	network, set, err := p.Set.Network()
	if err != nil || !set {
		return invalidBecause("", err)
	}
	pool, err := ipam.NewPool(network.CIDR, network.Gateway, network.Ranges...)
	if err != nil {
		return Invalidf("%s: %s", p.refersTo(v1alpha1.PropertyNetworkCIDR), err)
	}
	p.Pool, p.DNS = &pool, network.DNS
	return nil
}

// permitted checks whether the tenant may set the properties of its Machine. It skips values that the server was
// installed with.
func (r resolver) permitted(machine *v1alpha1.Machine, layer properties.Layer) error {
	layer.Values = lo.OmitBy(layer.Values, func(key, value string) bool {
		return slices.ContainsFunc(machine.Status.Installed, func(field v1alpha1.InstalledField) bool {
			return v1alpha1.CanonicalKey(field.Field) == key && field.Digest == digest(value)
		}) || key == v1alpha1.PropertyServerName && machine.Status.HostRef != nil
	})
	if len(layer.Values) == 0 {
		return nil // most Machines have none, and this is part of each decision
	}
	tenant, err := r.cluster.ChargedTo(r.ctx, machine)
	if err != nil || tenant == nil {
		return err
	}
	nodeTypes, providers, err := r.cluster.Types(r.ctx)
	if err != nil {
		return fmt.Errorf("reading what the tenant may refer to, %w", err)
	}
	return invalidBecause("", properties.CheckTenant(layer, tenant, nodeTypes, providers)...)
}

// profiled checks the NodeProfile that a Machine names before a server is claimed, which could not join with a wrong
// one. A later change of the profile concerns only the Node, and reinstalls nothing.
func (r resolver) profiled(machine *v1alpha1.Machine) error {
	if machine.Spec.ProfileRef == nil || machine.Status.HostRef != nil {
		return nil
	}
	tenant, err := r.cluster.ChargedTo(r.ctx, machine)
	if err != nil || tenant == nil {
		return err
	}
	if problem := nodeprofiles.NotAllowed(tenant, machine.Spec.ProfileRef.Name); problem != "" {
		return Invalidf("spec.profileRef of Machine %s/%s: %s", machine.Namespace, machine.Name, problem)
	}
	return r.find(machine.Spec.ProfileRef.Name, &v1alpha1.NodeProfile{}, "NodeProfile", "")
}

// refersTo names the object that sets a property, and the value.
func (p *Plan) refersTo(key string) string {
	return fmt.Sprintf("property %s of %s is %q", key, p.Set.Source(key), p.Set.Get(key))
}

// find reads a cluster-scoped object. The error is an *InvalidError if it does not exist. The reference is the property
// that names the object, empty if none does.
func (r resolver) find(name string, object Object, kind, reference string) error {
	found, err := r.cluster.Find(r.ctx, name, object)
	switch {
	case err != nil || found:
		return err
	case reference == "":
		return Invalidf("%s %q does not exist: create it", kind, name)
	}
	return Invalidf("%s, and there is no %s of that name (%q): create it or correct the property", reference, kind, name)
}

// InvalidError is a fault in a Machine or in an object that it refers to. The Machine waits until one of these objects
// changes.
type InvalidError struct {
	// Message names the object, the field, the value and the remedy.
	Message string
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Message }

// Invalidf returns an *InvalidError.
func Invalidf(format string, arguments ...any) error {
	return &InvalidError{Message: fmt.Sprintf(format, arguments...)}
}

// Problem returns the message of an *InvalidError. It reports false for nil and for any other error.
func Problem(err error) (string, bool) {
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return invalid.Message, true
	}
	return "", false
}

// invalidBecause returns an *InvalidError with all faults, nil if there are none. A fault that names no object gets the
// subject, the object to correct.
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
	return &InvalidError{Message: strings.Join(messages, "; ")}
}
