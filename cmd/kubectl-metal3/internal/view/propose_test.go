// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestProposedTypes(t *testing.T) {
	// A server is "name product GiB label=value ...". 0 GiB was not inspected.
	for name, tc := range map[string]struct {
		reason  string
		servers []string
		// want is "name memory servers labels shared".
		want        []string
		uninspected []string
	}{
		"none": {reason: "all match the type", servers: []string{"a R650 64 type=known"}},
		"label": {reason: "one label tells them, of those that tell them the first",
			servers: []string{"a R650 64 type=new owner=me", "b R650 64 owner=me type=new", "c R650 64 type=known"},
			want:    []string{"r650-8cpu-64gi 64Gi [a b] map[owner:me] map[type:new]"}},
		"labels": {reason: "only two together tell them", servers: []string{"a R650 64 gpu=h100 count=8", "b R650 64 type=known gpu=h100 count=4",
			"c R650 64 type=known gpu=a100 count=8"}, want: []string{"r650-8cpu-64gi 64Gi [a] map[count:8 gpu:h100] map[]"}},
		"place": {reason: "a rack says nothing about hardware", servers: []string{"a R650 64 rack=r1 x=y", "b R650 64 type=known rack=r2 x=y"},
			want: []string{"r650-8cpu-64gi 64Gi [a] unlabelled map[hardware:r650-8cpu-64gi] map[x:y]"}},
		"no label": {reason: "another key than one that is in use", servers: []string{"a R650 64 hardware=x", "b R650 64 hardware=y"},
			want: []string{"r650-8cpu-64gi 64Gi [a b] unlabelled map[hardware-2:r650-8cpu-64gi] map[]"}},
		"products": {reason: "other hardware is another type, also with a label in common", servers: []string{"a R650 64 t=x", "b R750  64 t=x"},
			want: []string{"r650-8cpu-64gi 64Gi [a] unlabelled map[hardware:r650-8cpu-64gi] map[t:x]",
				"r750-8cpu-64gi 64Gi [b] unlabelled map[hardware:r750-8cpu-64gi] map[t:x]"}},
		"memory": {reason: "as little less as the manager accepts is the same type, with the least of them",
			servers: []string{"a R650 64 t=x", "b R650 63 t=x", "c R650 128 t=y"},
			want:    []string{"r650-8cpu-128gi 128Gi [c] map[t:y] map[]", "r650-8cpu-63gi 63Gi [a b] map[t:x] map[]"}},
		"names": {reason: "the name of a type is free, and one of an object",
			servers: []string{"a Known 64 t=x", "b PowerEdge/(R)_ 64 t=y", "c - 64 t=z"},
			want: []string{"known-8cpu-64gi-2 64Gi [a] map[t:x] map[]", "poweredge-r-8cpu-64gi 64Gi [b] map[t:y] map[]",
				"server-8cpu-64gi 64Gi [c] map[t:z] map[]"}},
		"uninspected": {reason: "nothing is known of it", servers: []string{"a R650 0 t=x", "b R650 64 t=y"},
			want: []string{"r650-8cpu-64gi 64Gi [b] map[t:y] map[]"}, uninspected: []string{"metal3-system/a"}},
		"others": {reason: "servers of others have another purpose, and labels", servers: []string{"a R650 64 t=x used=y", "b R650 64 t=x"},
			want: []string{"r650-8cpu-64gi 64Gi [b] unlabelled map[hardware:r650-8cpu-64gi] map[t:x]"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{}
			provider := v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal3-provider", UID: "metal3-provider"}}
			provider.Spec.Metal3.ClusterRef.Namespace = "metal3-system"
			known := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "known-8cpu-64gi", OwnerReferences: env.MadeBy("metal3-provider")}}
			known.Spec.ProviderRef.Name = provider.Name
			known.Spec.BareMetalHosts = env.HostsWith(map[string]string{"type": "known"})
			provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: known.Name}}
			s.Management.NodeProviders, s.Management.NodeTypes = []v1alpha1.NodeProvider{provider}, []v1alpha1.NodeType{known}
			for _, server := range tc.servers {
				words := strings.Fields(server)
				labels := map[string]string{}
				for _, pair := range words[3:] {
					key, value, _ := strings.Cut(pair, "=")
					labels[key] = value
				}
				host := env.AvailableHost("metal3-system", words[0], labels)
				details := host.Status.HardwareDetails
				details.CPU.Count, details.SystemVendor.ProductName = 8, strings.Trim(words[1], "-")
				if _, err := fmt.Sscan(words[2], &details.RAMMebibytes); err != nil {
					t.Fatal(err)
				}
				details.RAMMebibytes <<= 10
				if labels["used"] != "" {
					host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine",
						Namespace: "capm3", Name: "worker-0"}
				}
				trimHost(host)
				s.Management.Hosts = append(s.Management.Hosts, *host)
			}
			proposed, uninspected := New(s).ProposedTypes()
			var got []string
			for _, proposal := range proposed {
				unlabelled := ""
				if proposal.Unlabelled {
					unlabelled = "unlabelled "
				}
				got = append(got, fmt.Sprintf("%s %s %v %s%v %v", proposal.Name, proposal.Memory, proposal.Servers, unlabelled, proposal.Labels,
					proposal.Shared))
				if len(proposal.Providers) != 1 || proposal.Providers[0].Name != "metal3-provider" {
					t.Errorf("the NodeProviders are %v", proposal.Providers)
				}
			}
			if diff := cmp.Diff([][]string{tc.want, tc.uninspected}, [][]string{got, uninspected}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
