// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	endpoint "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ironic"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// redNetwork is the network of the tenant red, and what is told of where a request comes from.
var redNetwork = fmt.Sprintf("vlan:%d", redVLAN)

// twoNetworks are the provisioning network, which is the parking lot, and that of a tenant. The server is plugged into one of them: this
// is the manager's network endpoint, and the guard that docs/network.md asks for: from a network, agents look up only what is in it.
type twoNetworks struct {
	w      *stackFixture
	server scenario.Server
	red    *network.Bridge

	lock sync.Mutex
	// in is the network that the server is in.
	in string
	// moves are what the server was at each move, and asked how many requests of agents came from where and what became of them.
	moves []string
	asked map[string]int
}

// startNetworks makes the tenant's network, and adds to the configuration what boots servers there, and who moves them.
func (w *stackFixture) startNetworks(t *testing.T, server scenario.Server, config *stack.Config) {
	t.Helper()
	address := w.network.Address.Addr().As4()
	address[1] += 16 // the networks of other tests are below
	n := &twoNetworks{w: w, server: server, asked: map[string]int{}}
	var err error
	if n.red, err = network.New(fmt.Sprintf("red%d", os.Getpid()), netip.PrefixFrom(netip.AddrFrom4(address), 24)); err != nil {
		t.Fatal(err)
	}
	w.links = append(w.links, n.red.Name)
	t.Cleanup(func() {
		if err := n.red.Close(); err != nil {
			t.Error(err)
		}
	})
	moves := httptest.NewServer(http.HandlerFunc(n.move))
	t.Cleanup(moves.Close)
	w.networks, config.Guard = n, n.guard
	config.ManagerFlags = append(config.ManagerFlags, "--network-endpoint="+moves.URL+"/v1")
	for _, bridge := range []*network.Bridge{w.network, n.red} {
		config.Provisioning = append(config.Provisioning, ironic.Provisioning{
			// Far from the addresses of servers that are installed.
			Interface: bridge.Name, First: bridge.Server(199).Addr(), Last: bridge.Server(249).Addr(),
		})
	}
}

// move plugs the server into a network at its next boot, and remembers what it was.
func (n *twoNetworks) move(w http.ResponseWriter, r *http.Request) {
	var move endpoint.Move
	err := json.NewDecoder(r.Body).Decode(&move)
	host, failed := n.w.Host(r.Context(), path.Base(r.URL.Path))
	bridge := map[string]string{endpoint.ParkingLot: n.w.network.Name, redNetwork: n.red.Name}[move.Network]
	if err = errors.Join(err, failed); err == nil && bridge != "" {
		_, err = n.w.writeBoot(virtualMachine, bridge)
	}
	if err != nil || bridge == "" {
		http.Error(w, fmt.Sprintf("network %q, %v", move.Network, err), http.StatusUnprocessableEntity)
		return
	}
	power := "off"
	if _, err := netlink.LinkByName(boot.Server{UUID: n.server.UUID}.Link()); err == nil {
		power = "on"
	}
	n.lock.Lock()
	defer n.lock.Unlock()
	n.in = move.Network
	n.moves = append(n.moves, fmt.Sprintf("to %q: %s, %s, image %t", move.Network, host.Status.Provisioning.State, power,
		host.Spec.Image != nil))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"network": move.Network}) // it is asked again
}

