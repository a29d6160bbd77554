// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
)

// joinBytes is reserved in the user data for the join, which is unknown until a server is claimed.
const joinBytes = 64 << 10

// Documents are what a server reads at its first boot; nil for none.
type Documents struct{ UserData, NetworkData []byte }

// CheckPlan checks before the claim whether the documents of a plan can be rendered for a server. The error is a
// *plan.InvalidError.
func CheckPlan(p *plan.Plan, machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) error {
	var address *plan.Address
	if p.Pool != nil {
		address = p.Address(p.Pool.Example())
	}
	rendered, err := RenderPlan(p, machine, host, address, nil)
	if err != nil {
		return err
	}
	if size := len(rendered.UserData) + len(rendered.NetworkData); size+joinBytes > MaxDocumentBytes {
		return plan.Invalidf("Machine %s/%s: user data and network data have %d bytes together, and with the join Metal3 takes "+
			"at most %d: fetch large files at boot instead of writing them out",
			machine.Namespace, machine.Name, size, MaxDocumentBytes)
	}
	return nil
}

// RenderPlan renders the documents of a plan for a server, with its address and the join, if any. A literal document
// wins over a template, and a template over the network's data. The error is a *plan.InvalidError.
func RenderPlan(
	p *plan.Plan, machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost, address *plan.Address, join []byte,
) (rendered Documents, err error) {
	values := valuesOf(p, machine, host, address)
	user, subject, err := document(p, v1alpha1.PropertyUserData, p.Set.UserData(), p.UserTemplate, values)
	if err != nil {
		return Documents{}, err
	}
	mirrors, err := mirrorsScriptOf(p.Mirrors)
	if err != nil {
		return Documents{}, plan.Invalidf("NodeProvider %s: %s", p.Provider, err)
	}
	if rendered.UserData, err = UserData(user, p.SSHKeys, p.NTP, mirrors, join); err != nil {
		return Documents{}, plan.Invalidf("%s %s", subject, err)
	}
	rendered.NetworkData, err = networkDataOf(p, values, address)
	return rendered, err
}

func valuesOf(p *plan.Plan, machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost, address *plan.Address) Values {
	set := p.Set.Map()
	values := Values{
		NodeClaim: machine, TypeRef: p.NodeType, ProviderRef: p.Provider, Project: machine.Namespace,
		Properties: lo.Assign(set, v1alpha1.OtherSpellings(set)), SSHKeys: p.SSHKeys, BareMetalHost: host,
	}
	if address != nil {
		values.AllocatedIP, values.PrefixLength = address.Address.Addr().String(), address.Address.Bits()
		if address.Gateway.IsValid() {
			values.Gateway = address.Gateway.String()
		}
	}
	return values
}

// document returns a document, literal or rendered, empty if it is neither, and its name for errors.
func document(
	p *plan.Plan, property, literal string, template *Template, values Values,
) (text []byte, subject string, err error) {
	if literal != "" || template == nil {
		return []byte(literal), fmt.Sprintf("property %s of %s", property, p.Set.Source(property)), nil
	}
	if text, err = Render(*template, values); err != nil {
		return nil, "", plan.Invalidf("%s", err)
	}
	return text, "the document that is made by " + template.Name, nil
}

func networkDataOf(p *plan.Plan, values Values, address *plan.Address) ([]byte, error) {
	text, subject, err := document(p, v1alpha1.PropertyNetworkData, p.Set.NetworkData(), p.NetworkTemplate, values)
	if err != nil {
		return nil, err
	}
	if len(text) > 0 || p.NetworkTemplate != nil {
		if text, err = ReadNetworkData(text, values.BareMetalHost); err != nil {
			return nil, plan.Invalidf("%s %s", subject, err)
		}
		return text, nil
	}
	if address == nil {
		return nil, nil
	}
	if text, err = NetworkData(address, values.BareMetalHost.Spec.BootMACAddress); err != nil {
		return nil, plan.Invalidf("Machine %s/%s on server %s: %s",
			values.Project, values.NodeClaim.Name, values.BareMetalHost.Name, err)
	}
	return text, nil
}
