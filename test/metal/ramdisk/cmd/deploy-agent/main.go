// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command deploy-agent is the first and only process of the deploy ramdisk.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/deployagent"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/initramfs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ramdisk"
)

// interval of heartbeats, and of attempts to reach Ironic. Ironic starts its next step at each.
const interval = time.Second

func main() {
	then, err := run()
	if err != nil {
		fmt.Println("error:", err)
		then = unix.LINUX_REBOOT_CMD_POWER_OFF
	}
	unix.Sync()
	_ = unix.Reboot(then) // the kernel panics if this process ends, which is on the console
}

// run runs the agent, and returns what Ironic wants the machine to do then.
func run() (then int, err error) {
	if err := initramfs.Mount(); err != nil {
		return 0, err
	}
	commandLine, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return 0, err
	}
	var parameters deployagent.Parameters
	parameters.Read(commandLine)
	if parameters.IronicURL == "" && parameters.InspectionURL == "" {
		return 0, fmt.Errorf("the kernel's command line is %q: it must have ipa-api-url or ipa-inspection-callback-url", commandLine)
	}
	network, err := ramdisk.ParseInterface(string(commandLine))
	if err != nil {
		return 0, err
	}
	if err := network.Up(); err != nil {
		return 0, err
	}
	hardware, err := ramdisk.Hardware("/")
	if err != nil {
		return 0, err
	}
	if len(hardware.Disks) == 0 {
		return 0, fmt.Errorf("this machine has no disk")
	}
	ctx, stop := context.WithCancel(context.Background())
	end := func(how int) func() {
		return func() {
			then = how
			stop()
		}
	}
	agent := deployagent.New(deployagent.Options{
		Server: deployagent.Server{
			Name: hardware.SerialNumber, Hardware: hardware, Disk: ramdisk.Disk{Path: hardware.Disks[0].Name, Temporary: "/tmp"},
			Faults: &faults.Set{}, PowerOff: end(unix.LINUX_REBOOT_CMD_POWER_OFF), Reboot: end(unix.LINUX_REBOOT_CMD_RESTART),
		},
		Parameters: parameters, Heartbeat: interval, Retry: interval, Clock: clock.RealClock{},
		Logger: funcr.New(func(_, text string) { fmt.Println(text) }, funcr.Options{LogTimestamp: true}),
	})
	err = agent.Run(ctx)
	return then, err
}
