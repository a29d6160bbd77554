// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"net/netip"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// joinBytes is reserved in the user data for the join, which is not known before a server is claimed.
const joinBytes = 64 << 10

// exampleAddress stands for the address that is allocated once a server is claimed. Its networks are for documentation.
var exampleAddress = ipam.Allocation{Address: netip.MustParsePrefix("192.0.2.10/24"), Gateway: netip.MustParseAddr("192.0.2.1")}

// plan is what is to be installed on a server, before it is known which.
type plan struct {
	set   properties.Set
	image bmov1alpha1.Image
	// nodeType is the name of the type, and kubeReserved what it sets aside, as kubelet takes it.
	nodeType, kubeReserved string
	// sshKeys are lines for authorized_keys.
	sshKeys []string
	// userTemplate and networkTemplate are nil if there is none.
	userTemplate, networkTemplate *bootstrap.Template
	// pool of addresses, nil if the server gets none from us.
	pool *ipam.Pool
	dns  []netip.Addr
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
		address = &Address{Allocation: exampleAddress, DNS: p.dns}
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
	if rendered.userData, err = bootstrap.UserData(user, p.sshKeys, join); err != nil {
		return documents{}, invalidf("%s %s", subject, err)
	}
	rendered.networkData, err = p.networkData(values, address)
	return rendered, err
}

func (p *plan) values(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost, address *Address) bootstrap.Values {
	values := bootstrap.Values{
		NodeClaim: machine, Project: machine.Namespace, Properties: p.set.Map(), SSHKeys: p.sshKeys, BareMetalHost: host,
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
