// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// aliased are properties with a value that a Machine of the fleet can have.
var aliased = map[string]string{
	v1alpha1.NodeTypeLabelKey:            "h100",
	v1alpha1.PropertyOSImage:             "ubuntu",
	v1alpha1.PropertyServerName:          "server-01",
	v1alpha1.PropertyImageURL:            "http://images/v.iso",
	v1alpha1.PropertyImageChecksum:       "d41d8cd98f00b204e9800998ecf8427e",
	v1alpha1.PropertyImageChecksumType:   "md5",
	v1alpha1.PropertySSHKeys:             "admin",
	v1alpha1.PropertyUserData:            "#cloud-config",
	v1alpha1.PropertyUserDataTemplate:    "gpu",
	v1alpha1.PropertyNetworkDataTemplate: "net",
	v1alpha1.PropertyNetworkCIDR:         "192.0.2.1/24",
	v1alpha1.PropertyNetworkIPRange:      "192.0.2.10-192.0.2.20",
	v1alpha1.PropertyDNSServers:          "192.0.2.53",
	v1alpha1.PropertyNTPServers:          "192.0.2.123",
	v1alpha1.PropertyNetworkData:         "links: []",
}

// noProperties have an alias and are labels or annotations.
var noProperties = []string{v1alpha1.NodeProfileLabelKey, v1alpha1.IPAddressAnnotationKey, v1alpha1.GatewayAnnotationKey,
	v1alpha1.RebootAnnotationKey}

// aliasFleet is the fleet whose template reads a property that shapes nothing otherwise, by the key that is given.
func aliasFleet(readKey string) *cluster {
	template := &v1alpha1.MachineConfigTemplate{ObjectMeta: named("gpu")}
	template.Spec.CloudInitTemplate = `#cloud-config {{ index .Values.Properties "` + readKey + `" }}`
	network := &v1alpha1.MachineConfigTemplate{ObjectMeta: named("net")}
	network.Spec.NetworkDataTemplate = "links: []"
	fleet := fleet()
	for _, object := range []Object{template, network} {
		fleet.objects[keyOf(object, object.GetName())] = object
	}
	return fleet
}

// TestAliases: a property under either of its keys makes the same plan, with the same record and the same hash. A server that was installed
// with one of them has not drifted when an author writes the other, nor for a record with the reference's keys, as
// test/upgrade finds them.
func TestAliases(t *testing.T) {
	if got, want := len(aliased)+len(noProperties), len(v1alpha1.Aliases()); got != want {
		t.Errorf("%d keys are tested, and %d have an alias", got, want)
	}
	for key, value := range aliased {
		t.Run(key, func(t *testing.T) {
			var plans []*Plan
			for _, spelling := range v1alpha1.Spellings(key) {
				for _, readKey := range v1alpha1.Spellings(v1alpha1.NodeTypeLabelKey) {
					p, err := Resolve(t.Context(), aliasFleet(readKey), machineWith(env.Properties(t, map[string]string{spelling: value})), "h100")
					if err != nil {
						t.Fatalf("%s: %v", spelling, err)
					}
					if readKey == v1alpha1.NodeTypeLabelKey {
						plans = append(plans, p)
					}
					if key == v1alpha1.NodeTypeLabelKey && len(p.Installed()) == len(mustResolve(t, aliasFleet(readKey)).Installed()) {
						t.Errorf("%s, which the template reads as %s, is not among what is installed", spelling, readKey)
					}
				}
			}
			ours, alias := plans[0], plans[1]
			if got := ours.Set.Get(key); got != value {
				t.Errorf("the value is %q, want %q", got, value)
			}
			if diff := cmp.Diff(ours.Set.Entries(), alias.Set.Entries()); diff != "" {
				t.Errorf("the properties are not the same (-ours +alias):\n%s", diff)
			}
			if diff := cmp.Diff(ours.Installed(), alias.Installed()); diff != "" || Hash(ours.Installed()) != Hash(alias.Installed()) {
				t.Errorf("the record is not the same (-ours +alias):\n%s", diff)
			}
			records := [][]v1alpha1.InstalledField{ours.Installed(), ours.Installed()}
			for i := range records[1] {
				records[1][i].Field = v1alpha1.ReferenceKey(records[1][i].Field)
			}
			for _, record := range records {
				if drifted := alias.Drift(record); drifted.Status != metav1.ConditionFalse {
					t.Errorf("a server with the record %v has drifted: %s", record, drifted.Message)
				}
			}
		})
	}
}

func mustResolve(t *testing.T, fleet *cluster) *Plan {
	t.Helper()
	p, err := Resolve(t.Context(), fleet, machineWith(nil), "h100")
	if err != nil {
		t.Fatal(err)
	}
	return p
}
