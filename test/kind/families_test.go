// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
)

// checkFamilies checks that a server and the pod on it have addresses of the same families as the tenant's control plane (KIND_IP_FAMILY),
// in its order, and that the server is reached at each.
func (w *fixture) checkFamilies(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	controlPlanes, node := &corev1.NodeList{}, &corev1.Node{}
	if err := w.tenant.List(t.Context(), controlPlanes, client.HasLabels{"node-role.kubernetes.io/control-plane"}); err != nil {
		t.Fatal(err)
	}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	controlPlane, podIPs := controlPlanes.Items[0], []string{}
	for _, address := range pod.Status.PodIPs {
		podIPs = append(podIPs, address.IP)
	}
	want := familiesOf(t, internalIPs(&controlPlane))
	for what, addresses := range map[string][]string{"server": internalIPs(node), "server's pod network": node.Spec.PodCIDRs, "pod": podIPs} {
		if diff := cmp.Diff(want, familiesOf(t, addresses)); diff != "" {
			t.Errorf("the %s has the addresses %v, and the cluster other families, -want +got:\n%s", what, addresses, diff)
		}
	}
	for _, address := range internalIPs(node) {
		w.until(t, "the kubelet to be reached at "+address, func(ctx context.Context) error {
			_, err := docker.Run(ctx, "exec", controlPlane.Name, "bash", "-c", fmt.Sprintf("true <>/dev/tcp/%s/10250", address))
			return err
		})
	}
	w.logf("server %s is reached at %v, its pod is at %v", node.Name, internalIPs(node), podIPs)
}

func internalIPs(node *corev1.Node) (addresses []string) {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			addresses = append(addresses, address.Address)
		}
	}
	return addresses
}

// familiesOf returns "IPv4" or "IPv6" for each address or network.
func familiesOf(t *testing.T, texts []string) (families []string) {
	t.Helper()
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil {
			address = netip.MustParsePrefix(text).Addr()
		}
		families = append(families, map[bool]string{true: "IPv4", false: "IPv6"}[address.Is4()])
	}
	return families
}
