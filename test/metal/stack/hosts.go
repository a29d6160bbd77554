// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
)

// Register registers a server of the rack with Metal3.
func (s *Stack) Register(ctx context.Context, server scenario.Server, labels map[string]string) error {
	return s.Rack.Register(ctx, s.Client, server, labels)
}

// Register registers a server with the Metal3 of a management cluster, as a platform team does: a Secret with the credentials of
// its BMC, and a BareMetalHost of the same name, which says nothing about the hardware.
func (r *Rack) Register(ctx context.Context, c client.Client, server scenario.Server, labels map[string]string) error {
	view, err := r.Server(ctx, server.Name)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: HostsNamespace, Name: server.Name + "-bmc"},
		Data:       map[string][]byte{"username": []byte(server.BMC.Username), "password": []byte(server.BMC.Password)},
	}
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: HostsNamespace, Name: server.Name, Labels: labels}}
	host.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish-virtualmedia+" + view.URL, CredentialsName: secret.Name}
	host.Spec.BootMACAddress = view.MACs[0]
	for _, object := range []client.Object{secret, host} {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("registering server %s, creating %T, %w", server.Name, object, err)
		}
	}
	return nil
}

// Host reads a BareMetalHost.
func (s *Stack) Host(ctx context.Context, name string) (*bmov1alpha1.BareMetalHost, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: HostsNamespace, Name: name}, host); err != nil {
		return nil, fmt.Errorf("reading host %s, %w", name, err)
	}
	return host, nil
}
