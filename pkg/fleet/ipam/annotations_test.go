// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestAnnotate(t *testing.T) {
	const address, gateway, dns, ntp, saved = v1alpha1.IPAddressAnnotationKey, v1alpha1.GatewayAnnotationKey,
		v1alpha1.DNSServersAnnotationKey, v1alpha1.NTPServersAnnotationKey, v1alpha1.SavedNetworkAnnotationKey
	given := Allocation{Address: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")}
	servers := []netip.Addr{netip.MustParseAddr("10.0.0.53"), netip.MustParseAddr("10.0.1.53")}
	for name, tc := range map[string]struct {
		reason       string
		before, want map[string]string
		given        Allocation
		dns          []netip.Addr
		ntp          []string
	}{
		"Fresh": {
			reason: "a host without annotations", before: nil, given: given, dns: servers, ntp: []string{"10.0.0.123", "ntp.example.com"},
			want: map[string]string{address: "10.0.0.5/24", gateway: "10.0.0.1", dns: "10.0.0.53,10.0.1.53", ntp: "10.0.0.123,ntp.example.com",
				saved: savedText(t, nil)},
		},
		"Others": {
			reason: "annotations of others are theirs", before: map[string]string{"other": "1"}, given: given, dns: servers,
			want: map[string]string{"other": "1", address: "10.0.0.5/24", gateway: "10.0.0.1", dns: "10.0.0.53,10.0.1.53", saved: savedText(t, nil)},
		},
		"Had": {
			reason: "what a host had is saved, an empty value too, and a name server of another network is of no use",
			before: map[string]string{address: "192.168.1.9/24", dns: "", gateway: "192.168.1.1", ntp: "192.168.1.123"},
			given:  Allocation{Address: given.Address},
			want: map[string]string{address: "10.0.0.5/24",
				saved: savedText(t, map[string]string{address: "192.168.1.9/24", dns: "", gateway: "192.168.1.1", ntp: "192.168.1.123"})},
		},
		"HadAlias": {
			reason: "an operator has written the keys of the reference",
			before: map[string]string{v1alpha1.ReferenceKey(address): "192.168.1.9/24"}, given: Allocation{Address: given.Address},
			want: map[string]string{address: "10.0.0.5/24",
				saved: savedText(t, map[string]string{v1alpha1.ReferenceKey(address): "192.168.1.9/24"})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			once := Annotate(tc.before, tc.given, tc.dns, tc.ntp)
			if diff := cmp.Diff(lo.Assign(tc.want, v1alpha1.OtherSpellings(tc.want)), once); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(once, Annotate(once, tc.given, tc.dns, tc.ntp)); diff != "" {
				t.Errorf("done again after a crash, it is the same (-want +got):\n%s", diff)
			}
			other := Annotate(once, Allocation{Address: netip.MustParsePrefix("10.9.9.9/24")}, nil, nil)
			want := tc.before
			if want == nil {
				want = map[string]string{}
			}
			for _, annotated := range []map[string]string{once, other} {
				restored := Restore(annotated)
				if diff := cmp.Diff(want, restored); diff != "" {
					t.Errorf("the host gets its old ones back (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(restored, Restore(restored)); diff != "" {
					t.Errorf("restored again after a crash, it is the same (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// savedText is what is saved of a host that had these annotations.
func savedText(t *testing.T, before map[string]string) string {
	t.Helper()
	all := map[string]*string{}
	for _, key := range networkAnnotations {
		all[key] = nil
		if value, found := before[key]; found {
			all[key] = &value
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAnnotatedByOlder: a manager that knew neither time servers nor our keys has saved and written the other annotations of the host.
func TestAnnotatedByOlder(t *testing.T) {
	key := v1alpha1.ReferenceKey
	address, gateway, dns, ntp := key(v1alpha1.IPAddressAnnotationKey), key(v1alpha1.GatewayAnnotationKey),
		key(v1alpha1.DNSServersAnnotationKey), key(v1alpha1.NTPServersAnnotationKey)
	older := map[string]string{address: "10.0.0.5/24", gateway: "10.0.0.1", ntp: "192.168.1.123",
		v1alpha1.SavedNetworkAnnotationKey: `{"` + dns + `":null,"` + gateway + `":"192.168.1.1","` + address + `":null}`}
	want := map[string]string{gateway: "192.168.1.1", ntp: "192.168.1.123"}
	if diff := cmp.Diff(want, Restore(older)); diff != "" {
		t.Errorf("an operator's time servers are neither saved nor written, and stay (-want +got):\n%s", diff)
	}
	again := Annotate(older, Allocation{Address: netip.MustParsePrefix("10.0.0.5/24")}, nil, []string{"10.0.0.123"})
	for _, annotation := range []string{ntp, v1alpha1.NTPServersAnnotationKey} {
		if again[annotation] != "10.0.0.123" {
			t.Errorf("annotated again, with time servers: %v", again)
		}
	}
	if diff := cmp.Diff(want, Restore(again)); diff != "" {
		t.Errorf("they are saved before they are replaced, and ours go (-want +got):\n%s", diff)
	}
}
