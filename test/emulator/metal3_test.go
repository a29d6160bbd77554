// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"errors"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestPowerOf(t *testing.T) {
	cases := map[string]struct {
		reason  string
		state   metal3api.ProvisioningState
		online  bool
		powered bool
		disk    bool
	}{
		"Provisioned":    {"it boots what was installed", metal3api.StateProvisioned, true, true, true},
		"SwitchedOff":    {"its disk stays", metal3api.StateProvisioned, false, false, true},
		"Provisioning":   {"the image is still being written", metal3api.StateProvisioning, true, false, false},
		"Deprovisioning": {"the disk is being erased", metal3api.StateDeprovisioning, true, false, false},
		"Available":      {"nothing is installed", metal3api.StateAvailable, true, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			host := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Spec: metal3api.BareMetalHostSpec{Online: tc.online}}
			host.Status.Provisioning.State = tc.state
			if got := powerOf(host); got.On != tc.powered || (got.Install != "") != tc.disk {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
	first, second := &metal3api.BareMetalHost{}, &metal3api.BareMetalHost{}
	first.Status.Provisioning.State, second.Status.Provisioning.State = metal3api.StateProvisioned, metal3api.StateProvisioned
	second.Status.OperationHistory.Provision.Start = metav1.Unix(1, 0)
	if powerOf(first).Install == powerOf(second).Install {
		t.Error("two installations cannot be told apart")
	}
}

func TestUserDataOfHost(t *testing.T) {
	secret := func(key string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "data"}, Data: map[string][]byte{key: []byte("text")}}
	}
	cases := map[string]struct {
		reason string
		ref    *corev1.SecretReference
		secret *corev1.Secret
		want   string
	}{
		"Key":      {"the usual one", &corev1.SecretReference{Name: "data"}, secret("userData"), ""},
		"Fallback": {"Metal3 accepts it too", &corev1.SecretReference{Name: "data", Namespace: "hosts"}, secret("value"), ""},
		"OtherKey": {"Metal3 does not guess", &corev1.SecretReference{Name: "data"}, secret("data"), "neither key userData nor value"},
		"NoRef":    {"a host may have none", nil, secret("userData"), "refers to no secret"},
		"OtherNamespace": {"Metal3 refuses it", &corev1.SecretReference{Name: "data", Namespace: "tenant"}, secret("userData"),
			"which Metal3 refuses"},
		"Missing": {"the Secret does not exist", &corev1.SecretReference{Name: "gone"}, secret("userData"), "does not exist"},
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(metal3api.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			host := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "server-1"}}
			host.Spec.UserData = tc.ref
			source := &Metal3Source{
				client:    fake.NewClientBuilder().WithScheme(scheme).WithObjects([]client.Object{host, tc.secret}...).Build(),
				namespace: "hosts",
			}
			got, err := source.UserData(t.Context(), "server-1")
			if tc.want == "" {
				if err != nil || string(got) != "text" {
					t.Errorf("%s: got %q, %v", tc.reason, got, err)
				}
				return
			}
			if !errors.Is(err, ErrNoUserData) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v does not say %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestSilentHosts: a server that is in use goes on while its BareMetalHost is restored, which is first created without a status.
func TestSilentHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		state       metal3api.ProvisioningState
		annotations map[string]string
		want        bool
	}{
		"Provisioned": {"Metal3 keeps its server on", metal3api.StateProvisioned, nil, false},
		"Available":   {"Metal3 keeps its server off", metal3api.StateAvailable, nil, false},
		"Paused":      {"Metal3 does nothing", metal3api.StateProvisioned, map[string]string{metal3api.PausedAnnotation: "restore"}, true},
		"NoState":     {"Metal3 has not looked at it", metal3api.StateNone, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			host := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
			host.Status.Provisioning.State = tc.state
			if got := isSilent(host); got != tc.want {
				t.Errorf("%s: it is silent: %v", tc.reason, got)
			}
		})
	}
}
