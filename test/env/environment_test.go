// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

var environment Environment

func TestMain(m *testing.M) { Main(m, &environment) }

func TestEveryKindIsServed(t *testing.T) {
	for name, list := range map[string]client.ObjectList{
		"NodeProvider":   &v1alpha1.NodeProviderList{},
		"NodeType":       &v1alpha1.NodeTypeList{},
		"Machine":        &v1alpha1.MachineList{},
		"NodeProfile":    &v1alpha1.NodeProfileList{},
		"OSImage":        &v1alpha1.OSImageList{},
		"TenantCluster":  &v1alpha1.TenantClusterList{},
		"MetalNodeClass": &v1alpha1.MetalNodeClassList{},
		"BareMetalHost":  &bmov1alpha1.BareMetalHostList{},
		"NodePool":       &karpv1.NodePoolList{},
		"NodeClaim":      &karpv1.NodeClaimList{},
	} {
		t.Run(name, func(t *testing.T) {
			if err := environment.Client.List(t.Context(), list); err != nil {
				t.Errorf("listing %s, %v", name, err)
			}
		})
	}
}

func TestCreateHostKeepsItsStatus(t *testing.T) {
	host := environment.CreateHost(t, AvailableHost(environment.Namespace(t), "server-01", nil))
	got := &bmov1alpha1.BareMetalHost{}
	if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(host), got); err != nil {
		t.Fatal(err)
	}
	if got.Status.Provisioning.State != bmov1alpha1.StateAvailable {
		t.Errorf("state %q, want available: tests would start from a host that Metal3 never looked at", got.Status.Provisioning.State)
	}
}
