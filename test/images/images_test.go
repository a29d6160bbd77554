// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"crypto/x509"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// programs are those of the charts, of which page is off by default, and rack, which users run.
var programs = []string{"manager", "provider", "webhook", page, rack}

const (
	rack = "rack"
	page = "page"
)

// TestNames: the images are those that the charts run by default. charts/testdata is the rendered output, which the
// tests of the charts check.
func TestNames(t *testing.T) {
	system.Only(t)
	built := map[string]bool{}
	for _, program := range programs {
		described, _ := open(t, repository("bin", "images", program+".tar")).images(t)
		name := described.Annotations["io.containerd.image.name"]
		built[name] = program != rack && program != page
		if tag := described.Annotations["org.opencontainers.image.ref.name"]; !strings.HasSuffix(name, "/"+program+":"+tag) {
			t.Errorf("the image of %s is named %s, with the tag %q", program, name, tag)
		}
	}
	maps.DeleteFunc(built, func(_ string, chart bool) bool { return !chart })
	if diff := cmp.Diff(rendered(t), built); diff != "" {
		t.Errorf("images that the charts run by default (-) and images that are built (+):\n%s", diff)
	}
}

func rendered(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range []string{"management.golden.yaml", "tenant-management.golden.yaml", "tenant-tenant.golden.yaml"} {
		content, err := os.ReadFile(repository("charts", "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(content), "\n---") {
			deployment := appsv1.Deployment{}
			if err := yaml.Unmarshal([]byte(document), &deployment); err != nil || deployment.Kind != "Deployment" {
				continue // other kinds have other fields
			}
			for _, container := range deployment.Spec.Template.Spec.Containers {
				names[container.Image] = true
			}
		}
	}
	return names
}

func TestContent(t *testing.T) {
	system.Only(t)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			a := open(t, repository("bin", "images", program+".tar"))
			described, images := a.images(t)
			if want := "application/vnd.oci.image.index.v1+json"; images.MediaType != want || described.MediaType != want {
				t.Errorf("the index is a %s, described as %s, want %s", images.MediaType, described.MediaType, want)
			}
			loadedName, loadedBlobs := a.loaded(t)
			if loadedName != described.Annotations["io.containerd.image.name"] {
				t.Errorf("docker load names it %s", loadedName)
			}
			var architectures []string
			for _, image := range images.Manifests {
				architecture := image.Platform.Architecture
				architectures = append(architectures, image.Platform.OS+"/"+architecture)
				var m manifest
				a.parse(t, image, &m)
				var c config
				a.parse(t, m.Config, &c)
				if blobs := m.blobs(); len(architectures) == 1 && !slices.Equal(loadedBlobs, blobs) {
					t.Errorf("docker load reads %v, and the image of %s has %v", loadedBlobs, architecture, blobs)
				}
				if c.OS != image.Platform.OS || c.Architecture != architecture {
					t.Errorf("the configuration of %s/%s says %s/%s", image.Platform.OS, architecture, c.OS, c.Architecture)
				}
				if diff := cmp.Diff([]string{"/" + program}, c.Config.Entrypoint); diff != "" {
					t.Errorf("entrypoint (-want +got):\n%s", diff)
				}
				if c.Config.User != "65532:65532" {
					t.Errorf("it runs as %q, and the charts say that this is 65532", c.Config.User)
				}
				files := a.files(t, m, c.RootFS.DiffIDs)
				checkFiles(t, program, files, c)
				binary, err := elf.NewFile(bytes.NewReader(files[program].content))
				if err != nil {
					t.Fatal(err)
				}
				if binary.Machine != machines[architecture] {
					t.Errorf("the program for %s is for %s", architecture, binary.Machine)
				}
				if binary.Section(".interp") != nil {
					t.Errorf("the program for %s is not static, and there is no library in the image", architecture)
				}
				if architecture == "amd64" {
					checkVersion(t, files[program].content, c.Config.Labels["org.opencontainers.image.version"])
				}
			}
			if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, architectures); diff != "" {
				t.Errorf("architectures (-want +got):\n%s", diff)
			}
		})
	}
}

func checkFiles(t *testing.T, program string, files map[string]entry, c config) {
	t.Helper()
	want := []string{"etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", program, "tmp/"}
	if program == rack {
		want = append(want, "data/")
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	created, err := time.Parse(time.RFC3339, c.Created)
	if err != nil || c.Config.Labels["org.opencontainers.image.created"] != c.Created {
		t.Errorf("created is %q, the label %q (%v)", c.Created, c.Config.Labels["org.opencontainers.image.created"], err)
	}
	for name, file := range files {
		mode := file.header.FileInfo().Mode()
		if file.header.Uid != 0 || mode.Perm()&0o022 != 0 && name != "tmp/" && name != "data/" {
			t.Errorf("%s is %s of user %d: the user that runs it must not be able to change it", name, mode, file.header.Uid)
		}
		if !file.header.ModTime.Equal(created) {
			t.Errorf("%s is of %s, the image of %s", name, file.header.ModTime, created)
		}
	}
	if files[program].header.FileInfo().Mode().Perm() != 0o555 {
		t.Errorf("the program is %s", files[program].header.FileInfo().Mode())
	}
	if !x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"].content) {
		t.Error("there is no certificate of an authority")
	}
	labels := c.Config.Labels
	for label, want := range map[string]string{"title": program, "licenses": "Apache-2.0"} {
		if got := labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("the label %s is %q, want %q", label, got, want)
		}
	}
	for _, label := range []string{"version", "revision", "source"} {
		if labels["org.opencontainers.image."+label] == "" {
			t.Errorf("there is no label %s", label)
		}
	}
}

// checkVersion runs the program out of the image.
func checkVersion(t *testing.T, program []byte, version string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("--version of the program in the image: %v\n%s", err, output)
	}
	if version == "" || !strings.Contains(string(output), version) {
		t.Errorf("the program in the image says %q, and the image that it is %q", output, version)
	}
}

// TestReproducible builds an image again, elsewhere, and gets the same digest.
func TestReproducible(t *testing.T) {
	system.Only(t)
	const program = "webhook"
	a := open(t, repository("bin", "images", program+".tar"))
	described, images := a.images(t)
	var m manifest
	a.parse(t, images.Manifests[0], &m)
	var c config
	a.parse(t, m.Config, &c)
	created, err := time.Parse(time.RFC3339, c.Created)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	label := func(name string) string { return c.Config.Labels["org.opencontainers.image."+name] }
	command := exec.CommandContext(t.Context(), "make", "-C", repository(), "images",
		"IMAGES="+program, "IMAGES_DIR="+dir, "VERSION="+label("version"), "COMMIT="+label("revision"),
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", created.Unix()))
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make images: %v\n%s", err, output)
	}
	again, _ := open(t, filepath.Join(dir, program+".tar")).images(t)
	if again.Digest != described.Digest {
		t.Errorf("built again it is %s, and was %s: either it is not of this source any more (run `make images`), or not reproducible",
			again.Digest, described.Digest)
	}
}
