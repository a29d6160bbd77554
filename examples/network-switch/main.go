// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command network-switch is a small implementation of the network endpoint of docs/network.md, to read, to try and to start from. Its
// switch is a bridge of Linux with VLAN filtering, or of Open vSwitch. Each server has one or more ports of it.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	address, bridge, kind, ports, token, certificate, key string
	parking                                               uint
}

func main() {
	var o options
	flag.StringVar(&o.address, "bind-address", ":8443", "Address and port to listen on.")
	flag.StringVar(&o.bridge, "bridge", "br0", "Name of the bridge.")
	flag.StringVar(&o.kind, "bridge-type", "linux", "What the bridge is of: linux or openvswitch.")
	flag.UintVar(&o.parking, "parking-vlan", 0, "VLAN of unclaimed servers, which Ironic is in. No tenant gets it.")
	flag.StringVar(&o.ports, "ports", "", "YAML file: for each server, as namespace/name of its BareMetalHost, the list of its ports. "+
		"It is read again for each request.")
	flag.StringVar(&o.token, "token-file", "", "File with the token that requests must have. It is read again for each request.")
	flag.StringVar(&o.certificate, "tls-cert-file", "", "Certificate, PEM.")
	flag.StringVar(&o.key, "tls-private-key-file", "", "Key of the certificate, PEM.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, o options) error {
	if o.parking < 1 || o.parking > maxVLAN {
		return fmt.Errorf("--parking-vlan is %d: a VLAN is a number from 1 to %d", o.parking, maxVLAN)
	}
	certificate, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if err != nil {
		return fmt.Errorf("reading --tls-cert-file and --tls-private-key-file, %w", err)
	}
	fabric, err := openFabric(o.kind, o.bridge)
	if err != nil {
		return err
	}
	e := &endpoint{fabric: fabric, parking: uint16(o.parking), ports: o.ports, token: o.token}
	// What is wrong with the files is said now, and not at the first claim.
	if _, err := e.readToken(); err != nil {
		return err
	}
	servers, err := e.readPorts()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return fmt.Errorf("listening, %w", err)
	}
	log.Printf("%d servers on bridge %s, listening at %s", len(servers), o.bridge, listener.Addr())
	server := &http.Server{
		Handler: e.handler(), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) }) // requests end within the timeouts
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving, %w", err)
	}
	return nil
}

// openFabric opens a bridge, which must be there.
func openFabric(kind, name string) (fabric, error) {
	switch kind {
	case "linux":
		return openBridge(name)
	case "openvswitch":
		return openOpenVSwitch(name)
	}
	return nil, fmt.Errorf("--bridge-type is %q: it must be linux or openvswitch", kind)
}
