// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vm"
)

// TestVirtualMachineRunsPod does little, because everything takes fifteen times as long on such a server.
func TestVirtualMachineRunsPod(t *testing.T) {
	needVirtualMachines(t)
	// It takes 90 seconds where two processors are idle.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	w := newFixture(t)
	w.startCluster(ctx, t)
	program := buildCommand(t, "../vm/cmd/boot-vm")
	before := w.leftovers(t)
	w.install(t, w.userData(ctx, t))
	id := w.installDisk(t)
	since := stopwatch(t)

	server := w.turnOn(t, program)
	node := w.awaitNode(ctx, t, server)
	since("Ready")
	w.checkJoined(t, node, id)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if info := node.Status.NodeInfo; !strings.HasSuffix(info.KernelVersion, "-cloud-amd64") || info.BootID == string(bytes.TrimSpace(boot)) {
		t.Errorf("the Node has kernel %s, booted as %s: want that of the image, and not the one that this machine has booted", info.KernelVersion,
			info.BootID)
	}
	w.createPod(ctx, t, "work", corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")})
	w.awaitPod(ctx, t, server, "work")
	since("pod runs")
	w.checkLog(ctx, t, "work")

	w.turnOff(ctx, t, server)
	since("off")
	checkNothingLeft(t, before, w.leftovers(t))
}

func TestVirtualMachineKilled(t *testing.T) {
	needVirtualMachines(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w := newFixture(t)
	program := buildCommand(t, "../vm/cmd/boot-vm")
	before := w.leftovers(t)
	w.install(t, []byte("#cloud-config\n"))
	w.installDisk(t)
	server := w.turnOn(t, program)
	w.await(ctx, t, server, "the kernel to be started from the disk", func(context.Context) error {
		console, err := os.ReadFile(filepath.Join(w.dir, "console.log"))
		if err == nil && !bytes.Contains(console, []byte("Linux version")) {
			err = &notYet{"the console does not show it"}
		}
		return err
	})
	if running := w.leftovers(t); len(running["interfaces"]) != 1 || len(running["processes"]) < 2 {
		t.Errorf("a server runs, but the check for leftovers finds %v", running)
	}
	// Only the program, as when the rack is killed: the emulator must not outlive it.
	if err := server.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.awaitCleanup(ctx, t, before)
}

// needVirtualMachines skips the test if E2E_METAL_SERVERS disables virtual machines.
func needVirtualMachines(t *testing.T) {
	t.Helper()
	wanted, err := vm.Enabled()
	if err != nil {
		t.Fatal(err)
	}
	if !wanted {
		t.Skip("E2E_METAL_SERVERS is container")
	}
}

// installDisk replaces the image by the disk image, and returns its ID.
func (w *fixture) installDisk(t *testing.T) string {
	t.Helper()
	image := filepath.Join(w.bin, "server-image")
	id, err := os.ReadFile(filepath.Join(image, "disk.id"))
	if err != nil {
		t.Fatalf("there is no disk image, which `make server-disk` makes: %v", err)
	}
	source, err := os.Open(filepath.Join(image, "disk.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }() // nothing was written
	target, err := os.Create(filepath.Join(w.dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(id))
}
