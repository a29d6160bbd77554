// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boot has what the programs that boot a server share. A rack of emulated servers runs them as its boot
// command, and passes the server in environment variables and in the server's directory.
package boot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
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
	// Dir has the files of the server: image, the image that was installed, or disk; config-drive.iso, its config drive; and
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

// Disk is the path of the disk of a server that installs itself, sector by sector.
func (s Server) Disk() string { return filepath.Join(s.Dir, "disk") }

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

// Flags returns the flags of a program that boots servers, with usage before their list. The environment identifies the
// server; a variable is the default of the flag that goes with it.
func (s *Server) Flags(program, usage string) *flag.FlagSet {
	s.Name, s.UUID = os.Getenv("SERVER_NAME"), os.Getenv("SERVER_UUID")
	s.MAC, s.Dir = os.Getenv("SERVER_MAC"), os.Getenv("SERVER_DIR")
	s.Name = cmp.Or(s.Name, s.UUID)
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = io.WriteString(flags.Output(), usage) // the error output itself is closed
		flags.PrintDefaults()
	}
	flags.StringVar(&s.Image, "image", os.Getenv("SERVER_IMAGE"), "the `directory` that \"make server-image\" makes; SERVER_IMAGE by default")
	flags.StringVar(&s.Bridge, "bridge", os.Getenv("SERVER_BRIDGE"),
		"the `name` of the bridge that the server is plugged into; SERVER_BRIDGE by default")
	return flags
}

// Parse parses arguments that are flags only. It returns false if help was asked for, and given.
func Parse(flags *flag.FlagSet, args []string) (proceed bool, err error) {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return false, nil
		}
		return false, err
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q: the program takes flags only", flags.Arg(0))
	}
	return true, nil
}

// WriteConfigDrive writes the config drive of a server, by the command with which Ironic makes it: its UUID, its name, its network data
// and its user data. Image is where the command is.
func (s Server) WriteConfigDrive(networkData, userData []byte) error {
	metadata, err := json.Marshal(map[string]string{"uuid": s.UUID, "name": s.Name, "hostname": s.Name})
	if err != nil {
		return err
	}
	drive, err := os.MkdirTemp("", "config-drive")
	if err != nil {
		return fmt.Errorf("making a config drive, %w", err)
	}
	defer func() { _ = os.RemoveAll(drive) }()
	latest := filepath.Join(drive, "openstack", "latest")
	if err := os.MkdirAll(latest, 0o700); err != nil {
		return fmt.Errorf("making a config drive, %w", err)
	}
	for name, content := range map[string][]byte{"meta_data.json": metadata, "network_data.json": networkData, "user_data": userData} {
		if err := os.WriteFile(filepath.Join(latest, name), content, 0o600); err != nil {
			return fmt.Errorf("making a config drive, %w", err)
		}
	}
	program, environment := s.Tool("usr/bin/genisoimage")
	command := exec.Command(program, "-o", s.ConfigDrive(),
		"-ldots", "-allow-lowercase", "-allow-multidot", "-l", "-publisher", "ironic", "-quiet", "-J", "-r", "-V", "config-2", drive)
	command.Env = environment
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("making a config drive, %w: %s", err, output)
	}
	return nil
}
