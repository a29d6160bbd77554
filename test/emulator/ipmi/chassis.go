// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipmi

import (
	"fmt"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/baremetal"
)

// bootDevices are the simulator's names of what a server can boot from.
var bootDevices = map[string]schemas.BootSource{
	"none": schemas.NoneBootSource, "pxe": schemas.PxeBootSource, "default": schemas.HddBootSource, "cdrom": schemas.CdBootSource,
}

// Chassis does for a server what the simulator asks of the program that controls the chassis, and returns what the program prints:
// "get NAME..." returns a line NAME:VALUE for each, and "set NAME VALUE" returns nothing. The simulator does not tell whether a boot
// device is persistent, so it is that of the next boot only; afterwards the server boots its disk.
func Chassis(server *baremetal.Server, arguments ...string) (string, error) {
	switch {
	case len(arguments) > 1 && arguments[0] == "get":
		var answer strings.Builder
		for _, name := range arguments[1:] {
			value, err := get(server, name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&answer, "%s:%s\n", name, value)
		}
		return answer.String(), nil
	case len(arguments) == 3 && arguments[0] == "set":
		return "", set(server, arguments[1], arguments[2])
	}
	return "", fmt.Errorf("the arguments are %q: they must be get NAME..., or set NAME VALUE", arguments)
}

func get(server *baremetal.Server, name string) (string, error) {
	status := server.System().Status()
	switch name {
	case "power":
		if status.PowerState == schemas.OnPowerState {
			return "1", nil
		}
		return "0", nil
	case "boot":
		for device, target := range bootDevices {
			if target == status.BootTarget {
				return device, nil
			}
		}
	}
	return "", fmt.Errorf("%q cannot be got: only power and boot can", name)
}

func set(server *baremetal.Server, name, value string) error {
	if target, known := bootDevices[value]; known && name == "boot" {
		server.System().BootOnce(target)
		return nil
	}
	reset, known := map[string]schemas.ResetType{
		"power 0": schemas.ForceOffResetType, "power 1": schemas.OnResetType, "reset 1": schemas.ForceRestartResetType,
		"shutdown 1": schemas.GracefulShutdownResetType,
	}[name+" "+value]
	if !known {
		return fmt.Errorf("%s cannot be set to %q: it must be power 0 or 1, reset 1, shutdown 1, or boot none, pxe, default or cdrom",
			name, value)
	}
	server.Reset(reset)
	return nil
}
