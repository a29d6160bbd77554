// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

func (c Config) kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

func (c Config) rackDir() string { return filepath.Join(c.Dir, "rack") }

// write writes what the containers are given, and returns the rack as it is described to them.
func (c Config) write() (*scenario.Scenario, error) {
	rack := &scenario.Scenario{}
	files := map[string]any{}
	for _, server := range c.Servers {
		rack.Servers = append(rack.Servers, describe(server))
		inventory := filepath.Join(c.rackDir(), "inventory", server.Name)
		files[filepath.Join(inventory, "devices.json")] = devices(server)
		files[filepath.Join(inventory, "hardware.json")] = map[string]int64{
			"cpus": server.Capacity.Cpu().Value(), "memoryMiB": server.Capacity.Memory().Value() >> 20,
		}
	}
	described, err := yaml.Marshal(rack)
	if err != nil {
		return nil, err
	}
	boot := fmt.Sprintf("#!/bin/sh\nset -eu\ncp %s/inventory/\"$SERVER_NAME\"/*.json \"$SERVER_DIR/\"\n"+
		"exec %s/boot-server --image %[2]s/server-image --bridge %s\n", rackFiles, programs, Bridge)
	// Files of an earlier run may be of other servers.
	if err := os.RemoveAll(c.rackDir()); err != nil {
		return nil, fmt.Errorf("removing the files of an earlier rack, %w", err)
	}
	contents := map[string][]byte{
		c.kubeconfig(): c.Kubeconfig, filepath.Join(c.rackDir(), "rack.yaml"): described, filepath.Join(c.rackDir(), "boot"): []byte(boot),
	}
	for path, value := range files {
		if contents[path], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	for path, content := range contents {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("writing what the containers are given, %w", err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing what the containers are given, %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(c.rackDir(), "boot"), 0o700); err != nil {
		return nil, fmt.Errorf("writing what the containers are given, %w", err)
	}
	return rack, nil
}

// describe describes a server of the fleet for the rack.
func describe(server fleet.Server) scenario.Server {
	processor := inventory.Processor{Cores: int(server.Capacity.Cpu().Value())}
	if server.Architecture == fleet.ARM64 {
		processor.Architecture = inventory.AArch64
	}
	hardware := inventory.Hardware{
		Manufacturer: "Acme", MemoryGiB: int(server.Capacity.Memory().Value() >> 30), Processors: []inventory.Processor{processor},
		NICs: []inventory.NIC{{}}, Disks: []inventory.Disk{{SizeGB: 960, Kind: inventory.NVMe}},
	}
	if count := server.Capacity.Name("nvidia.com/gpu", "").Value(); count > 0 && server.Labels["gpu-model"] != "" {
		hardware.GPUs = []inventory.GPU{{Count: int(count), Manufacturer: "NVIDIA", Model: server.Labels["gpu-model"]}}
	}
	described := scenario.Server{Name: server.Name, Hardware: &hardware}
	described.BMC.Username, described.BMC.Password = "admin-"+server.Name, "secret of "+server.Name
	return described
}

// devices are the IDs of a server's devices by resource, for the device plugin of servers.
func devices(server fleet.Server) map[string][]string {
	ids := map[string][]string{}
	for resource, count := range server.Capacity {
		if resource == corev1.ResourceCPU || resource == corev1.ResourceMemory || !strings.Contains(string(resource), "/") {
			continue
		}
		_, kind, _ := strings.Cut(string(resource), "/")
		for n := range count.Value() {
			ids[string(resource)] = append(ids[string(resource)], fmt.Sprintf("%s-%s-%d", strings.ToUpper(kind), server.Name, n))
		}
	}
	return ids
}

// repository names the local image. Its tag says what it was made from.
const repository = "karpenter-metal3-metal-host"

// leftOut is what these containers do not use: a kernel, lists of packages, and what makes a server a node.
var leftOut = []string{
	"./boot/*", "./usr/lib/modules/*", "./var/lib/apt/*", "./var/cache/*", "./usr/share/container-images/*", "./opt/*",
	"./usr/bin/kube*", "./usr/bin/containerd*", "./usr/bin/ctr", "./usr/local/bin/*",
}

// makeImage makes the image of both containers, unless it exists, and removes those of other root file systems. It returns its name.
func makeImage(ctx context.Context, bin string, progress func(string, ...any)) (string, error) {
	// What hack/server-image.sh has made the root file system from. What it adds to it later is not used here.
	made, err := os.ReadFile(filepath.Join(bin, "server-image", ".rootfs"))
	if err != nil {
		return "", fmt.Errorf("there is no server image to make the containers' image from: run `make server-image` (%w)", err)
	}
	sum := sha256.Sum256(fmt.Appendln(made, leftOut))
	name := fmt.Sprintf("%s:%x", repository, sum[:6])
	existing, err := docker.Run(ctx, "images", "--format", "{{.Repository}}:{{.Tag}}", repository)
	if err != nil {
		return "", err
	}
	found := false
	for image := range strings.FieldsSeq(existing) {
		if image == name {
			found = true
		} else if _, err := docker.Run(ctx, "rmi", "--force", image); err != nil {
			return "", fmt.Errorf("removing the image of an earlier root file system, %w", err)
		}
	}
	if found {
		return name, nil
	}
	if err := importTree(ctx, filepath.Join(bin, "server-image", "rootfs"), name); err != nil {
		return "", fmt.Errorf("making image %s, %w", name, err)
	}
	progress("image %s is made", name)
	return name, nil
}

// importTree makes an image of a tree of files. Those that only root can read are left out for others.
func importTree(ctx context.Context, tree, name string) error {
	args := []string{"-C", tree, "--numeric-owner", "--ignore-failed-read", "--warning=no-failed-read"}
	for _, path := range leftOut {
		args = append(args, "--exclude="+path)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a docker that fails reads no further
	tar := exec.CommandContext(ctx, "tar", append(args, "-c", ".")...)
	var problems bytes.Buffer
	tar.Stderr = &problems
	output, err := tar.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tar.Start(); err != nil {
		return err
	}
	if _, err := docker.Feed(ctx, output, "import", "-", name); err != nil {
		cancel()
		_ = tar.Wait() // it has lost its reader
		return err
	}
	if err := tar.Wait(); err != nil {
		_, failed := docker.Run(ctx, "rmi", name)
		return errors.Join(fmt.Errorf("reading %s, %w: %s", tree, err, strings.TrimSpace(problems.String())), failed)
	}
	return nil
}

// RemoveImage removes the local image, of whatever root file system. It is no error if there is none.
func RemoveImage(ctx context.Context) error {
	images, err := docker.Run(ctx, "images", "--quiet", repository)
	if err != nil || images == "" {
		return err
	}
	_, err = docker.Run(ctx, append([]string{"rmi", "--force"}, strings.Fields(images)...)...)
	return err
}
