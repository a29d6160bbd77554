// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// exampleHost has what an inspected host has, in addresses that are for documentation.
func exampleHost() *bmov1alpha1.BareMetalHost {
	const mac = "00:00:5e:00:53:01"
	return &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "example", Name: "example", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: bmov1alpha1.BareMetalHostSpec{
			BMC:             bmov1alpha1.BMCDetails{Address: "redfish://192.0.2.100/redfish/v1/Systems/1"},
			BootMACAddress:  mac,
			RootDeviceHints: &bmov1alpha1.RootDeviceHints{DeviceName: "/dev/sda"},
		},
		Status: bmov1alpha1.BareMetalHostStatus{HardwareDetails: &bmov1alpha1.HardwareDetails{
			Hostname:     "example",
			SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "example", ProductName: "example", SerialNumber: "0"},
			RAMMebibytes: 1 << 20,
			NIC:          []bmov1alpha1.NIC{{Name: "eth0", MAC: mac, PXE: true}, {Name: "eth1", MAC: "00:00:5e:00:53:02"}},
			Storage:      []bmov1alpha1.Storage{{Name: "/dev/sda", SizeBytes: 1 << 40, Rotational: false}},
			CPU:          bmov1alpha1.CPU{Arch: "x86_64", Count: 64},
		}},
	}
}

// newCA returns a CA certificate in PEM, and no key.
func newCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func vclusterJoin(t *testing.T) Join {
	t.Helper()
	j := exampleJoin(t)
	j.Mode = v1alpha1.JoinVCluster
	j.CACertificates = newCA(t)
	var err error
	if j.CACertHashes, err = CACertHashes(j.CACertificates); err != nil {
		t.Fatal(err)
	}
	return j
}
