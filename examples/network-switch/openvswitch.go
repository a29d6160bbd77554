// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// openVSwitch is a bridge of Open vSwitch, by its command ovs-vsctl. What was confirmed is in the switch's database, and survives a reboot.
type openVSwitch struct {
	name string
	// mu lets one move change ports at a time.
	mu sync.Mutex
}

// openOpenVSwitch is given the name of a bridge.
func openOpenVSwitch(name string) (*openVSwitch, error) {
	if _, err := vsctl("list-ports", name); err != nil {
		return nil, fmt.Errorf("finding bridge %s, %w", name, err)
	}
	return &openVSwitch{name: name}, nil
}

// move is that of fabric. All ports are moved in one transaction of the database, and the command returns when the switch has done it.
func (o *openVSwitch) move(names []string, vlan uint16) (changed bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	there, done, err := o.areIn(names, vlan)
	if err == nil && there && !done {
		err = fmt.Errorf("ports %v are in VLAN %d by the database, and the switch has not done yet what that says", names, vlan)
	}
	if err != nil || there {
		return false, err
	}
	var change []string
	for _, name := range names {
		// An access port drops frames that have a tag.
		change = append(change, "--", "set", "Port", name, "vlan_mode=access", fmt.Sprintf("tag=%d", vlan), "--", "clear", "Port", name, "trunks")
	}
	if _, err := vsctl(change...); err != nil {
		return true, fmt.Errorf("putting ports %v into VLAN %d, %w", names, vlan, err)
	}
	return true, nil
}

// areIn returns whether ports are in a VLAN and in no other, by the database, and whether the switch has done all that the database says.
func (o *openVSwitch) areIn(names []string, vlan uint16) (there, done bool, err error) {
	var ask []string
	for _, name := range names {
		ask = append(ask, "port-to-br", name, "--", "get", "Port", name, "vlan_mode", "tag", "trunks", "--")
	}
	answer, err := vsctl(append(ask, "get", "Open_vSwitch", ".", "next_cfg", "cur_cfg")...)
	if err != nil {
		return false, false, fmt.Errorf("reading the VLANs of ports %v, %w", names, err)
	}
	lines := strings.Split(strings.TrimSpace(answer), "\n")
	const each, both = 4, 2
	if len(lines) != each*len(names)+both {
		return false, false, fmt.Errorf("reading the VLANs of ports %v, ovs-vsctl has answered %q", names, answer)
	}
	there = true
	for i, name := range names {
		port := lines[each*i:][:each]
		if port[0] != o.name {
			return false, false, fmt.Errorf("%s is no port of bridge %s", name, o.name)
		}
		there = there && slices.Equal(port[1:], []string{"access", fmt.Sprint(vlan), "[]"})
	}
	return there, lines[len(lines)-both] == lines[len(lines)-1], nil
}

// vsctl runs the command, which would wait without an end for a switch that does not run.
func vsctl(arguments ...string) (string, error) {
	output, err := exec.Command("ovs-vsctl", append([]string{"--timeout=5"}, arguments...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("ovs-vsctl: %w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(output), err
}
