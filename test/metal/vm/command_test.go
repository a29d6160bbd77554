// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func TestEmulatorBootsDiskOrNetwork(t *testing.T) {
	o := options(t)
	cases := map[string]struct {
		reason, boot, disk, nic, order string
	}{
		"Image": {"the image is the disk", "", "if=virtio,format=qcow2,file=" + o.InstalledImage(), "romfile=", ""},
		"Disk":  {"erasing must give its space back", BootDisk, "if=virtio,format=raw,discard=unmap,file=" + o.Disk(), "romfile=", ""},
		"Network": {"iPXE is in the interface, for one boot", BootNetwork, "if=virtio,format=raw,discard=unmap,file=" + o.Disk(), "",
			"once=n,order=c"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o.Boot = tc.boot
			args, err := arguments(o)
			if err != nil {
				t.Fatal(err)
			}
			nic := strings.TrimSuffix("virtio-net-pci,netdev=port,mac="+o.MAC+","+tc.nic, ",")
			for _, want := range []string{tc.disk, nic} {
				if !slices.Contains(args, want) {
					t.Errorf("%s: %q is not among the arguments %q", tc.reason, want, args)
				}
			}
			order := ""
			if index := slices.Index(args, "-boot"); index >= 0 {
				order = args[index+1]
			}
			if order != tc.order {
				t.Errorf("%s: the boot order is %q, want %q", tc.reason, order, tc.order)
			}
			if err := checkImage(o); err == nil {
				t.Errorf("%s: there is neither image nor disk, and no error", tc.reason)
			}
		})
	}
}

func TestEmulatorArguments(t *testing.T) {
	o := options(t)
	o.Name = "a,b"
	bare, err := arguments(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a,,b", "tcg,thread=multi", o.UUID, "if=virtio,format=qcow2,file=" + o.InstalledImage()} {
		if !slices.Contains(bare, want) {
			t.Errorf("%q is not among the arguments %q", want, bare)
		}
	}
	write(t, o.ConfigDrive(), "drive")
	write(t, o.Devices(), "{\n \"nvidia.com/gpu\": [\"GPU-0\"]}")
	args, err := arguments(o)
	if err != nil {
		t.Fatal(err)
	}
	added := args[len(bare):]
	if len(added) != 4 || added[1] != "if=virtio,format=raw,readonly=on,file="+o.ConfigDrive() {
		t.Fatalf("a config drive and accelerators add %q", added)
	}
	_, encoded, _ := strings.Cut(added[3], "=io.systemd.credential.binary:tmpfiles.extra=")
	files, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	// A line of tmpfiles.d is one file.
	if want := `/etc/server/devices.json 0644 root root - {"nvidia.com/gpu":["GPU-0"]}` + "\n"; !strings.HasSuffix(string(files), want) {
		t.Errorf("the server makes the files\n%s\nwant one that is %s", files, want)
	}
	write(t, o.Devices(), "{")
	if _, err := arguments(o); err == nil || !strings.Contains(err.Error(), "accelerators") {
		t.Errorf("accelerators that cannot be read give the error %v", err)
	}
}
