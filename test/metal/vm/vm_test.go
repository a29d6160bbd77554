// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

func options(t *testing.T) Options {
	return Options{MemoryMiB: DefaultMemoryMiB, CPUs: 2, Server: boot.Server{
		Name: "server-1", UUID: "6e1f0d6a-4b1e-4a51-9b0a-3c1d5f6a7b80", MAC: "52:54:00:00:00:01", Dir: t.TempDir(), Image: t.TempDir(),
		Bridge: "lo",
	}}
}

// expect fails the test if the error lacks a wanted text, or if there is an error and none is wanted.
func expect(t *testing.T, reason string, err error, want []string) {
	t.Helper()
	if len(want) == 0 && err != nil {
		t.Errorf("%s\n%v", reason, err)
	}
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s\nerror is %v, want one with %q", reason, err, text)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Options)
		want   []string
	}{
		"Valid": {reason: "These boot.", change: func(*Options) {}},
		"NoUUID": {reason: "The firmware needs a UUID.", change: func(o *Options) { o.UUID = "server-1" },
			want: []string{`UUID "server-1"`, "SERVER_UUID"}},
		"NoMemory": {reason: "The server would report it on its console only.", change: func(o *Options) { o.MemoryMiB = 64 },
			want: []string{"--memory, is 64 MiB"}},
		"NoCPUs": {reason: "The emulator's message does not name the flag.", change: func(o *Options) { o.CPUs = 0 },
			want: []string{"--cpus, is 0"}},
		"NoDevice": {reason: "A misspelt device must not boot the disk.", change: func(o *Options) { o.Boot = "pxe" },
			want: []string{`--boot, is "pxe": it must be disk or network`}},
		"NoMAC": {reason: "The checks of all servers apply.", change: func(o *Options) { o.MAC = "" },
			want: []string{"SERVER_MAC"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			tc.change(&o)
			expect(t, tc.reason, o.Validate(), tc.want)
		})
	}
}

func TestEnabled(t *testing.T) {
	cases := map[string]struct {
		reason, value string
		wanted        bool
		err           []string
	}{
		"Default":   {reason: "Virtual machines are the default.", wanted: true},
		"VM":        {reason: "The default can be set explicitly.", value: "vm", wanted: true},
		"Container": {reason: "No virtual machine can run.", value: "container"},
		"Typo": {reason: "A misspelt value must not select one of them.", value: "lite",
			err: []string{`E2E_METAL_SERVERS is "lite"`, "vm", "container"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(kindVariable, tc.value)
			wanted, err := Enabled()
			expect(t, tc.reason, err, tc.err)
			if wanted != tc.wanted {
				t.Errorf("%s\nwanted is %t", tc.reason, wanted)
			}
		})
	}
}

func TestCheckMissingEmulator(t *testing.T) {
	expect(t, "An empty directory has none.", Check(options(t)),
		[]string{"qemu-system-x86_64 is missing: make it with `make server-image`", "E2E_METAL_SERVERS=container"})
}

func TestCheckNetworkInterface(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   []string
	}{
		"None": {reason: "There is one.", err: nil},
		"NoDevice": {reason: "The path of a device that a container was not given.",
			err: &fs.PathError{Op: "open", Path: tunDevice, Err: unix.ENOENT}, want: []string{"there is no /dev/net/tun", "module tun"}},
		"NoModule": {reason: "The device exists, but the kernel has no driver.", err: fmt.Errorf("opening, %w", unix.ENODEV),
			want: []string{"there is no /dev/net/tun"}},
		"NoRight": {reason: "Root without capabilities.", err: fmt.Errorf("making, %w", unix.EPERM),
			want: []string{"not allowed here", "CAP_NET_ADMIN"}},
		"Forbidden": {reason: "The device group of a container.", err: fmt.Errorf("opening, %w", unix.EACCES),
			want: []string{"not allowed here"}},
		"Other": {reason: "Other errors are shown unchanged.", err: unix.EBUSY,
			want: []string{"none can be made: device or resource busy"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect(t, tc.reason, tapError(tc.err), tc.want) })
	}
}

func TestCheckMemoryAndDisk(t *testing.T) {
	cases := map[string]struct {
		reason string
		spare  spare
		want   []string
	}{
		"Enough": {reason: "Exactly what it takes.", spare: spare{memory: 2348, disk: 1500}},
		"Memory": {reason: "The message has the memory found and needed.", spare: spare{memory: 2347, disk: 1500},
			want: []string{"takes 2348 MiB of memory", "has 2347 MiB"}},
		"Disk": {reason: "The message has the directory.", spare: spare{memory: 4096, disk: 12, directory: "/srv"},
			want: []string{"takes 1500 MiB", "/srv has 12 MiB"}},
		"BothAtOnce": {reason: "Both are reported at once.", spare: spare{}, want: []string{"of memory", "the disk"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect(t, tc.reason, tc.spare.suffices(options(t)), tc.want) })
	}
	if found, err := findCapacity(t.TempDir()); err != nil || found.memory == 0 || found.disk == 0 {
		t.Errorf("this machine has room for %+v, %v", found, err)
	}
}

func TestInvalidDiskImage(t *testing.T) {
	cases := map[string]struct {
		reason  string
		content *string
		want    []string
	}{
		"Disk": {reason: "The magic number of qcow2.", content: ptr.To("QFI\xfb and more")},
		"Text": {reason: "Containers accept any file as an image; qemu does not.", content: ptr.To("image 1"),
			want: []string{"is not a disk image in the format qcow2", "make server-disk"}},
		"Tiny": {reason: "An empty disk boots nothing.", content: ptr.To(""), want: []string{"is not a disk image"}},
		"None": {reason: "Nothing was installed.", want: []string{"no such file"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			if tc.content != nil {
				write(t, o.InstalledImage(), *tc.content)
			}
			expect(t, tc.reason, checkImage(o), tc.want)
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Clean(path), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
