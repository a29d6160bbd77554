// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipmi is the management controller of an emulated server at the wire of IPMI. OpenIPMI's simulator, one process for each server,
// speaks RMCP+, and executes a program for what concerns power and boot device, which asks the rack.
package ipmi

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
)

// What IPMI 2.0 allows, in bytes.
const (
	MaxUsername = 16
	MaxPassword = 20
)

// Simulator describes the BMC of a server.
type Simulator struct {
	// Program is the path of ipmi_sim.
	Program string
	// Identity has the account, whose user name and password must not be longer than IPMI allows, or have quotes,
	// backslashes or spaces, which the simulator cannot read.
	Identity bmc.Identity
	// Address is the UDP address host:port that it answers at.
	Address string
	// ChassisControl is the command that the simulator executes, with the arguments of Chassis behind it.
	ChassisControl string
	// Dir is where its files go. It is made.
	Dir        string
	Faults     *faults.Set
	Supervisor *process.Supervisor
}

// state is what the faults make of the BMC.
type state struct{ silent, otherPassword bool }

func (s Simulator) wanted() state {
	return state{silent: s.Faults.Has(faults.BMCUnreachable), otherPassword: s.Faults.Has(faults.WrongPassword)}
}

// Run runs the BMC until the context ends. While the server has the fault bmc-unreachable it is silent, as a BMC that hangs, and with
// wrong-password it has another password. The supervisor reports a simulator that ends by itself.
func (s Simulator) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		current := s.wanted()
		stop, err := s.start(current)
		if err != nil {
			return fmt.Errorf("running the BMC of server %s, %w", s.Identity.Name, err)
		}
		for changed := s.Faults.Changed(); ctx.Err() == nil && s.wanted() == current; changed = s.Faults.Changed() {
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
		if err := stop(); err != nil {
			return fmt.Errorf("stopping the BMC of server %s, %w", s.Identity.Name, err)
		}
	}
	return nil
}

// start starts the BMC in a state, and returns what stops it.
func (s Simulator) start(in state) (stop func() error, err error) {
	if in.silent {
		// Nobody reads what arrives.
		socket, err := net.ListenPacket("udp", s.Address)
		if err != nil {
			return nil, err
		}
		return socket.Close, nil
	}
	password := s.Identity.Password
	if in.otherPassword {
		password = rand.Text()[:MaxPassword]
	}
	arguments, err := s.write(password)
	if err != nil {
		return nil, err
	}
	name := "ipmi-" + s.Identity.Name
	if err := s.Supervisor.Start(process.Spec{Name: name, Path: s.Program, Args: arguments}); err != nil {
		return nil, err
	}
	return func() error { return s.Supervisor.Stop(name) }, nil
}

var (
	//go:embed lan.conf.tmpl
	settingsTemplate string
	//go:embed bmc.emu
	controller []byte
)

// write writes the files of the simulator, and returns its arguments. What an earlier one has stored is removed: it would not read its
// settings.
func (s Simulator) write(password string) ([]string, error) {
	settings, commands, stored := filepath.Join(s.Dir, "lan.conf"), filepath.Join(s.Dir, "bmc.emu"), filepath.Join(s.Dir, "state")
	if err := os.RemoveAll(stored); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(stored, 0o700); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New("lan.conf").Parse(settingsTemplate)
	if err != nil {
		return nil, err
	}
	var filled bytes.Buffer
	err = parsed.Execute(&filled, struct {
		Simulator
		Host, Port, GUID, Password string
	}{s, host, port, strings.ReplaceAll(s.Identity.UUID, "-", ""), password})
	if err != nil {
		return nil, err
	}
	for path, content := range map[string][]byte{settings: filled.Bytes(), commands: controller} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, err
		}
	}
	// Without a console.
	return []string{"-n", "-c", settings, "-f", commands, "-s", stored}, nil
}
