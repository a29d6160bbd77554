// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package published makes releases of this checkout, pushes them into a registry, and pulls from it: what users of a release have, but for
// the name of the registry. It reads the registry without the libraries that write to it.
package published

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Release is a version of this project in a registry.
type Release struct {
	Registry Registry
	// Version is that of the charts, such as 0.1.0. The tag of the images is the same, after a v.
	Version string
	// Images is where nodes pull from: image.registry of the charts.
	Images string
}

// publish makes and pushes a release of what git knows of the checkout and of what it does not ignore: version, platforms, registry. A
// release has one version in its charts, its images and its programs.
const publish = `
top=$(git -C "$0" rev-parse --show-toplevel)
git -C "$top" ls-files -coz --exclude-standard | tar -C "$top" -c --null --ignore-failed-read -T - | tar -x
sed -i "s/^version: .*/version: $1/; s/^appVersion: .*/appVersion: v$1/" charts/*/Chart.yaml
MAKEFLAGS="" KUBEBUILDER_ASSETS=$top/bin make release release-push RELEASE_DIRTY=yes RELEASE_PLUGINS= \
  IMAGES="manager provider webhook" VERSION="v$1" PLATFORMS="$2" REGISTRY="$3"
`

// Publish has make release and push this checkout under a version such as 0.1.1, without plugins, for platforms such as "linux/amd64
// linux/arm64".
func (r Registry) Publish(t *testing.T, version, platforms string) Release {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	release := Release{Registry: r, Version: version, Images: string(r) + "/metal"}
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", publish, here, version, platforms, release.Images)
	command.Dir = t.TempDir()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("making release %s: %v\n%s", version, err, output)
	}
	t.Logf("%s", output)
	return release
}

// Image is the name of the image of a program.
func (r Release) Image(program string) string { return r.Images + "/" + program + ":v" + r.Version }

// Charts are names of charts in the docs, each followed by what names the release's, with flags of Helm.
func (r Release) Charts() (pairs []string) {
	for _, chart := range []string{"karpenter-metal3-tenant", "karpenter-metal3"} { // the first begins as the second does
		pairs = append(pairs, "charts/"+chart,
			"oci://"+string(r.Registry)+"/metal/charts/"+chart+" --plain-http --version="+r.Version+" --set=image.registry="+r.Images)
	}
	return pairs
}

// Pull pulls an image for an architecture such as arm64, as a node does: by its name, and everything in it by a digest. It unpacks it into
// a folder, and returns the path of the program that the image runs.
func Pull(t *testing.T, image, architecture, dir string) string {
	t.Helper()
	host, name, _ := strings.Cut(image, "/")
	repository, tag, _ := strings.Cut(name, ":")
	registry := Registry(host)
	type described struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	read := func(kind, digest string, target any) {
		t.Helper()
		if err := json.Unmarshal(registry.content(t, repository, kind, digest), target); err != nil {
			t.Fatalf("reading %s of %s, %v", digest, image, err)
		}
	}
	var index struct{ Manifests []described }
	read("manifests", registry.Digest(t, repository, tag), &index)
	for _, found := range index.Manifests {
		if found.Platform.Architecture != architecture {
			continue
		}
		var manifest struct {
			Config described
			Layers []described
		}
		read("manifests", found.Digest, &manifest)
		var config struct{ Config struct{ Entrypoint []string } }
		read("blobs", manifest.Config.Digest, &config)
		for _, layer := range manifest.Layers {
			tar := exec.CommandContext(t.Context(), "tar", "-xz", "-C", dir)
			tar.Stdin = bytes.NewReader(registry.content(t, repository, "blobs", layer.Digest))
			if output, err := tar.CombinedOutput(); err != nil {
				t.Fatalf("unpacking %s, %v\n%s", image, err, output)
			}
		}
		return filepath.Join(dir, config.Config.Entrypoint[0])
	}
	t.Fatalf("%s is not for %s: %+v", image, architecture, index)
	return ""
}

// Emulator is what the path of a program for arm64 is an argument of. It skips the test where there is no QEMU.
func Emulator(t *testing.T) []string {
	t.Helper()
	for _, program := range []string{"../../bin/qemu-aarch64", "qemu-aarch64"} {
		path, err := exec.LookPath(program)
		if err != nil {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
		// Go interrupts goroutines by signals, and programs for arm64 have crashed under QEMU by them: golang/go#36981.
		return []string{path, "-E", "GODEBUG=asyncpreemptoff=1"}
	}
	t.Skip("no program for arm64 runs here: there is no qemu-aarch64, which `make qemu-user` unpacks")
	return nil
}
