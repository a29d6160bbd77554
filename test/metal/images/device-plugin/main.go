// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command device-plugin advertises the devices of an inventory file to the kubelet of the server that it runs on, by the
// kubelet's own protocol for device plugins: what a vendor's plugin does with the accelerators that it finds. Containers
// that are given devices find their IDs in the environment variable VISIBLE_DEVICES.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubeletSocket is where the kubelet listens, in its directory for device plugins.
var kubeletSocket = filepath.Base(deviceplugin.KubeletSocket)

func main() {
	path := flag.String("inventory", "/etc/server/devices.json",
		"the file with the devices: a JSON object of resource names with lists of device IDs")
	directory := flag.String("directory", deviceplugin.DevicePluginPath, "the kubelet's directory for device plugins")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *path, *directory); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run advertises the devices until the context ends, also to a kubelet that starts later or restarts.
func run(ctx context.Context, path, directory string) error {
	devices, err := readInventory(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return fmt.Errorf("making the kubelet's directory, %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching for the kubelet, %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(directory); err != nil {
		return fmt.Errorf("watching for the kubelet, %w", err)
	}
	advertised := &advertisement{directory: directory, devices: devices}
	defer advertised.withdraw()
	if kubeletListens(directory) {
		if err := advertised.renew(ctx); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watching for the kubelet, %w", err)
		case event := <-watcher.Events:
			// A kubelet that starts drops all plugins and removes their sockets.
			if event.Has(fsnotify.Create) && filepath.Base(event.Name) == kubeletSocket {
				if err := advertised.renew(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// kubeletListens returns whether a kubelet runs. Its socket may be left over from a power cut.
func kubeletListens(directory string) bool {
	connection, err := net.Dial("unix", filepath.Join(directory, kubeletSocket))
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// advertisement are the plugins of all resources.
type advertisement struct {
	directory string
	devices   inventory
	plugins   []*plugin
}

// renew registers all resources with the kubelet. It is not an error if the context ends meanwhile.
func (a *advertisement) renew(ctx context.Context) error {
	a.withdraw()
	for resource, ids := range a.devices {
		p, err := start(ctx, a.directory, resource, ids)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		a.plugins = append(a.plugins, p)
	}
	return nil
}

func (a *advertisement) withdraw() {
	for _, p := range a.plugins {
		p.stop()
	}
	a.plugins = nil
}
