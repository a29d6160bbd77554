// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
)

// TestVirtualMachineRunsPod does little, because everything takes fifteen times as long on such a server.
func TestVirtualMachineRunsPod(t *testing.T) {
	needVirtualMachines(t)
	w := newClusterFixture(t, ipv4Network(), missingDisk)
	w.startCluster(t, cluster.Options{})
	w.install(t, w.joinData(t, v1alpha1.JoinKubeadm, w.endpoint(), document), nil)
	id := w.installDisk(t)

	server := w.turnOn(t, virtualMachine)
	node := w.untilNodeReady(t, w.Client)
	w.checkJoined(t, node, id)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if info := node.Status.NodeInfo; !strings.HasSuffix(info.KernelVersion, "-cloud-amd64") || info.BootID == string(bytes.TrimSpace(boot)) {
		t.Errorf("the Node has kernel %s, booted as %s: want that of the image, and not the one that this machine has booted", info.KernelVersion,
			info.BootID)
	}
	w.createPod(t, w.Client, "work", workload(gpus("1")))
	w.untilPodRuns(t, "work")
	w.checkLog(t, "work")
	w.turnOff(t, server)
}

func TestVirtualMachineKilled(t *testing.T) {
	needVirtualMachines(t)
	w := newClusterFixture(t, ipv4Network(), missingDisk)
	w.install(t, []byte("#cloud-config\n"), nil)
	w.installDisk(t)
	server := w.turnOn(t, virtualMachine)
	w.until(t, "the kernel to be started from the disk", func(context.Context) error {
		console, err := os.ReadFile(filepath.Join(w.server.Dir, "console.log"))
		if err == nil && !bytes.Contains(console, []byte("Linux version")) {
			err = errors.New("the console does not show it")
		}
		return err
	})
	if running := w.traces(t); len(running["links"]) != 1 || len(running["processes"]) < 2 {
		t.Errorf("a server runs, but the check for leftovers finds %v", running)
	}
	// Only the program, as when the rack is killed: the emulator must not outlive it.
	server.cut.Store(true)
	if err := server.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.untilCleanedUp(t)
}

// needVirtualMachines skips the test if E2E_METAL_SERVERS disables virtual machines.
func needVirtualMachines(t *testing.T) {
	t.Helper()
	if serverKind(t) != virtualMachine {
		t.Skip("E2E_METAL_SERVERS is container")
	}
}

// installDisk replaces the image by the disk image, and returns its ID.
func (w *clusterFixture) installDisk(t *testing.T) string {
	t.Helper()
	disk, id := serverDisk(t)
	content, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, w.server.InstalledImage(), content, 0o600)
	return string(id)
}
