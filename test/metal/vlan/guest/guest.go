// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guest is what the virtual machine of package vlan and its test say to each other.
package guest

// Where things are in the virtual machine, and where it listens.
const (
	// Bridge is the name of the switch's bridge.
	Bridge = "br0"
	// File has the Description, as JSON.
	File = "/lab.json"
	// Switch is the program of the switch, and Tests is that of its tests.
	Switch, Tests = "/network-switch", "/examples/network-switch/network-switch.test"
	// Address of the network interface, which is the only one that the emulator forwards to.
	Address = "10.0.2.15/24"
	// SwitchPort is where the switch listens, and LabPort where the lab does.
	SwitchPort, LabPort = 8443, 80
)

// A Station is what is plugged into a port of the switch.
type Station struct {
	Name, Address, MAC string
	// VLAN of the port. 0 leaves that to the switch, which knows the station as a server of the namespace.
	VLAN uint16
}

// An Answer says whether a station got an answer from another one.
type Answer struct {
	From, To, Protocol string
	Answered           bool
	Error              string `json:",omitempty"`
}

// A Description is what the program in the virtual machine is told.
type Description struct {
	Stations []Station
	// Switch are the arguments of the switch.
	Switch []string
}
