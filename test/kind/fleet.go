// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// serverAddresses is how many addresses of the network are for servers.
const serverAddresses = 100

// Fleet is the folder with the manifests of the reference fleet, for this environment's image and network.
func (w *Environment) Fleet() string { return w.path("fleet") }

func (w *Environment) writeFleet(ctx context.Context, image stack.Image) error {
	subnet, gateway, err := subnetOf(ctx, w.state.IPFamily == "ipv6")
	if err != nil {
		return err
	}
	first, last, err := rangeIn(subnet)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.Fleet(), 0o700); err != nil {
		return fmt.Errorf("making the folder of the fleet, %w", err)
	}
	properties := map[string]map[string]string{
		"OSImage": {v1alpha1.PropertyImageURL: image.URL, v1alpha1.PropertyImageChecksum: image.Checksum},
		"NodeProvider": {
			v1alpha1.PropertyNetworkCIDR:    netip.PrefixFrom(gateway, subnet.Bits()).String(),
			v1alpha1.PropertyNetworkIPRange: first.String() + "-" + last.String(),
		},
	}
	for _, file := range []string{examples.ManagementFile, examples.TenantFile} {
		objects, err := examples.Objects(file)
		if err != nil {
			return err
		}
		if w.state.IPFamily == "dual" && file == examples.ManagementFile {
			subnet, gateway, err := subnetOf(ctx, true)
			if err != nil {
				return err
			}
			template, err := dualStack(subnet, gateway)
			if err != nil {
				return err
			}
			objects = append(objects, template)
			for _, key := range []string{v1alpha1.PropertyNetworkDataTemplate, v1alpha1.PropertyUserDataTemplate} {
				properties["NodeProvider"][key] = template.GetName()
			}
		}
		content := &bytes.Buffer{}
		for _, object := range objects {
			for key, value := range properties[object.GetKind()] {
				if err := unstructured.SetNestedField(object.Object, value, "spec", "properties", key); err != nil {
					return fmt.Errorf("setting property %s of %s %s, %w", key, object.GetKind(), object.GetName(), err)
				}
			}
			document, err := yaml.Marshal(object.Object)
			if err != nil {
				return err
			}
			content.WriteString("---\n")
			content.Write(document)
		}
		if err := os.WriteFile(w.path("fleet", path.Base(file)), content.Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing the manifests of the fleet, %w", err)
		}
	}
	return nil
}

// dualStack returns the template by which servers get an address of each family, for a subnet of IPv6.
func dualStack(subnet netip.Prefix, gateway netip.Addr) (*unstructured.Unstructured, error) {
	objects, err := examples.Objects(examples.DualStackFile)
	if err != nil {
		return nil, err
	}
	if subnet.Bits() != 64 {
		return nil, fmt.Errorf("the network %s of Docker is %s: servers of both families need one of 64 bits", network, subnet)
	}
	for _, field := range []string{"networkDataTemplate", "cloudInitTemplate"} {
		text, _, err := unstructured.NestedString(objects[0].Object, "spec", field)
		if err != nil {
			return nil, fmt.Errorf("reading %s, %w", examples.DualStackFile, err)
		}
		// The example is for 2001:db8::/64.
		text = strings.NewReplacer("2001:db8::1\n", gateway.String()+"\n", "2001:db8::", subnet.Masked().Addr().String()).Replace(text)
		if err := unstructured.SetNestedField(objects[0].Object, text, "spec", field); err != nil {
			return nil, fmt.Errorf("changing %s, %w", examples.DualStackFile, err)
		}
	}
	return objects[0], nil
}

// subnetOf is that of the network in a family, with its gateway.
func subnetOf(ctx context.Context, ipv6 bool) (netip.Prefix, netip.Addr, error) {
	output, err := docker.Run(ctx, "network", "inspect", "--format", "{{json .IPAM.Config}}", network)
	if err != nil {
		return netip.Prefix{}, netip.Addr{}, err
	}
	var configs []struct{ Subnet, Gateway string }
	if err := json.Unmarshal([]byte(output), &configs); err != nil {
		return netip.Prefix{}, netip.Addr{}, fmt.Errorf("reading Docker's network %s, %w", network, err)
	}
	for _, config := range configs {
		subnet, err := netip.ParsePrefix(config.Subnet)
		if err != nil {
			return netip.Prefix{}, netip.Addr{}, fmt.Errorf("reading Docker's network %s, %w", network, err)
		}
		if subnet.Addr().Is6() != ipv6 {
			continue
		}
		// Docker takes the first address, and says so from the first container on.
		gateway := subnet.Masked().Addr().Next()
		if config.Gateway != "" {
			if gateway, err = netip.ParseAddr(config.Gateway); err != nil {
				return netip.Prefix{}, netip.Addr{}, fmt.Errorf("reading Docker's network %s, %w", network, err)
			}
		}
		return subnet, gateway, nil
	}
	family := map[bool]string{false: "IPv4", true: "IPv6"}[ipv6]
	return netip.Prefix{}, netip.Addr{}, fmt.Errorf("the network %s of Docker has no subnet for %s: remove the network when no "+
		"cluster uses it, by `docker network rm %s`", network, family, network)
}

// rangeIn are addresses at the end of a network. Docker gives containers those at its beginning.
func rangeIn(subnet netip.Prefix) (first, last netip.Addr, err error) {
	if subnet.Addr().BitLen()-subnet.Bits() < 8 {
		return first, last, fmt.Errorf("the network %s of Docker is %s, which has no room for %d servers", network, subnet, serverAddresses)
	}
	last = netipx.PrefixLastIP(subnet).Prev() // the last one is for broadcasts
	first = last
	for range serverAddresses - 1 {
		first = first.Prev()
	}
	return first, last, nil
}
