// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command build compiles the programs that run in the containers of a test server, and writes an image of each: what a
// server would otherwise get from a registry.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images/archive"
)

// architecture of the images, and of the servers that run them.
const architecture = "amd64"

func main() {
	output := flag.String("output", "", "the directory for the images, and, in its sub-directory bin, for the programs")
	flag.Parse()
	if err := run(*output); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(output string) error {
	if output == "" {
		return errors.New("--output is empty: name the directory that the images go to")
	}
	if err := os.MkdirAll(filepath.Join(output, "bin"), 0o755); err != nil {
		return fmt.Errorf("making the directory for images, %w", err)
	}
	for _, name := range images.Programs() {
		if err := build(output, name); err != nil {
			return err
		}
	}
	return nil
}

func build(output, name string) error {
	program := filepath.Join(output, "bin", name)
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./test/metal/images/"+name)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("compiling %s, %w", name, err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the program of image %s, %w", name, err)
	}
	file, err := os.Create(filepath.Join(output, name+".tar"))
	if err != nil {
		return fmt.Errorf("making the archive of image %s, %w", name, err)
	}
	image := archive.Image{Reference: images.Reference(name), Name: name, Program: content, Architecture: architecture}
	if err := image.Write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
