// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	managers "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/openapi"
)

const (
	bridgeName = "br0"
	parking    = 5
	tenant     = 100
)

// fixture is a switch in a network namespace, with a server that has two ports, and a station each in the parking lot and in the VLAN of
// a tenant.
type fixture struct {
	namespace *network.Namespace
	bridge    *bridge
	stations  map[string]*network.Station
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make network namespaces and bridges")
	}
	namespace, err := network.Isolated()
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{namespace: namespace, stations: map[string]*network.Station{}}
	t.Cleanup(func() {
		for _, station := range w.stations {
			if err := station.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := namespace.Close(); err != nil {
			t.Error(err)
		}
	})
	err = namespace.Do(func() (err error) {
		if err := network.NewVLANBridge(bridgeName); err != nil {
			return err
		}
		w.bridge, err = openBridge(bridgeName)
		return err
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("bridges of this kernel do not filter VLANs: `make e2e-metal` runs this test on another kernel")
	}
	if err != nil {
		t.Fatal(err)
	}
	for number, name := range []string{"server", "ironic", "pod"} {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(number + 1)}), 24)
		if w.stations[name], err = network.NewStation(namespace, bridgeName, name, name, address, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.in(t, func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "server2"
		second := &netlink.Veth{LinkAttrs: attributes, PeerName: "unplugged"}
		if err := netlink.LinkAdd(second); err != nil {
			return err
		}
		master, err := netlink.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(second, master)
	})
	for name, vlan := range map[string]uint16{"ironic": parking, "pod": tenant} {
		if _, err := w.bridge.move([]string{name}, vlan); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// in calls a function in the namespace of the switch.
func (w *fixture) in(t *testing.T, call func() error) {
	t.Helper()
	if err := w.namespace.Do(call); err != nil {
		t.Fatal(err)
	}
}

// vlans of a port, as the command bridge would print them.
func (w *fixture) vlans(t *testing.T, port string) (vlans []string) {
	t.Helper()
	ports, err := w.bridge.portsOf([]string{port})
	if err != nil {
		t.Fatal(err)
	}
	all, err := w.bridge.vlans()
	if err != nil {
		t.Fatal(err)
	}
	for _, vlan := range all[int32(ports[0].Attrs().Index)] {
		vlans = append(vlans, fmt.Sprintf("%d untagged:%t", vlan.Vid, vlan.Flags == access))
	}
	return vlans
}

// reached are the stations of which the server gets answers, by ping.
func (w *fixture) reached(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range []string{"ironic", "pod"} {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		answered, err := w.stations["server"].Ask(ctx, "ping", w.stations[name])
		stop()
		if err != nil {
			t.Fatal(err)
		}
		if answered {
			names = append(names, name)
		}
	}
	return names
}

// TestManagerMovesServer: the manager's client moves a server, and packets tell where it is.
func TestManagerMovesServer(t *testing.T) {
	w := newFixture(t)
	e := &endpoint{bridge: w.bridge, parking: parking, ports: write(t, "metal3/h1: [server, server2]\n"), token: write(t, "secret\n")}
	var contract *openapi.Document
	server := httptest.NewTLSServer(http.HandlerFunc(func(writer http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		e.handler().ServeHTTP(recorder, r)
		r.URL.Scheme, r.URL.Host = "https", r.Host
		if err := contract.CheckResponse(r, recorder.Code, recorder.Header(), recorder.Body.String()); err != nil {
			t.Errorf("the answer is not of the contract: %v", err)
		}
		for key, values := range recorder.Header() {
			writer.Header()[key] = values
		}
		writer.WriteHeader(recorder.Code)
		_, _ = io.Copy(writer, recorder.Body)
	}))
	defer server.Close()
	contract = openapi.Load(t, document, server.URL)
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"token": []byte("secret"), "ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	manager, err := managers.NewHTTPEndpoint(server.URL, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.reached(t); got != nil {
		t.Errorf("a port that was never moved reaches %v", got)
	}
	for _, step := range []struct {
		network, vlan string
		reached       []string
	}{
		{network: "", vlan: "5 untagged:true", reached: []string{"ironic"}},
		{network: "vlan:100", vlan: "100 untagged:true", reached: []string{"pod"}},
		{network: "vlan:100", vlan: "100 untagged:true", reached: []string{"pod"}},
		{network: "", vlan: "5 untagged:true", reached: []string{"ironic"}},
	} {
		move := managers.Move{Host: types.NamespacedName{Namespace: "metal3", Name: "h1"}, Network: step.network}
		if err := manager.Move(t.Context(), move); err != nil {
			t.Fatal(err)
		}
		for _, port := range []string{"server", "server2"} {
			if diff := cmp.Diff([]string{step.vlan}, w.vlans(t, port)); diff != "" {
				t.Errorf("network %q: VLANs of port %s (-want +got):\n%s", step.network, port, diff)
			}
		}
		if diff := cmp.Diff(step.reached, w.reached(t)); diff != "" {
			t.Errorf("network %q: reached (-want +got):\n%s", step.network, diff)
		}
	}
	err = manager.Move(t.Context(), managers.Move{Host: types.NamespacedName{Namespace: "metal3", Name: "h1"}, Network: "id:blue"})
	if err == nil || !strings.Contains(err.Error(), "this switch knows VLANs and no other networks") {
		t.Errorf("the manager says %v", err)
	}
}

