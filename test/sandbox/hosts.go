// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"

	metal3v1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

// registerHosts registers the servers of the fleet with Metal3, as a platform team does: a Secret with the credentials of the
// BMC, and a BareMetalHost. It returns when Metal3 has accepted all of them.
func registerHosts(ctx context.Context, c client.Client, servers []fleet.Server) error {
	for i, server := range servers {
		host, secret, err := newHost(i, server)
		if err != nil {
			return err
		}
		if err := cluster.Apply(ctx, c, secret, host); err != nil {
			return err
		}
	}
	return cluster.Await(ctx, "Metal3 to accept the servers", func(ctx context.Context) error {
		var hosts metal3v1alpha1.BareMetalHostList
		if err := c.List(ctx, &hosts, client.InNamespace(HostNamespace)); err != nil {
			return err
		}
		waiting := ""
		count := 0
		for _, host := range hosts.Items {
			// A host in error is accepted too: fleets may have such hosts on purpose.
			if host.Status.Provisioning.State != metal3v1alpha1.StateAvailable && host.Status.ErrorType == "" && !demoStuck(host.Name) {
				count++
				waiting = fmt.Sprintf("%s is %q", host.Name, host.Status.Provisioning.State)
			}
		}
		if count > 0 {
			return fmt.Errorf("%d of %d are not available yet, %s", count, len(servers), waiting)
		}
		return nil
	})
}

// newHost returns the BareMetalHost of the index-th server, and the Secret with its BMC's credentials.
func newHost(index int, server fleet.Server) (*metal3v1alpha1.BareMetalHost, *corev1.Secret, error) {
	mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", index>>16&0xff, index>>8&0xff, index&0xff)
	memory := server.Capacity.Memory().Value()
	// The result of inspection. Without it Metal3's demo mode reports the same for every server.
	details, err := json.Marshal(metal3v1alpha1.HardwareDetails{
		SystemVendor: metal3v1alpha1.HardwareSystemVendor{Manufacturer: "Sandbox", ProductName: "Emulated server", SerialNumber: server.Name},
		RAMMebibytes: int(memory >> 20),
		CPU:          metal3v1alpha1.CPU{Arch: inspected(server.Architecture), Count: int(server.Capacity.Cpu().Value())},
		NIC:          []metal3v1alpha1.NIC{{Name: "eth0", MAC: mac, PXE: true}},
		Storage:      []metal3v1alpha1.Storage{{Name: "/dev/sda", SizeBytes: 480 << 30}},
		Hostname:     server.Name,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the hardware details of server %s, %w", server.Name, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: HostNamespace, Name: server.Name + "-bmc"},
		Data:       map[string][]byte{"username": []byte("sandbox"), "password": []byte("sandbox")},
	}
	host := &metal3v1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: HostNamespace, Name: server.Name, Labels: server.Labels,
			Annotations: map[string]string{metal3v1alpha1.HardwareDetailsAnnotation: string(details)},
		},
		Spec: metal3v1alpha1.BareMetalHostSpec{
			// An address for documentation: the demo mode parses it and does not connect.
			BMC: metal3v1alpha1.BMCDetails{
				Address:         fmt.Sprintf("redfish://192.0.2.1/redfish/v1/Systems/%s", server.Name),
				CredentialsName: secret.Name,
			},
			BootMACAddress: mac,
			InspectionMode: metal3v1alpha1.InspectionModeDisabled,
		},
	}
	return host, secret, nil
}

// inspected returns an architecture as Metal3's inspection reports it.
func inspected(architecture string) string {
	if architecture == fleet.ARM64 {
		return "aarch64"
	}
	return "x86_64"
}

// demoStuck returns whether Metal3's demo mode keeps a host of this name in a state before available, to demonstrate
// that state.
func demoStuck(name string) bool {
	switch name {
	case "demo-registering", "demo-inspecting", "demo-preparing":
		return true
	}
	return false
}
