// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
)

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
