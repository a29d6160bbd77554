// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
)

// Options say which server boots, and from what.
type Options struct {
	// Name of the server, for messages.
	Name string
	// UUID of the server, unique among those of the machine.
	UUID string
	// MAC is the hardware address of the server's network interface.
	MAC string
	// Dir is what belongs to the server: config-drive.iso, its config drive; devices.json, if it has accelerators, with
	// their IDs by resource name; hardware.json, the processors and the memory that it shows, by default the machine's; and
	// image, the image that was installed. The disk of the server is in there too, in
	// the sub-directory disk: it is kept while the server is off, and is empty again after another installation.
	// It must be on a file system that can be the upper layer of an overlay.
	Dir string
	// Image is the directory that `make server-image` makes.
	Image string
	// Bridge is the name of the bridge that the server is plugged into.
	Bridge string
	// Address of the server, with the length of its network's prefix, and Gateway are for a server whose config drive has no
	// network data. They may be left out; without any address, such a server asks for one by DHCP.
	Address netip.Prefix
	Gateway netip.Addr
	// ContainerImages is a directory with archives of container images, which the server imports when it boots, as well
	// as those on its disk. May be empty.
	ContainerImages string
}

var uuidForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$`)

// Validate returns every reason why no server could be booted with these options, or nil.
func (o Options) Validate() error {
	var errs []error
	if !uuidForm.MatchString(o.UUID) {
		errs = append(errs, fmt.Errorf("UUID %q of the server is not 1 to 64 letters, digits and dashes: set SERVER_UUID", o.UUID))
	}
	if mac, err := net.ParseMAC(o.MAC); err != nil || len(mac) != 6 {
		errs = append(errs, fmt.Errorf("MAC address %q of the server is none, such as 52:54:00:00:00:01: set SERVER_MAC", o.MAC))
	}
	for what, dir := range map[string]string{
		"directory of the server, SERVER_DIR,": o.Dir, "directory of the server image, --image,": o.Image,
	} {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("the %s is %q: it must be an absolute path", what, dir))
		}
	}
	if o.ContainerImages != "" && !filepath.IsAbs(o.ContainerImages) {
		errs = append(errs, fmt.Errorf("the directory of container images, --container-images, is %q: it must be an absolute path, or empty", o.ContainerImages))
	}
	if o.Bridge == "" {
		errs = append(errs, errors.New("there is no bridge to plug the server into: name one with --bridge"))
	}
	if o.Gateway.IsValid() && !o.Address.IsValid() {
		errs = append(errs, fmt.Errorf("there is a gateway, %s, but no address: set --address too", o.Gateway))
	}
	return errors.Join(errs...)
}

func (o Options) disk(elements ...string) string {
	return filepath.Join(append([]string{o.Dir, "disk"}, elements...)...)
}

// run is where everything is that exists only while the server is on.
func (o Options) run(elements ...string) string {
	return filepath.Join(append([]string{o.Dir, "run"}, elements...)...)
}

func (o Options) configDrive() string { return filepath.Join(o.Dir, "config-drive.iso") }
func (o Options) devices() string     { return filepath.Join(o.Dir, "devices.json") }
func (o Options) hardware() string    { return filepath.Join(o.Dir, "hardware.json") }

// containerID names the container, and its control group.
func (o Options) containerID() string { return "server-" + o.UUID }
