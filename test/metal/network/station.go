// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// stationPort is the port of TCP and UDP that stations answer on.
	stationPort = 4000
	// tryInterval is the time between two packets that ask for an answer.
	tryInterval = 100 * time.Millisecond
)

// Protocols are what a Station can be asked by.
var Protocols = []string{"ping", "TCP", "UDP"}

// NewVLANBridge makes a bridge that filters VLANs in the namespace of the calling thread, which must be locked to it. New ports are in no
// VLAN.
func NewVLANBridge(name string) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	link := &netlink.Bridge{LinkAttrs: attributes, VlanFiltering: new(true), VlanDefaultPVID: new(uint16(0))}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("making bridge %s, %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up bridge %s, %w", name, err)
	}
	return nil
}

// A Station is a network namespace with one interface, at a port of a bridge that is in another namespace. It answers pings, and tells
// its name by TCP and UDP. It must be closed, and ends with this process in any case.
type Station struct {
	*Namespace
	// Name of the station, which it answers with.
	Name string

	answering []io.Closer
}

// NewStation plugs a station into a bridge of a namespace, by a port of that name. bridge may be empty, for one that is no bridge of the
// kernel: the port is then plugged into it by the caller. mac may be empty, too.
func NewStation(namespace *Namespace, bridge, port, name string, address netip.Prefix, mac string) (*Station, error) {
	n, err := Isolated()
	if err != nil {
		return nil, err
	}
	n.Address = address
	s := &Station{Namespace: n, Name: name}
	err = namespace.Do(func() error { return n.plugIn(bridge, port, mac) })
	if err == nil {
		err = s.Do(func() error { return errors.Join(s.configure(netip.Addr{}), s.answer()) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plugging station %s into bridge %s, %w", name, bridge, err), s.Close())
	}
	return s, nil
}

// answer runs on a thread in the namespace of the station. The goroutines need not: their sockets are.
func (s *Station) answer() error {
	stream, err := net.Listen("tcp", netip.AddrPortFrom(s.Address.Addr(), stationPort).String())
	if err != nil {
		return err
	}
	s.answering = append(s.answering, stream)
	packets, err := net.ListenPacket("udp", netip.AddrPortFrom(s.Address.Addr(), stationPort).String())
	if err != nil {
		return err
	}
	s.answering = append(s.answering, packets)
	go func() {
		for {
			connection, err := stream.Accept()
			if err != nil {
				return // the station is closed
			}
			_, _ = io.WriteString(connection, s.Name) // the other side sees that it is missing
			_ = connection.Close()
		}
	}()
	go func() {
		for {
			_, from, err := packets.ReadFrom(make([]byte, 1))
			if err != nil {
				return // the station is closed
			}
			_, _ = packets.WriteTo([]byte(s.Name), from) // the other side asks again
		}
	}()
	return nil
}

// Ask asks another station by one of the Protocols until it answers or the context ends, which must have a deadline. An error means
// that it could not be tried, or that it was another station that has answered.
func (s *Station) Ask(ctx context.Context, protocol string, other *Station) (answered bool, err error) {
	err = s.Do(func() (err error) {
		switch protocol {
		case "ping":
			answered, err = ping(ctx, other.Address.Addr())
		case "TCP":
			answered, err = other.connect(ctx)
		case "UDP":
			answered, err = other.send(ctx)
		default:
			err = fmt.Errorf("there is no protocol %q", protocol)
		}
		return err
	})
	return answered, err
}

// connect asks the station by TCP, from the namespace of the thread.
func (s *Station) connect(ctx context.Context) (bool, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(s.Address.Addr(), stationPort).String())
	if err != nil {
		return false, nil //nolint:nilerr // it does not answer
	}
	defer func() { _ = connection.Close() }() // nothing is lost
	deadline, _ := ctx.Deadline()
	if err := connection.SetReadDeadline(deadline); err != nil {
		return false, err
	}
	name, err := io.ReadAll(connection)
	if err != nil {
		return false, nil //nolint:nilerr // the connection has ended
	}
	return true, s.check(string(name))
}

// send asks the station by UDP, from the namespace of the thread.
func (s *Station) send(ctx context.Context) (bool, error) {
	socket, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		return false, err
	}
	defer func() { _ = socket.Close() }() // nothing is lost
	answer := make([]byte, 100)
	for ctx.Err() == nil {
		_, _ = socket.WriteTo([]byte{0}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Address.Addr(), stationPort))) // it is sent again
		if err := socket.SetReadDeadline(time.Now().Add(tryInterval)); err != nil {
			return false, err
		}
		if count, _, err := socket.ReadFrom(answer); err == nil {
			return true, s.check(string(answer[:count]))
		}
	}
	return false, nil
}

func (s *Station) check(name string) error {
	if name != s.Name {
		return fmt.Errorf("%s is not %s: it says that it is %q", s.Address, s.Name, name)
	}
	return nil
}

// ping sends ICMP echo requests (RFC 792).
func ping(ctx context.Context, to netip.Addr) (bool, error) {
	socket, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return false, err
	}
	defer func() { _ = socket.Close() }() // nothing is lost
	const request, reply = 8, 0
	id := uint16(time.Now().UnixNano())
	packet := binary.BigEndian.AppendUint16([]byte{request, 0, 0, 0}, id)
	packet = binary.BigEndian.AppendUint16(packet, 1)
	sum := uint32(request)<<8 + uint32(id) + 1
	binary.BigEndian.PutUint16(packet[2:], ^uint16(sum+sum>>16))
	for ctx.Err() == nil {
		_, _ = socket.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()}) // no host may have answered to the packet before
		if err := socket.SetReadDeadline(time.Now().Add(tryInterval)); err != nil {
			return false, err
		}
		for answer := make([]byte, 1500); ; {
			count, from, err := socket.ReadFrom(answer)
			if err != nil {
				break // there is none yet
			}
			if from.String() == to.String() && count >= len(packet) && answer[0] == reply && binary.BigEndian.Uint16(answer[4:]) == id {
				return true, nil
			}
		}
	}
	return false, nil
}

// Close ends the station, and removes its port.
func (s *Station) Close() error {
	var errs []error
	for _, closer := range s.answering {
		errs = append(errs, closer.Close())
	}
	return errors.Join(append(errs, s.Namespace.Close())...)
}
