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

// TestAVirtualMachineBootsAndJoinsAndRunsAPod is short, for what such a server does takes it fifteen times as long.
func TestAVirtualMachineBootsAndJoinsAndRunsAPod(t *testing.T) {
	if wanted, err := vm.Wanted(); err != nil {
		t.Fatal(err)
	} else if !wanted {
		t.Skip("virtual machines are not wanted: E2E_METAL_SERVERS is light")
	}
	// It takes 90 seconds where two processors are idle.
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	w := newWorld(t)
	w.startCluster(ctx, t)
	program := buildCommand(t, "../vm/cmd/boot-vm")
	before := w.remains(t)
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
		t.Errorf("the Node has kernel %s, booted as %s: want that of the image, and not the one that this machine has booted", info.KernelVersion, info.BootID)
	}
	w.createPod(ctx, t, "work", corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")})
	w.awaitPod(ctx, t, server, "work")
	since("pod runs")
	w.checkLog(ctx, t, "work")

	// The program is killed, and nothing else, as it is when the rack is: the emulator must not live on.
	if running := w.remains(t); len(running["interfaces"]) != 1 || len(running["processes"]) < 2 {
		t.Errorf("a server runs, and what is left of it would not be seen: %v", running)
	}
	if err := server.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.awaitNothing(ctx, t, before)
	since("killed, and cleared up")
}

// installDisk puts a disk in the place of the image, and returns its ID.
func (w *world) installDisk(t *testing.T) string {
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
