// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ramdisk"
)

// TestNetworkBoot inspects, installs and cleans a virtual machine with nothing on its disk, which boots by DHCP, TFTP and
// iPXE each time. A pod runs on it, and writes to its disk; the content of the disk is read from outside in the end. Then
// a tenant with a network of its own has the server. While the tenant gives it back, another machine in that network tries
// to answer Ironic in the place of the agent.
func TestNetworkBoot(t *testing.T) {
	needVirtualMachines(t)
	w := newChain(t, "network-rack.yaml", missingDisk, programs(ramdisk.Program))
	defer w.keepJournal(t)()
	w.bootBy(t, virtualMachine)

	w.logf("== the platform team registers a server with an empty disk; it boots by network, and is inspected")
	path, id := serverDisk(t)
	image := w.serveDisk(t, "linux-1.qcow2", path, id)
	w.createFleet(t, []v1alpha1.NodeTypeTemplate{nodeType(nodeTypeName, "cpu", "2", "memory", "2Gi", gpu, "2")}, image)
	w.registerServers(t)
	w.untilFleetReady(t)
	server := w.Rack.Servers[0]
	w.checkInspected(t, server)
	device := filepath.Join(w.dir, "servers", server.Name, disk.DeviceFile)

	w.logf("== the tenant creates a pod; the server boots by network, is installed, boots its disk, and joins")
	w.createTenant(t)
	marker := rand.Text()
	pod := workload(gpus("1"), "--environment")
	pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: "MARKER", Value: marker})
	w.createPod(t, w.tenant.Client, "train", pod)
	w.untilRuns(t, "train")
	w.checkPod(t, "train", 1, image)
	w.reportSteps(t, "train", nil)
	w.until(t, "what the pod has written to be on the disk", func(context.Context) error {
		found, err := readDevice(device, marker)
		if err == nil && !found.marked {
			err = fmt.Errorf("%s is not there, in %d bytes", marker, found.used)
		}
		return err
	})
	w.logf("the disk has the marker %s of the pod", marker)

	w.logf("== the pod is deleted; the server boots by network, is cleaned, and is available")
	w.remove(t, &corev1.Pod{}, "train")
	w.untilAllReleased(t)
	switch found, err := readDevice(device, marker); {
	case err != nil:
		t.Fatal(err)
	case found.marked:
		t.Fatalf("the server was cleaned, and the marker of the pod is still on its disk")
	case found.used > 0:
		t.Fatalf("the server was cleaned, and %d bytes of its disk are not zero", found.used)
	}
	w.logf("the disk of server %s is read: nothing is on it", server.Name)
	w.checkNetworkBoots(t)

	w.logf("== a tenant with a network of its own has the server next; it is moved while it is off")
	w.checkReleaseIsNotForged(t)
}

// checkNetworkBoots fails if dnsmasq has not given the server an address and iPXE's files for each of its boots by network: for the
// inspection, to be cleaned before the installation, for that, and to be cleaned again.
func (w *stackFixture) checkNetworkBoots(t *testing.T) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(w.dir, "log", "dnsmasq.log"))
	if err != nil {
		t.Fatal(err)
	}
	const boots = 4
	for _, sent := range []string{"DHCPACK(" + w.network.Name + ")", "/boot.ipxe to ", "/pxelinux.cfg/"} {
		got := bytes.Count(log, []byte(sent))
		if w.logf("dnsmasq has sent %s %d times", sent, got); got < boots {
			t.Errorf("dnsmasq has sent %q %d times, want it for each of %d boots:\n%s", sent, got, boots, log)
		}
	}
}

// content is what a disk has.
type content struct {
	// marked is whether a text is somewhere on it, and used how many of its bytes are not zero.
	marked bool
	used   int
}

// readDevice reads the disk of a machine. Parts that take no space read as zeros, and are left out.
func readDevice(path, marker string) (content, error) {
	file, err := os.Open(path)
	if err != nil {
		return content{}, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	var found content
	block := make([]byte, 1<<20)
	kept := 0 // bytes of the block before
	for position := int64(0); ; {
		start, err := file.Seek(position, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return found, nil // no more data
		}
		if err != nil {
			return content{}, err
		}
		if start != position {
			kept = 0
		}
		n, err := file.ReadAt(block[kept:], start)
		if err != nil && !errors.Is(err, io.EOF) {
			return content{}, err
		}
		read := block[:kept+n]
		found.used += n - bytes.Count(read[kept:], []byte{0})
		found.marked = found.marked || bytes.Contains(read, []byte(marker))
		position = start + int64(n)
		kept = copy(block, read[max(len(read)-len(marker), 0):])
	}
}

// A disk that is read badly would look as if it were erased.
func TestDeviceIsRead(t *testing.T) {
	const marker = "marker"
	cases := map[string]struct {
		reason, text string
		position     int64
		want         content
	}{
		"Empty":   {"this is how an erased disk looks", "", 0, content{}},
		"Start":   {"the boot loader is there", marker, 0, content{marked: true, used: len(marker)}},
		"End":     {"the config drive is there", marker, 8<<20 - int64(len(marker)), content{marked: true, used: len(marker)}},
		"Other":   {"a file system would be left", "ext4", 5 << 20, content{used: 4}},
		"Between": {"it is in two blocks", strings.Repeat("x", 1<<20-3) + marker, 2 << 20, content{marked: true, used: 1<<20 - 3 + len(marker)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), disk.DeviceFile)
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = file.WriteAt([]byte(tc.text), tc.position)
			if err := errors.Join(err, file.Truncate(8<<20), file.Close()); err != nil {
				t.Fatal(err)
			}
			if got, err := readDevice(path, marker); err != nil || got != tc.want {
				t.Errorf("%s: found is %+v, %v, want %+v", tc.reason, got, err, tc.want)
			}
		})
	}
}
