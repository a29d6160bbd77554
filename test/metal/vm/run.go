// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Run boots a server, and returns when it is off: nil if it has turned itself off, or if the context has ended, which
// is as if its power were cut. A server that reboots goes on. output is where its serial console goes. Only the disk of
// the server is left.
func Run(ctx context.Context, o Options, output io.Writer) error {
	for _, check := range []func(Options) error{Options.Validate, Check, checkImage} {
		if err := check(o); err != nil {
			return fmt.Errorf("booting server %s, %w", o.Name, err)
		}
	}
	args, err := arguments(o)
	if err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	tap, err := plugIn(o)
	if err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	err = emulate(ctx, o, args, tap, output)
	if closed := tap.Close(); err == nil && closed != nil {
		err = fmt.Errorf("unplugging it, %w", closed)
	}
	if err != nil {
		return fmt.Errorf("running server %s, %w", o.Name, err)
	}
	return nil
}

// emulate runs the emulator until the server is off.
func emulate(ctx context.Context, o Options, args []string, tap *os.File, output io.Writer) error {
	program, environment := o.emulator()
	// The kernel ends it when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(ctx, program, args...)
	// The environment identifies the processes of a server.
	command.Env, command.Stdout, command.Stderr = append(os.Environ(), environment...), output, output
	command.ExtraFiles = []*os.File{tap}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := command.Run()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("its emulator has failed: %w", err)
	}
	return nil
}

// checkImage makes sure that what was installed can be a disk.
func checkImage(o Options) error {
	if o.Boot != "" {
		if _, err := os.Stat(o.Disk()); err != nil {
			return fmt.Errorf("looking for the disk, %w", err)
		}
		return nil
	}
	image, err := os.Open(o.InstalledImage())
	if err != nil {
		return fmt.Errorf("opening the image that was installed, %w", err)
	}
	defer func() { _ = image.Close() }() // nothing was written
	magic := make([]byte, 4)
	if _, err := io.ReadFull(image, magic); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("reading the image that was installed, %w", err)
	}
	if !bytes.Equal(magic, []byte("QFI\xfb")) {
		return fmt.Errorf("the image that was installed, %s, is not a disk image in the format qcow2, as `make server-disk` makes one",
			o.InstalledImage())
	}
	return nil
}

const tunDevice = "/dev/net/tun"

// openTap makes a tap interface. The kernel chooses its name if the given one is empty. It is removed when all
// descriptors of the file are closed.
func openTap(name string) (*os.File, error) {
	// The ioctl must come before Go's runtime polls the file.
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s, %w", tunDevice, err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a network interface, %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), tunDevice), nil
}

// plugIn makes the server's port of the bridge.
func plugIn(o Options) (*os.File, error) {
	tap, err := openTap(o.Link())
	if err != nil {
		return nil, err
	}
	if err := connect(o); err != nil {
		return nil, errors.Join(fmt.Errorf("plugging the server into bridge %s, %w", o.Bridge, err), tap.Close())
	}
	return tap, nil
}

func connect(o Options) error {
	bridge, err := netlink.LinkByName(o.Bridge)
	if err != nil {
		return err
	}
	port, err := netlink.LinkByName(o.Link())
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(port, bridge); err != nil {
		return err
	}
	return netlink.LinkSetUp(port)
}

// tapFile is the emulator's file descriptor of its network interface: the first after the standard ones.
const tapFile = 3

// arguments returns the emulator's command line.
func arguments(o Options) ([]string, error) {
	_, err := os.Stat(o.ConfigDrive())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for the config drive, %w", err)
	}
	hasDrive := err == nil
	devices, err := os.ReadFile(o.Devices())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the accelerators of the server, %w", err)
	}
	data, _ := o.Tool("usr/share")
	args := []string{
		"-name", escape(o.Name), "-nodefaults", "-no-user-config",
		"-L", data + "/qemu", "-L", data + "/seabios", "-L", filepath.Join(data, "..", "lib", "ipxe", "qemu"),
		// TCG even where the machine has KVM: not every KVM works with every kernel.
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max",
		"-smp", strconv.Itoa(o.CPUs), "-m", strconv.Itoa(o.MemoryMiB),
		"-uuid", o.UUID, "-smbios", "type=1,manufacturer=Acme,product=Virtual server,serial=" + escape(o.Name),
		// Boot loaders need a display.
		"-vga", "std", "-display", "none", "-monitor", "none", "-serial", "stdio",
		"-netdev", "tap,id=port,fd=" + strconv.Itoa(tapFile),
	}
	disk, device := "if=virtio,format=qcow2,file="+escape(o.InstalledImage()), "virtio-net-pci,netdev=port,mac="+o.MAC
	if o.Boot != "" {
		// What the server discards takes no space, and reads as zeros.
		disk = "if=virtio,format=raw,discard=unmap,file=" + escape(o.Disk())
	}
	if o.Boot == BootNetwork {
		args = append(args, "-boot", "once=n,order=c")
	} else {
		device += ",romfile=" // no iPXE
	}
	args = append(args, "-drive", disk, "-device", device)
	if hasDrive {
		args = append(args, "-drive", "if=virtio,format=raw,readonly=on,file="+escape(o.ConfigDrive()))
	}
	if len(devices) > 0 {
		credential, err := deviceCredential(devices)
		if err != nil {
			return nil, err
		}
		args = append(args, "-smbios", "type=11,value="+credential)
	}
	return args, nil
}

// deviceCredential returns an SMBIOS string with the server's accelerators. systemd reads it as a credential, and
// writes the file that the device plugin reads.
func deviceCredential(devices []byte) (string, error) {
	var list map[string][]string
	if err := json.Unmarshal(devices, &list); err != nil {
		return "", fmt.Errorf("reading the accelerators of the server, %w", err)
	}
	line, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("reading the accelerators of the server, %w", err)
	}
	files := fmt.Appendf(nil, "d /etc/server 0755 root root -\nf+ /etc/server/devices.json 0644 root root - %s\n", line)
	return "io.systemd.credential.binary:tmpfiles.extra=" + base64.StdEncoding.EncodeToString(files), nil
}

// escape writes a value of an option, in which commas separate.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
