// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"

	"github.com/vishvananda/netlink"
)

// A Server identifies a server, and says where its files are.
type Server struct {
	// Name of the server, for messages.
	Name string
	// UUID of the server, unique among those of the machine.
	UUID string
	// MAC is the hardware address of the server's network interface.
	MAC string
	// Dir has the files of the server: image, the image that was installed; config-drive.iso, its config drive; and
	// devices.json, the IDs of its accelerators by resource name, if it has any.
	Dir string
	// Image is the directory that `make server-image` makes.
	Image string
	// Bridge is the name of the bridge that the server is plugged into.
	Bridge string
}

var uuidForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$`)

// Validate returns everything that is wrong with the fields, or nil.
func (s Server) Validate() error {
	var errs []error
	if !uuidForm.MatchString(s.UUID) {
		errs = append(errs, fmt.Errorf("UUID %q of the server is not 1 to 64 letters, digits and dashes: set SERVER_UUID", s.UUID))
	}
	if mac, err := net.ParseMAC(s.MAC); err != nil || len(mac) != 6 {
		errs = append(errs, fmt.Errorf("MAC address %q of the server is not valid, such as 52:54:00:00:00:01: set SERVER_MAC", s.MAC))
	}
	for what, dir := range map[string]string{
		"directory of the server, SERVER_DIR,": s.Dir, "directory of the server image, --image,": s.Image,
	} {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("the %s is %q: it must be an absolute path", what, dir))
		}
	}
	if s.Bridge == "" {
		errs = append(errs, errors.New("there is no bridge to plug the server into: name one with --bridge"))
	}
	return errors.Join(errs...)
}

// Check returns every reason why this machine cannot boot the server, as a container or a virtual machine, or nil.
func (s Server) Check() error {
	var errs []error
	if _, err := os.Stat(s.Dir); err != nil {
		errs = append(errs, fmt.Errorf("the directory of the server is not there: %w", err))
	}
	if _, err := netlink.LinkByName(s.Bridge); err != nil {
		errs = append(errs, fmt.Errorf("bridge %s is not there: %w", s.Bridge, err))
	}
	return errors.Join(errs...)
}

// Link is the name of the interface by which the server is plugged into the bridge.
func (s Server) Link() string {
	sum := sha256.Sum256([]byte(s.UUID))
	return "server" + hex.EncodeToString(sum[:4])
}

// InstalledImage is the path of the image that was installed.
func (s Server) InstalledImage() string { return filepath.Join(s.Dir, "image") }

// ConfigDrive is the path of the config drive.
func (s Server) ConfigDrive() string { return filepath.Join(s.Dir, "config-drive.iso") }

// Devices is the path of the list of accelerators.
func (s Server) Devices() string { return filepath.Join(s.Dir, "devices.json") }

// Tool returns the path of a program that was unpacked for servers, not installed, and the environment that it needs to
// find its libraries.
func (s Server) Tool(path string) (program string, environment []string) {
	tools := filepath.Join(s.Image, "tools")
	libraries := filepath.Join(tools, "usr/lib/x86_64-linux-gnu") + ":" + filepath.Join(tools, "lib/x86_64-linux-gnu")
	return filepath.Join(tools, path), []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=" + libraries}
}
