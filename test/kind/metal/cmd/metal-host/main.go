// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command metal-host is the first program of the containers beside kind clusters: Metal3 of a management cluster, and the rack whose
// servers boot as containers in the network of kind. Package metal, test/kind/metal, starts these containers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 && args[0] == "metal3" {
		return metal3(ctx, args[1:])
	}
	if len(args) > 1 && args[0] == "rack" {
		return rack(args[1:])
	}
	return errors.New("usage: metal-host metal3 FLAGS, or metal-host rack PROGRAM ARGUMENTS")
}

// metal3 runs Ironic and baremetal-operator, and writes what servers can install once both work.
func metal3(ctx context.Context, args []string) error {
	start := time.Now()
	config := stack.Config{
		// Servers that are containers boot within seconds, and the tests of failures wait for these.
		AgentTimeout: time.Minute, PowerTimeout: 20 * time.Second,
		Progress: func(format string, args ...any) {
			fmt.Printf("%5.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		},
	}
	flags := flag.NewFlagSet("metal-host metal3", flag.ContinueOnError)
	flags.StringVar(&config.Management, "kubeconfig", "", "of an administrator of the management cluster")
	flags.StringVar(&config.Bin, "bin", "", "the directory of the programs")
	flags.StringVar(&config.Dir, "dir", "", "the directory for data and logs")
	flags.StringVar(&config.Host, "host", "", "the name at which the rack reaches this container")
	ready := flags.String("ready", "", "the file that is written when all works, with the image that servers can install")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := stack.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the container ends, and all processes in it
	encoded, err := json.Marshal(s.Media.Add("linux.qcow2", []byte("the disk image of the kind clusters\n")))
	if err != nil {
		return err
	}
	if err := os.WriteFile(*ready+".new", encoded, 0o644); err != nil {
		return err
	}
	if err := os.Rename(*ready+".new", *ready); err != nil {
		return err
	}
	running, done := s.Context(ctx)
	defer done()
	<-running.Done()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(running)
}

// rack makes the container a place where servers can boot, and becomes the rack.
func rack(command []string) error {
	if err := leaveTop("/sys/fs/cgroup"); err != nil {
		return fmt.Errorf("making room for the control groups of servers, %w", err)
	}
	if err := bridgeTo("eth0"); err != nil {
		return fmt.Errorf("bridging servers to the network of the container, %w", err)
	}
	path, err := filepath.Abs(command[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("starting %s, %w", path, syscall.Exec(path, command, os.Environ()))
}
