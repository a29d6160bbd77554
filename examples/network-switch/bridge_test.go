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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"

	managers "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/openapi"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	bridgeName = "br0"
	parking    = 5
	tenant     = 100
)

// A vendor is how a test handles the bridges of one kind. Its functions are called in the namespace of the bridge.
type vendor interface {
	// start makes the bridge, and returns what stops it. The error is of the type missing where there can be none.
	start(t *testing.T) (stop func(), err error)
	// plug makes an interface a port. It is as a new one.
	plug(port string) error
	// put has a port in these VLANs alone: true is untagged.
	put(port string, vlans map[uint16]bool) error
	// vlans of a port, each with whether it is untagged.
	vlans(port string) ([]string, error)
}

var vendors = map[string]vendor{"linux": linux{}, "openvswitch": &ovs{}}

// TestBridges: each kind of bridge moves servers, and packets tell where they are.
func TestBridges(t *testing.T) {
	for kind, vendor := range vendors {
		for name, check := range map[string]func(*testing.T, *fixture){
			"ManagerMovesServer": managerMovesServer, "MoveFromAnywhere": moveFromAnywhere, "TaggedFrames": taggedFrames, "NotMoved": notMoved,
		} {
			t.Run(kind+"/"+name, func(t *testing.T) { check(t, newFixture(t, kind, vendor)) })
		}
	}
}

// missing is what this machine has not.
type missing string

func (m missing) Error() string { return string(m) }

// fixture is a switch in a network namespace, with a server that has two ports, and a station each in the parking lot and in the VLAN of
// a tenant.
type fixture struct {
	vendor
	namespace *network.Namespace
	fabric    fabric
	stations  map[string]*network.Station
}

func newFixture(t *testing.T, kind string, vendor vendor) *fixture {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make network namespaces and bridges")
	}
	namespace, err := network.Isolated()
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{vendor: vendor, namespace: namespace, stations: map[string]*network.Station{}}
	var stop func()
	t.Cleanup(func() {
		for _, station := range w.stations {
			if err := station.Close(); err != nil {
				t.Error(err)
			}
		}
		if stop != nil {
			stop()
		}
		if err := namespace.Close(); err != nil {
			t.Error(err)
		}
	})
	err = namespace.Do(func() (err error) {
		if stop, err = vendor.start(t); err == nil {
			w.fabric, err = openFabric(kind, bridgeName)
		}
		return err
	})
	if reason, other := errors.AsType[missing](err); other {
		t.Skipf("%s: `make e2e-metal` runs this test where it can run", reason)
	}
	if err != nil {
		t.Fatal(err)
	}
	for number, name := range []string{"server", "ironic", "pod"} {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(number + 1)}), 24)
		if w.stations[name], err = network.NewStation(namespace, "", name, name, address, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.in(t, func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "server2"
		errs := []error{netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "unplugged"})}
		for _, port := range []string{"server", "server2", "ironic", "pod"} {
			errs = append(errs, vendor.plug(port))
		}
		return errors.Join(errs...)
	})
	for name, vlan := range map[string]uint16{"ironic": parking, "pod": tenant} {
		if _, err := w.fabric.move([]string{name}, vlan); err != nil {
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

// checkVLANs compares the VLANs of a port.
func (w *fixture) checkVLANs(t *testing.T, reason, port string, want ...string) {
	t.Helper()
	w.in(t, func() error {
		got, err := w.vlans(port)
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			t.Errorf("%s: VLANs of port %s (-want +got):\n%s", reason, port, diff)
		}
		return err
	})
}

// checkReached fails if the server does not get answers of these stations, by ping, or gets one of another.
func (w *fixture) checkReached(t *testing.T, when string, stations ...string) {
	t.Helper()
	for _, name := range []string{"ironic", "pod"} {
		want, patience := slices.Contains(stations, name), time.Second // that there is no answer takes a time
		if want {
			patience = poll.Patience()
		}
		ctx, stop := context.WithTimeout(t.Context(), patience)
		answered, err := w.stations["server"].Ask(ctx, "ping", w.stations[name])
		stop()
		if err != nil {
			t.Fatal(err)
		}
		if answered != want {
			t.Errorf("%s, the server has an answer of %s: %t", when, name, answered)
		}
	}
}

// managerMovesServer has the manager's client move a server.
func managerMovesServer(t *testing.T, w *fixture) {
	e := &endpoint{fabric: w.fabric, parking: parking, ports: write(t, "metal3/h1: [server, server2]\n"), token: write(t, "secret\n")}
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
	w.checkReached(t, "never moved")
	for _, step := range []struct {
		network, vlan, reached string
	}{
		{network: "", vlan: "5 untagged:true", reached: "ironic"},
		{network: "vlan:100", vlan: "100 untagged:true", reached: "pod"},
		{network: "vlan:100", vlan: "100 untagged:true", reached: "pod"},
		{network: "", vlan: "5 untagged:true", reached: "ironic"},
	} {
		move := managers.Move{Host: types.NamespacedName{Namespace: "metal3", Name: "h1"}, Network: step.network}
		if err := manager.Move(t.Context(), move); err != nil {
			t.Fatal(err)
		}
		for _, port := range []string{"server", "server2"} {
			w.checkVLANs(t, step.network, port, step.vlan)
		}
		w.checkReached(t, fmt.Sprintf("in network %q", step.network), step.reached)
	}
	err = manager.Move(t.Context(), managers.Move{Host: types.NamespacedName{Namespace: "metal3", Name: "h1"}, Network: "id:blue"})
	if err == nil || !strings.Contains(err.Error(), "this switch knows VLANs and no other networks") {
		t.Errorf("the manager says %v", err)
	}
}

// moveFromAnywhere: a crash, or an administrator, may have left a port in any VLANs.
func moveFromAnywhere(t *testing.T, w *fixture) {
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
			w.in(t, func() error { return w.put("server", tc.before) })
			changed, err := w.fabric.move([]string{"server"}, tenant)
			if err != nil || changed != tc.changed {
				t.Errorf("%s: changed is %t (%v), want %t", tc.reason, changed, err, tc.changed)
			}
			w.checkVLANs(t, tc.reason, "server", "100 untagged:true")
		})
	}
}

