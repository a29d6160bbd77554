// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
)

// TestServerOfFamilies: a server without an IPv4 address joins by an IPv6 one, and a server with both says so. Their pods have the
// same families, and are reached by each.
func TestServerOfFamilies(t *testing.T) {
	const pods4, services4, pods6, services6 = "10.244.0.0/16", "10.96.0.0/16", "fd00:10:244::/56", "fd00:10:96::/112"
	ipv6 := netip.MustParsePrefix(fmt.Sprintf("fd00:10:213:%x::1/64", os.Getpid()&0xffff))
	for name, tc := range map[string]struct {
		address        netip.Prefix
		pods, services string
		dualStack      bool
	}{
		"IPv6":      {address: ipv6, pods: pods6, services: services6},
		"DualStack": {address: ipv4Network(), pods: pods4 + "," + pods6, services: services4 + "," + services6, dualStack: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newClusterFixture(t, tc.address)
			want, user, networkData := []string{w.network.Server(9).Addr().String()}, document, []byte(nil)
			if tc.dualStack {
				var second string
				second, user, networkData = w.dualStack(t, ipv6)
				want = append(want, second)
			}
			w.startCluster(t, cluster.Options{PodCIDR: tc.pods, ServiceCIDR: tc.services})
			w.install(t, w.joinData(t, v1alpha1.JoinKubeadm, w.endpoint(), user), networkData)

			server := w.turnOn(t, container)
			node := w.untilNodeReady(t, w.Client)
			if diff := cmp.Diff(want, addressesOf(node)); diff != "" {
				t.Errorf("addresses of the Node, -want +got:\n%s", diff)
			}
			if len(node.Spec.PodCIDRs) != len(want) {
				t.Errorf("the Node has the pod networks %v, want %d", node.Spec.PodCIDRs, len(want))
			}

			w.createPod(t, w.Client, "work", workload(oneGPU))
			w.untilPodRuns(t, "work")
			w.checkLog(t, "work")
			pod, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "work", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(pod.Status.PodIPs) != len(want) {
				t.Errorf("the pod has the addresses %v, want %d", pod.Status.PodIPs, len(want))
			}
			for i, address := range pod.Status.PodIPs {
				if err := w.network.Route(netip.MustParsePrefix(node.Spec.PodCIDRs[i]), netip.MustParseAddr(want[i])); err != nil {
					t.Fatal(err)
				}
				w.until(t, "the pod to be reached at "+address.IP, func(ctx context.Context) error { return reached(ctx, address.IP) })
			}
			w.turnOff(t, server)
		})
	}
}

// dualStack has the server get an address of a second network, too, as the example has it. It returns the address, and a
// document of the user data and network data with it.
func (w *clusterFixture) dualStack(t *testing.T, network netip.Prefix) (address, document string, networkData []byte) {
	t.Helper()
	if err := w.network.Add(network); err != nil {
		t.Fatal(err)
	}
	objects, err := examples.Objects(examples.DualStackFile)
	if err != nil {
		t.Fatal(err)
	}
	prefix, server := strings.TrimSuffix(network.Addr().String(), "1"), w.network.Server(9)
	rendered := func(field string) []byte {
		text, _, err := unstructured.NestedString(objects[0].Object, "spec", field)
		if err != nil {
			t.Fatal(err)
		}
		document, err := bootstrap.Render(bootstrap.Template{Name: field, Text: strings.ReplaceAll(text, "2001:db8::", prefix)}, bootstrap.Values{
			NodeClaim: &v1alpha1.Machine{}, AllocatedIP: server.Addr().String(), PrefixLength: server.Bits(),
			Gateway: w.network.Address.Addr().String(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return document
	}
	networkData, err = bootstrap.ReadNetworkData(rendered("networkDataTemplate"),
		&bmov1alpha1.BareMetalHost{Spec: bmov1alpha1.BareMetalHostSpec{BootMACAddress: serverMAC}})
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddr(prefix + server.Addr().String()).String(), string(rendered("cloudInitTemplate")), networkData
}

// reached connects to a port on which no program listens: the pod's kernel says so.
func reached(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(address, "9"))
	if err == nil {
		return connection.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return err
}
