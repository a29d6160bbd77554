// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"net/netip"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// joinBytes is what is kept free for the join in the user data, about which nothing is known before a server is
// claimed.
const joinBytes = 64 << 10

// rehearsed is an address that is for documentation, in the place of one that is still to be allocated.
var rehearsed = netip.MustParsePrefix("192.0.2.10/24")

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

// rehearse finds out whether the documents can be made for the host, before that is tied up. The error is an *invalid.
func (p *plan) rehearse(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) error {
	var network *bootstrap.NetworkConfig
	if p.pool != nil {
		network = &bootstrap.NetworkConfig{Address: rehearsed, DNS: p.dns, MAC: host.Spec.BootMACAddress}
	}
	made, err := p.documents(bootstrap.Rehearse, p.values(machine, host, nil), network, nil)
	if err != nil {
		return err
	}
	if size := len(made.userData) + len(made.networkData) + joinBytes; size > bootstrap.MaxDocumentBytes {
		return invalidf("Machine %s/%s: user data and network data have %d bytes together, and with the join Metal3 takes at most %d: fetch large files at boot instead of writing them out",
			machine.Namespace, machine.Name, len(made.userData)+len(made.networkData), bootstrap.MaxDocumentBytes)
	}
	return nil
}

// compose makes the documents for a server. The error is an *invalid if they cannot be made.
func (p *plan) compose(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost, address *Address, join []byte) (documents, error) {
	var network *bootstrap.NetworkConfig
	if address != nil {
		network = &bootstrap.NetworkConfig{Address: address.Address, Gateway: address.Gateway, DNS: address.DNS, MAC: host.Spec.BootMACAddress}
	}
	return p.documents(bootstrap.Render, p.values(machine, host, address), network, join)
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

// documents makes the documents: what is written out wins over a template, and that over what follows from the
// network. A join without anything to put beside it is handed on as it is.
func (p *plan) documents(render func(bootstrap.Template, bootstrap.Values) ([]byte, error), values bootstrap.Values,
	network *bootstrap.NetworkConfig, join []byte,
) (made documents, err error) {
	user, subject := []byte(p.set.UserData()), fmt.Sprintf("property %s of %s", v1alpha1.PropertyUserData, p.set.Source(v1alpha1.PropertyUserData))
	if p.userTemplate != nil {
		if user, err = render(*p.userTemplate, values); err != nil {
			return documents{}, invalidBecause("", err)
		}
		subject = "the document that is made by " + p.userTemplate.Name
	}
	if made.userData = join; len(user) > 0 || len(p.sshKeys) > 0 {
		if made.userData, err = bootstrap.Compose(user, p.sshKeys, join); err != nil {
			return documents{}, invalidf("%s %s", subject, err)
		}
	}
	made.networkData, err = p.networkDocument(render, values, network)
	return made, err
}

func (p *plan) networkDocument(render func(bootstrap.Template, bootstrap.Values) ([]byte, error), values bootstrap.Values,
	network *bootstrap.NetworkConfig,
) (document []byte, err error) {
	subject := fmt.Sprintf("property %s of %s", v1alpha1.PropertyNetworkData, p.set.Source(v1alpha1.PropertyNetworkData))
	switch literal := p.set.NetworkData(); {
	case literal != "":
		document = []byte(literal)
	case p.networkTemplate != nil:
		subject = "the document that is made by " + p.networkTemplate.Name
		if document, err = render(*p.networkTemplate, values); err != nil {
			return nil, invalidBecause("", err)
		}
	case network != nil:
		if document, err = bootstrap.NetworkData(*network); err != nil {
			return nil, invalidf("Machine %s/%s on server %s: %s", values.Project, values.NodeClaim.Name, values.BareMetalHost.Name, err)
		}
		return document, nil
	default:
		return nil, nil
	}
	if document, err = bootstrap.ReadNetworkData(document, values.BareMetalHost); err != nil {
		return nil, invalidf("%s %s", subject, err)
	}
	return document, nil
}
