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
	advertised := &advertisement{directory: directory, devices: devices, failed: make(chan error)}
	defer advertised.withdraw()
	if err := advertised.renew(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watching for the kubelet, %w", err)
		case err := <-advertised.failed:
			return err
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

// advertisement are the plugins of all resources.
type advertisement struct {
	directory string
	devices   inventory
	// kubelet is the socket of the kubelet that the plugins register with, nil if there was none yet.
	kubelet os.FileInfo
	plugins []*plugin
	// failed gets the errors of plugins that could not register.
	failed chan error
}

// renew has all resources registered with the kubelet of this moment, unless they are already. A socket that is left over from a power cut
// does no harm: the plugins wait until the kubelet listens, and a kubelet that starts makes another socket.
func (a *advertisement) renew(ctx context.Context) error {
	kubelet, err := os.Stat(filepath.Join(a.directory, kubeletSocket))
	if os.IsNotExist(err) {
		return nil // it has not started yet, or is starting again
	}
	if err != nil {
		return fmt.Errorf("looking for the kubelet, %w", err)
	}
	// The inode of a removed socket may be used again.
	if a.kubelet != nil && os.SameFile(a.kubelet, kubelet) && a.kubelet.ModTime().Equal(kubelet.ModTime()) {
		return nil
	}
	a.withdraw()
	a.kubelet = kubelet
	for resource, ids := range a.devices {
		p, err := start(ctx, a.directory, resource, ids, a.failed)
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
