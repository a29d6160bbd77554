// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command switch-lab is the first process of the virtual machine of package vlan: it makes the switch's bridge and what is plugged into
// it, starts the switch, and asks the stations for the test.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/initramfs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vlan/guest"
)

// answerTimeout is how long a station waits for an answer.
const answerTimeout = 2 * time.Second

func main() {
	runtime.LockOSThread() // network.NewVLANBridge needs it
	if err := run(); err != nil {
		fmt.Println("error:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // the kernel panics if this process ends, which ends the machine as well
}

func run() error {
	if err := initramfs.Mount(); err != nil {
		return err
	}
	content, err := os.ReadFile(guest.File)
	if err != nil {
		return err
	}
	var described guest.Description
	if err := json.Unmarshal(content, &described); err != nil {
		return err
	}
	if err := configure(); err != nil {
		return fmt.Errorf("configuring the network, %w", err)
	}
	stations, err := plugIn(described.Stations)
	if err != nil {
		return err
	}
	command := exec.Command(guest.Switch, described.Switch...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Start(); err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- fmt.Errorf("the switch has ended, %w", command.Wait()) }()
	go func() { failed <- serve(stations) }()
	return <-failed
}

// configure gives the machine its address.
func configure() error {
	for name, address := range map[string]string{"lo": "127.0.0.1/8", "eth0": guest.Address} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(link, parsed); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return network.NewVLANBridge(guest.Bridge)
}

// plugIn makes the stations. Those with a VLAN are put into it.
func plugIn(described []guest.Station) ([]*network.Station, error) {
	here, err := network.Here()
	if err != nil {
		return nil, err
	}
	var stations []*network.Station
	for _, entry := range described {
		address, err := netip.ParsePrefix(entry.Address)
		if err != nil {
			return nil, err
		}
		station, err := network.NewStation(here, guest.Bridge, entry.Name, entry.Name, address, entry.MAC)
		if err != nil {
			return nil, err
		}
		stations = append(stations, station)
		if entry.VLAN == 0 {
			continue
		}
		port, err := netlink.LinkByName(entry.Name)
		if err != nil {
			return nil, err
		}
		if err := netlink.BridgeVlanAdd(port, entry.VLAN, true, true, false, true); err != nil {
			return nil, fmt.Errorf("putting port %s into VLAN %d, %w", entry.Name, entry.VLAN, err)
		}
	}
	return stations, nil
}

// serve answers the test.
func serve(stations []*network.Station) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // whether it listens is all that is asked
		connection, err := dialer.DialContext(r.Context(), "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(guest.SwitchPort)))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = connection.Close()
	})
	mux.HandleFunc("GET /reach", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(reach(r.Context(), stations)) // the test asks again
	})
	mux.HandleFunc("GET /tests", func(w http.ResponseWriter, r *http.Request) {
		command := exec.CommandContext(r.Context(), guest.Tests, "-test.v")
		command.Dir, command.Env = filepath.Dir(guest.Tests), []string{"PATH=/usr/bin"}
		output, err := command.CombinedOutput()
		fmt.Fprintf(w, "%s\nended with: %v\n", output, err)
	})
	return (&http.Server{Addr: fmt.Sprintf(":%d", guest.LabPort), Handler: mux, ReadHeaderTimeout: time.Minute}).ListenAndServe()
}

// reach asks all at the same time.
func reach(ctx context.Context, stations []*network.Station) []guest.Answer {
	ctx, stop := context.WithTimeout(ctx, answerTimeout)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	var answers []guest.Answer
	for _, from := range stations {
		for _, to := range stations {
			for _, protocol := range network.Protocols {
				if from == to {
					continue
				}
				all.Go(func() {
					answered, err := from.Ask(ctx, protocol, to)
					answer := guest.Answer{From: from.Name, To: to.Name, Protocol: protocol, Answered: answered}
					if err != nil {
						answer.Error = err.Error()
					}
					mu.Lock()
					defer mu.Unlock()
					answers = append(answers, answer)
				})
			}
		}
	}
	all.Wait()
	return answers
}
