// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"syscall"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

func TestInvalidOptions(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Options)
		want   string
	}{
		"Valid":  {reason: "These boot.", change: func(*Options) {}},
		"NoUUID": {reason: "It names the container.", change: func(o *Options) { o.UUID = "" }, want: "set SERVER_UUID"},
		"UUIDOfPaths": {reason: "The paths with this name are removed afterwards.", change: func(o *Options) { o.UUID = "../x" },
			want: "set SERVER_UUID"},
		"NoMAC": {reason: "cloud-init finds interfaces by MAC address.", change: func(o *Options) { o.MAC = "" }, want: "set SERVER_MAC"},
		"Relative": {reason: "The process that runs the server may have another working directory.",
			change: func(o *Options) { o.Dir = "servers/1" },
			want:   "SERVER_DIR, is \"servers/1\""},
		"NoBridge": {reason: "It would boot without a network.", change: func(o *Options) { o.Bridge = "" }, want: "--bridge"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := Options{Server: boot.Server{Name: "server-1", UUID: "6e1f0d6a-4b1e", MAC: "52:54:00:00:00:01", Dir: "/servers/1", Image: "/image",
				Bridge: "br0"}}
			tc.change(&o)
			err := o.Validate()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s\n%v", tc.reason, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestShutdownOrReboot(t *testing.T) {
	signaled := func(signal syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(signal) }
	cases := map[string]struct {
		reason string
		status syscall.WaitStatus
		want   int
		fails  bool
	}{
		"PowerOff": {reason: "The signal of reboot(2) with power off, or halt.", status: signaled(syscall.SIGINT), want: 0},
		"Reboot":   {reason: "The signal of reboot(2) with restart.", status: signaled(syscall.SIGHUP), want: exitReboot},
		"Exit":     {reason: "systemd may exit without reboot(2).", status: 0, want: 0},
		"Crash":    {reason: "No request ends with this signal.", status: signaled(syscall.SIGSEGV), fails: true},
		"Status":   {reason: "The first program has failed.", status: 32 << 8, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := exitStatus(tc.status)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s\ngot %d and error %v, want %d and an error: %t", tc.reason, got, err, tc.want, tc.fails)
			}
		})
	}
}
