// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
)

func TestBootCommandEnvironment(t *testing.T) {
	m := start(t, clock.RealClock{}, "", `echo "$SERVER_NAME $SERVER_UUID $SERVER_MAC $(cat "$SERVER_DIR/image") $(cat config-drive.iso)"`)
	m.install("user data")
	m.reset(schemas.OnResetType)
	m.prints("s1 11111111-1111-1111-1111-111111111111 52:54:00:00:00:01 image user data")
	m.is(schemas.OffPowerState, "off: the boot command has ended")
}

// A machine boots by itself, with nothing but a disk, which keeps what it writes.
func TestMachine(t *testing.T) {
	m := start(t, clock.RealClock{}, "", `echo "boots from its $SERVER_BOOT, $(stat -c %s disk) bytes, $(head -c 7 disk | tr -d '\0')"
printf written | dd of=disk conv=notrunc status=none`, func(o *Options) { o.Machine = true })
	m.bootFrom(schemas.PxeBootSource)
	m.reset(schemas.OnResetType)
	m.prints("boots from its network, 10000000000 bytes, ")
	m.is(schemas.OffPowerState, "off: the boot command has ended")
	m.reset(schemas.OnResetType)
	m.prints("boots from its disk, 10000000000 bytes, written")
}

func TestBootCommandFailure(t *testing.T) {
	m := start(t, clock.RealClock{}, "", `exit 3`)
	m.install("")
	m.reset(schemas.OnResetType)
	m.is(schemas.OffPowerState, "off: the boot command has ended, exit status 3")
	if err := os.Remove(m.options.BootCommand); err != nil {
		t.Fatal(err)
	}
	m.reset(schemas.OnResetType)
	m.is(schemas.OffPowerState, "off: starting the boot command, ")
}

// The processes that the boot command has started end with it. A command that ignores SIGTERM is killed.
func TestPowerOffKillsProcessGroup(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	m := start(t, now, "", `trap '' TERM; sleep 1000 & echo "child $!"; while :; do sleep 1000; done`)
	m.install("")
	m.reset(schemas.OnResetType)
	var child int
	m.until(func() string {
		data, _ := os.ReadFile(filepath.Join(m.Dir(), disk.ConsoleFile))
		if _, err := fmt.Sscanf(string(data), "child %d\n", &child); err != nil {
			return err.Error()
		}
		return ""
	})
	m.reset(schemas.ForceOffResetType)
	m.until(func() string {
		if now.HasWaiters() {
			return ""
		}
		return "the boot command got SIGTERM"
	})
	if m.PowerState() != schemas.OnPowerState {
		t.Error("the server is off while its boot command still runs")
	}
	now.Step(time.Minute)
	m.is(schemas.OffPowerState, "off")
	m.until(func() string {
		if alive(t, child) {
			return "a child of the boot command still runs"
		}
		return ""
	})
}

// alive returns whether a process runs. A zombie does not.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(state, "Z")
}