// taggedFrames: root on a server can send frames with the tag of any VLAN.
func taggedFrames(t *testing.T, w *fixture) {
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
	w.in(t, func() error { return w.put("server", map[uint16]bool{parking: false}) })
	for _, step := range []struct {
		message, reason string
		arrives         bool
	}{
		{message: "trunk", arrives: true, reason: "the port is in the VLAN of the tag, so the test can see such a frame"},
		{message: "tenant's", reason: "a tenant's server would be in the provisioning network"},
	} {
		if !step.arrives {
			if _, err := w.fabric.move([]string{"server"}, tenant); err != nil {
				t.Fatal(err)
			}
		}
		arrived := false
		patience := 2 * time.Second
		if step.arrives {
			patience = poll.Patience()
		}
		ctx, stop := context.WithTimeout(t.Context(), patience)
		for ctx.Err() == nil && !arrived {
			if _, err := sender.WriteTo([]byte(step.message), &net.UDPAddr{IP: net.IPv4(198, 51, 100, 2), Port: 4000}); err != nil {
				t.Fatal(err)
			}
			if err := listener.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			content := make([]byte, 100)
			count, _, err := listener.ReadFrom(content)
			arrived = err == nil && string(content[:count]) == step.message
		}
		stop()
		if arrived != step.arrives {
			t.Errorf("%s: a frame with the tag of VLAN %d, of the port %q, arrived: %t", step.reason, parking, step.message, arrived)
		}
	}
}

// notMoved: nothing is changed, and nothing confirmed, if a port cannot be moved.
func notMoved(t *testing.T, w *fixture) {
	if _, err := w.fabric.move([]string{"server"}, parking); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason, problem string
		ports           []string
	}{
		"Missing":   {reason: "a cable is not plugged in", ports: []string{"server", "p9"}, problem: "p9"},
		"Elsewhere": {reason: "an interface of the switch itself", ports: []string{"server", "lo"}, problem: "lo"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.fabric.move(tc.ports, tenant); err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
			}
			w.checkVLANs(t, tc.reason, "server", "5 untagged:true")
		})
	}
}