// guard passes to Ironic what agents need: lookups of servers that are in the network that the request comes from, and heartbeats, which
// have the token that the lookup was answered with.
func (n *twoNetworks) guard(ironic http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := endpoint.ParkingLot
		if client, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && n.red.Address.Masked().Contains(client.Addr().Unmap()) {
			from = redNetwork
		}
		n.lock.Lock()
		passes := strings.HasPrefix(r.URL.Path, "/v1/heartbeat/") || r.URL.Path == "/v1/lookup" && r.URL.Query().Get("node_uuid") == "" &&
			n.in == from && r.URL.Query().Get("addresses") == n.server.Hardware.NICs[0].MAC
		what := strings.Split(r.URL.Path+"//", "/")[2]
		if !passes {
			what += ", refused"
		}
		n.asked[fmt.Sprintf("%s from %q", what, from)]++
		n.lock.Unlock()
		if passes {
			ironic.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

func (n *twoNetworks) requests() map[string]int {
	n.lock.Lock()
	defer n.lock.Unlock()
	return maps.Clone(n.asked)
}

// checkReleaseIsNotForged has a tenant give back a server while another machine in its network says that it is the agent of that server.
func (w *stackFixture) checkReleaseIsNotForged(t *testing.T) {
	t.Helper()
	n := w.networks
	w.create(t, w.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red"}})
	cluster := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "red"}}
	cluster.Spec.APIServerEndpoint = "192.0.2.254:6443" // nothing joins
	cluster.Spec.Network = &v1alpha1.TenantNetwork{VLAN: new(int32(redVLAN))}
	cluster.Spec.StandAloneMachines = v1alpha1.StandAloneAllowed
	w.create(t, w.Client, cluster)
	machine := newMachine("of-red", nodeTypeName, nil)
	machine.Namespace = cluster.Namespace
	w.create(t, w.Client, machine)
	w.untilPhase(t, machine.Name, v1alpha1.MachineProvisioned)
	device := filepath.Join(w.dir, "servers", n.server.Name, disk.DeviceFile)
	if found, err := readDevice(device, "\x55\xaa"); err != nil || found.used == 0 {
		t.Fatalf("the server is installed, and its disk has %d bytes, %v", found.used, err)
	}
	w.logf("the server is installed in the tenant's network; requests of agents: %v", n.requests())
	host, err := w.Host(t.Context(), n.server.Name)
	if err != nil {
		t.Fatal(err)
	}

	w.logf("== another machine in that network asks for commands for the server, and the Machine is deleted")
	before := n.requests()
	forger := n.forge(t, host.Status.Provisioning.ID)
	inRed, inParking := watchConnections(t, n.red), watchConnections(t, w.network)
	leases := w.leases(t)
	if err := w.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.until(t, "the Machine to be gone", func(context.Context) error {
		if asked := forger.commands.Load(); asked > 0 {
			t.Fatalf("Ironic has asked the machine in the tenant's network %d times; agents: %v; moves: %v", asked, n.requests(), n.moves)
		}
		if machine, err := look[*v1alpha1.Machine](w.journal, machine.Name); err == nil {
			return errors.New(string(machine.Status.Phase))
		}
		return nil
	})
	w.untilAvailable(t, n.server.Name)
	if diff := cmp.Diff([]string{`to "vlan:100": available, off, image false`, `to "": provisioned, off, image true`}, n.moves); diff != "" {
		t.Errorf("the moves of the server (-want +got):\n%s", diff)
	}
	if host, err = w.Host(t.Context(), n.server.Name); err != nil || host.Annotations[v1alpha1.LastTenantAnnotationKey] != "" {
		t.Errorf("the server does not count as clean: %v, %v", host.Annotations, err)
	}
	if found, err := readDevice(device, "\x55\xaa"); err != nil || found.used > 0 {
		t.Errorf("the server was cleaned, and %d bytes of its disk are not zero, %v", found.used, err)
	}
	requests := n.requests()
	for what, count := range before {
		requests[what] -= count
	}
	w.logf("during the release: requests of agents %v", requests)
	w.logf("during the release: connections of Ironic to agents in the tenant's network %v, in the cleaning network %v", inRed(), inParking())
	// Lookups pass the guard until the server has left the network. Ironic answers none of them: it does not clean the server yet.
	if requests[fmt.Sprintf("lookup, refused from %q", redNetwork)] == 0 {
		t.Error("no lookup of the machine in the tenant's network was refused: it did not try after the server had left")
	}
	if requests[fmt.Sprintf("heartbeat from %q", redNetwork)] == 0 || requests[`lookup from ""`] == 0 || requests[`heartbeat from ""`] == 0 {
		t.Errorf("the agent in the cleaning network, or the machine in the tenant's network, has not called: %v", requests)
	}
	if found := inRed(); len(found) > 0 {
		t.Errorf("Ironic has connected to %v, in the tenant's network", found)
	}
	if found := inParking(); len(found) != 1 {
		t.Errorf("Ironic has connected to %v, want one agent in the cleaning network", found)
	}
	after := w.leases(t)
	if after[n.red.Name] != leases[n.red.Name] || after[w.network.Name] != leases[w.network.Name]+1 {
		t.Errorf("dnsmasq has given addresses %v, and %v before the release: want one more, in the cleaning network %s", after, leases,
			w.network.Name)
	}
	w.logf("the other machine has looked the server up %d times, sent %d heartbeats, and was never asked", forger.lookups.Load(),
		forger.heartbeats.Load())
}

// leases counts the boots by network, by bridge.
func (w *stackFixture) leases(t *testing.T) map[string]int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(w.dir, "log", "dnsmasq.log"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, bridge := range []string{w.network.Name, w.networks.red.Name} {
		found[bridge] = bytes.Count(log, []byte("DHCPACK("+bridge+")"))
	}
	return found
}

// A forger is a machine in the tenant's network that says that it is the agent of a server.
type forger struct {
	lookups, heartbeats, commands atomic.Int64
}

// forge starts a forger, which ends with the test. It knows Ironic's ID of the server, and its MAC address.
func (n *twoNetworks) forge(t *testing.T, node string) *forger {
	t.Helper()
	namespace, err := n.red.Namespace(fmt.Sprintf("forge%d", os.Getpid()), n.red.Server(65))
	if err != nil {
		t.Fatal(err)
	}
	f := &forger{}
	var listener net.Listener
	if err := namespace.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(namespace.Address.Addr(), 9999).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.commands.Add(1)
		http.NotFound(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, kind, to string) (connection net.Conn, err error) {
			err = namespace.Do(func() error {
				connection, err = (&net.Dialer{}).DialContext(ctx, kind, to)
				return err
			})
			return connection, err
		},
	}}
	ask := func(ctx context.Context, method, path string, body []byte) []byte {
		request, err := http.NewRequestWithContext(ctx, method, n.w.Ironic.URL+path, bytes.NewReader(body))
		if err != nil {
			return nil
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-OpenStack-Ironic-API-Version", "1.68")
		response, err := client.Do(request)
		if err != nil {
			return nil
		}
		defer func() { _ = response.Body.Close() }()
		answer, _ := io.ReadAll(response.Body) // it asks again
		return answer
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(200 * time.Millisecond)
		defer ticks.Stop()
		token := "guessed"
		for {
			var found struct {
				Config struct {
					Token string `json:"agent_token"`
				} `json:"config"`
			}
			query := url.Values{"addresses": {n.server.Hardware.NICs[0].MAC}}
			if json.Unmarshal(ask(ctx, http.MethodGet, "/v1/lookup?"+query.Encode(), nil), &found) == nil && found.Config.Token != "" {
				token = found.Config.Token
			}
			f.lookups.Add(1)
			body, _ := json.Marshal(map[string]string{
				"callback_url": "http://" + listener.Addr().String(), "agent_version": "9.4.0", "agent_token": token,
			})
			ask(ctx, http.MethodPost, "/v1/heartbeat/"+node, body)
			f.heartbeats.Add(1)
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		client.CloseIdleConnections()
		if err := errors.Join(server.Close(), namespace.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// watchConnections looks at what this machine sends into a network, and returns a function with the addresses that it has connected to by
// TCP, and how often: it has no other reason to than Ironic's commands to agents.
func watchConnections(t *testing.T, bridge *network.Bridge) func() map[string]int {
	t.Helper()
	link, err := net.InterfaceByName(bridge.Name)
	if err != nil {
		t.Fatal(err)
	}
	everything := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(everything))
	if err != nil {
		t.Fatal(err)
	}
	timeout := unix.Timeval{Usec: 100_000}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: link.Index}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	if err != nil {
		t.Fatal(errors.Join(err, unix.Close(fd)))
	}
	var lock sync.Mutex
	found := map[string]int{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		packet := make([]byte, 1<<16)
		for ctx.Err() == nil {
			count, from, err := unix.Recvfrom(fd, packet, 0)
			if link, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || link.Pkttype != unix.PACKET_OUTGOING {
				continue // nothing has come
			}
			if to, is := connectionTo(packet[:count]); is {
				lock.Lock()
				found[to.String()]++
				lock.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	})
	return func() map[string]int {
		lock.Lock()
		defer lock.Unlock()
		return maps.Clone(found)
	}
}

// connectionTo returns the destination of an IPv4 packet that begins a TCP connection.
func connectionTo(packet []byte) (netip.Addr, bool) {
	const header, protocol, destination, tcp, flags, syn, ack = 20, 9, 16, 6, 13, 2, 16
	if len(packet) < header || packet[0]>>4 != 4 || packet[protocol] != tcp {
		return netip.Addr{}, false
	}
	start := int(packet[0]&0xf) * 4
	if len(packet) <= start+flags || packet[start+flags]&(syn|ack) != syn {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(packet[destination:][:4])
}

// TestConnectionTo: a reader of packets that sees nothing would find that nobody was asked.
func TestConnectionTo(t *testing.T) {
	packet := func(change func([]byte)) []byte {
		p := make([]byte, 40)
		p[0], p[9], p[33] = 0x45, 6, 2
		copy(p[16:], []byte{192, 0, 2, 66})
		change(p)
		return p
	}
	for name, tc := range map[string]struct {
		reason string
		packet []byte
		want   bool
	}{
		"Begins":   {"Ironic asks an agent", packet(func([]byte) {}), true},
		"Options":  {"the header of the packet is longer", slices.Insert(packet(func(p []byte) { p[0] = 0x46 }), 20, 0, 0, 0, 0), true},
		"Answers":  {"the agent has connected", packet(func(p []byte) { p[33] = 18 }), false},
		"Goes on":  {"it has begun before", packet(func(p []byte) { p[33] = 16 }), false},
		"DHCP":     {"it is UDP", packet(func(p []byte) { p[9] = 17 }), false},
		"IPv6":     {"nothing here has such an address", packet(func(p []byte) { p[0] = 0x60 }), false},
		"Cut":      {"a panic would end the test", packet(func([]byte) {})[:30], false},
		"No bytes": {"a panic would end the test", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			to, is := connectionTo(tc.packet)
			if is != tc.want || is && to.String() != "192.0.2.66" {
				t.Errorf("%s: to %v, %t, want %t", tc.reason, to, is, tc.want)
			}
		})
	}
}
