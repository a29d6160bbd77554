// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Registry is the address of a registry without TLS, such as 127.0.0.1:5000.
type Registry string

// Program builds the program that is a registry, among others, and returns its path.
func Program(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "release")
	build := exec.CommandContext(t.Context(), "go", "-C", filepath.Join("..", "..", "tools", "release"), "build", "-o", program, ".")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building tools/release: %v\n%s", err, output)
	}
	return program
}

// Start starts an empty registry on loopback, which ends with the test.
func Start(t *testing.T) Registry {
	t.Helper()
	return Serve(t, exec.Command(Program(t), "registry"))
}

// Serve starts a command that is a registry until its input ends, and prints where it listens. It ends with the test.
func Serve(t *testing.T, command *exec.Cmd) Registry {
	t.Helper()
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("the registry has failed: %v", err)
		}
	})
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the registry has not said where it is: %v", err)
	}
	return Registry(strings.TrimSpace(address))
}

// URL is that of a path in the registry's API.
func (r Registry) URL(path string) string { return "http://" + string(r) + "/v2/" + path }

// Read reads a path of the registry's API, such as metal/manager/manifests/v0.1.0.
func (r Registry) Read(path string) ([]byte, error) {
	response, err := http.Get(r.URL(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return io.ReadAll(response.Body)
}

// Get reads what must be there.
func (r Registry) Get(t *testing.T, path string) []byte {
	t.Helper()
	content, err := r.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Digest is that of the manifest that a tag names, such as sha256:...
func (r Registry) Digest(t *testing.T, repository, tag string) string {
	t.Helper()
	return digest(r.Get(t, repository+"/manifests/"+tag))
}

// content reads one of the manifests or blobs of a repository, which must be what its digest says.
func (r Registry) content(t *testing.T, repository, kind, want string) []byte {
	t.Helper()
	content := r.Get(t, repository+"/"+kind+"/"+want)
	if got := digest(content); got != want {
		t.Fatalf("%s of %s is %s", want, repository, got)
	}
	return content
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
