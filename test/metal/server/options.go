// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

// Options of a boot.
type Options struct {
	// Server to boot. Its directory may have hardware.json, the processors and the memory that it reports, by default
	// the machine's. Its disk is the sub-directory disk, which a new installation empties. The directory must be on a
	// file system that can be the upper layer of an overlay.
	boot.Server
	// Address of the server, with the length of its network's prefix, and Gateway are for a server whose config drive has no
	// network data. They may be left out; without any address, such a server asks for one by DHCP.
	Address netip.Prefix
	Gateway netip.Addr
	// ContainerImages is a directory with archives of container images, which the server imports when it boots, as well
	// as those on its disk. May be empty.
	ContainerImages string
}

// Validate returns everything that is wrong with the options, or nil.
func (o Options) Validate() error {
	errs := []error{o.Server.Validate()}
	if o.ContainerImages != "" && !filepath.IsAbs(o.ContainerImages) {
		errs = append(errs, fmt.Errorf("the directory of container images, --container-images, is %q: it must be an absolute path, or empty",
			o.ContainerImages))
	}
	if o.Gateway.IsValid() && !o.Address.IsValid() {
		errs = append(errs, fmt.Errorf("there is a gateway, %s, but no address: set --address too", o.Gateway))
	}
	return errors.Join(errs...)
}

func (o Options) disk(elements ...string) string {
	return filepath.Join(append([]string{o.Dir, "disk"}, elements...)...)
}

// run is the directory of the files that exist only while the server is on.
func (o Options) run(elements ...string) string {
	return filepath.Join(append([]string{o.Dir, "run"}, elements...)...)
}

func (o Options) hardware() string { return filepath.Join(o.Dir, "hardware.json") }

// containerID names the container, and its control group.
func (o Options) containerID() string { return "server-" + o.UUID }