// TestMoveFromAnywhere: a crash, or an administrator, may have left a port in any VLANs.
func TestMoveFromAnywhere(t *testing.T) {
	w := newFixture(t)
	for name, tc := range map[string]struct {
		reason  string
		before  map[uint16]bool
		changed bool
	}{
		"None":    {reason: "a crash between the two networks, or a new port", changed: true},
		"There":   {reason: "the request is repeated", before: map[uint16]bool{tenant: true}},
		"Parking": {reason: "a claim", before: map[uint16]bool{parking: true}, changed: true},
		"Both": {reason: "a trunk would be a way from one to the other", before: map[uint16]bool{parking: false, tenant: true},
			changed: true},
		"Tagged":   {reason: "the server sends untagged frames", before: map[uint16]bool{tenant: false}, changed: true},
		"Trunk":    {reason: "an uplink has become a server's port", before: map[uint16]bool{1: true, 7: false, 8: false}, changed: true},
		"Untagged": {reason: "one VLAN in, another one out", before: map[uint16]bool{parking: true, tenant: false}, changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			ports, err := w.bridge.portsOf([]string{"server"})
			if err != nil {
				t.Fatal(err)
			}
			all, err := w.bridge.vlans()
			if err != nil {
				t.Fatal(err)
			}
			for _, vlan := range all[int32(ports[0].Attrs().Index)] {
				if err := w.bridge.handle.BridgeVlanDel(ports[0], vlan.Vid, false, false, false, true); err != nil {
					t.Fatal(err)
				}
			}
			for vlan, untagged := range tc.before {
				if err := w.bridge.handle.BridgeVlanAdd(ports[0], vlan, untagged, untagged, false, true); err != nil {
					t.Fatal(err)
				}
			}
			changed, err := w.bridge.move([]string{"server"}, tenant)
			if err != nil || changed != tc.changed {
				t.Errorf("%s: changed is %t (%v), want %t", tc.reason, changed, err, tc.changed)
			}
			if diff := cmp.Diff([]string{"100 untagged:true"}, w.vlans(t, "server")); diff != "" {
				t.Errorf("%s: VLANs (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTaggedFrames: root on a server can send frames with the tag of any VLAN.
func TestTaggedFrames(t *testing.T) {
	w := newFixture(t)
	server, ironic := w.stations["server"], w.stations["ironic"]
	var listener, sender net.PacketConn
	var mac net.HardwareAddr
	err := ironic.Do(func() (err error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		mac = link.Attrs().HardwareAddr
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(198, 51, 100, 2))}); err != nil {
			return err
		}
		listener, err = net.ListenPacket("udp", "198.51.100.2:4000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // nothing was written
	err = server.Do(func() (err error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.ParentIndex = "tagged", link.Attrs().Index
		if err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attributes, VlanId: parking}); err != nil {
			return err
		}
		tagged, err := netlink.LinkByName(attributes.Name)
		if err != nil {
			return err
		}
		network := &net.IPNet{IP: net.IPv4(198, 51, 100, 1), Mask: net.CIDRMask(24, 32)}
		if err := errors.Join(netlink.AddrAdd(tagged, &netlink.Addr{IPNet: network}), netlink.LinkSetUp(tagged)); err != nil {
			return err
		}
		// No answer is needed, not even to ARP.
		if err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex: tagged.Attrs().Index, IP: net.IPv4(198, 51, 100, 2), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
		}); err != nil {
			return err
		}
		sender, err = net.ListenPacket("udp", "198.51.100.1:4000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }() // nothing is lost
	for _, step := range []struct {
		vlan    uint16
		arrives bool
		reason  string
	}{
		{vlan: parking, arrives: true, reason: "the port is in the VLAN of the tag, so the test can see such a frame"},
		{vlan: tenant, reason: "a tenant's server would be in the provisioning network"},
	} {
		if _, err := w.bridge.move([]string{"server"}, step.vlan); err != nil {
			t.Fatal(err)
		}
		message, arrived := fmt.Sprintf("in VLAN %d", step.vlan), false
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		for ctx.Err() == nil && !arrived {
			if _, err := sender.WriteTo([]byte(message), &net.UDPAddr{IP: net.IPv4(198, 51, 100, 2), Port: 4000}); err != nil {
				t.Fatal(err)
			}
			if err := listener.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			content := make([]byte, 100)
			count, _, err := listener.ReadFrom(content)
			arrived = err == nil && string(content[:count]) == message
		}
		stop()
		if arrived != step.arrives {
			t.Errorf("%s: a frame with the tag of VLAN %d, of a server in VLAN %d, arrived: %t", step.reason, parking, step.vlan, arrived)
		}
	}
}

// TestNotMoved: nothing is changed, and nothing confirmed, if a port cannot be moved.
func TestNotMoved(t *testing.T) {
	w := newFixture(t)
	for name, tc := range map[string]struct {
		reason, problem string
		ports           []string
	}{
		"Missing":   {reason: "a cable is not plugged in", ports: []string{"server", "p9"}, problem: "finding port p9"},
		"Elsewhere": {reason: "an interface of the switch itself", ports: []string{"server", "lo"}, problem: "lo is no port of bridge br0"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.bridge.move(tc.ports, tenant); err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
			}
			if got := w.vlans(t, "server"); got != nil {
				t.Errorf("%s: the other port was moved: %v", tc.reason, got)
			}
		})
	}
	w.in(t, func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "br1"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
	})
	w.bridge.name = "br1"
	if _, err := w.bridge.move([]string{"server"}, tenant); err == nil || !strings.Contains(err.Error(), "does not filter VLANs") {
		t.Errorf("a bridge that forwards everything confirms a move: %v", err)
	}
	w.in(t, func() error {
		for name, problem := range map[string]string{"br9": "finding bridge br9", "server": "server is no bridge"} {
			if _, err := openBridge(name); err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("bridge %s: got %v, want %q", name, err, problem)
			}
		}
		return nil
	})
}
