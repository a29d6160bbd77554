// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

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
		"-name", escape(o.Name), "-nodefaults", "-no-user-config", "-L", data + "/qemu", "-L", data + "/seabios",
		// TCG even where the machine has KVM: not every KVM works with every kernel.
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max",
		"-smp", strconv.Itoa(o.CPUs), "-m", strconv.Itoa(o.MemoryMiB),
		"-uuid", o.UUID, "-smbios", "type=1,manufacturer=Acme,product=Virtual server,serial=" + escape(o.Name),
		// Boot loaders need a display.
		"-vga", "std", "-display", "none", "-monitor", "none", "-serial", "stdio",
		"-drive", "if=virtio,format=qcow2,file=" + escape(o.InstalledImage()),
		"-netdev", "tap,id=port,fd=" + strconv.Itoa(tapFile), "-device", "virtio-net-pci,netdev=port,romfile=,mac=" + o.MAC,
	}
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
