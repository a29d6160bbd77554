// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// descriptor, manifest and config of the OCI image specification, with the fields that the tests use.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

type index struct {
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"`
}

type manifest struct {
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// blobs are the names of its files in the archive.
func (m manifest) blobs() []string {
	var names []string
	for _, described := range append([]descriptor{m.Config}, m.Layers...) {
		names = append(names, "blobs/"+strings.Replace(described.Digest, ":", "/", 1))
	}
	return names
}

type config struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Created      string `json:"created"`
	Config       struct {
		User       string            `json:"User"`
		Entrypoint []string          `json:"Entrypoint"`
		Env        []string          `json:"Env"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// archive is an OCI image archive: its files by name.
type archive map[string][]byte

func open(t *testing.T, path string) archive {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run `make images`", err)
	}
	files, err := untar(bytes.NewReader(content))
	if err != nil {
		t.Fatalf("reading %s, %v", path, err)
	}
	a := archive{}
	for _, file := range files {
		a[file.header.Name] = file.content
	}
	if got, want := string(a["oci-layout"]), `"imageLayoutVersion": "1.0.0"`; !strings.Contains(got, want) {
		t.Fatalf("%s: oci-layout is %q", path, got)
	}
	return a
}

// parse reads the blob that is described, which must be what its digest and size say.
func (a archive) parse(t *testing.T, described descriptor, target any) {
	t.Helper()
	if err := json.Unmarshal(a.blob(t, described), target); err != nil {
		t.Fatalf("reading %s, %v", described.Digest, err)
	}
}

func (a archive) blob(t *testing.T, described descriptor) []byte {
	t.Helper()
	content, ok := a["blobs/"+strings.Replace(described.Digest, ":", "/", 1)]
	if !ok || int64(len(content)) != described.Size || digest(content) != described.Digest {
		t.Fatalf("the blob %s of %d bytes is not in the archive as it is described (there: %t, %d bytes)", described.Digest, described.Size, ok,
			len(content))
	}
	return content
}

// images is the index of the one image of the archive, and what the layout says of it.
func (a archive) images(t *testing.T) (descriptor, index) {
	t.Helper()
	var layout, images index
	if err := json.Unmarshal(a["index.json"], &layout); err != nil {
		t.Fatalf("reading index.json, %v", err)
	}
	if len(layout.Manifests) != 1 {
		t.Fatalf("the archive has %d images, want one", len(layout.Manifests))
	}
	a.parse(t, layout.Manifests[0], &images)
	return layout.Manifests[0], images
}

// loaded is the image that "docker load" makes where Docker has no containerd image store.
func (a archive) loaded(t *testing.T) (name string, blobs []string) {
	t.Helper()
	var images []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(a["manifest.json"], &images); err != nil {
		t.Fatalf("reading manifest.json, %v", err)
	}
	if len(images) != 1 || len(images[0].RepoTags) != 1 {
		t.Fatalf("manifest.json has %+v, want one image with one name", images)
	}
	return images[0].RepoTags[0], append([]string{images[0].Config}, images[0].Layers...)
}

// entry is a file of a layer.
type entry struct {
	header  *tar.Header
	content []byte
}

// files are the files of all layers, by name.
func (a archive) files(t *testing.T, m manifest, diffIDs []string) map[string]entry {
	t.Helper()
	if len(m.Layers) != len(diffIDs) {
		t.Fatalf("%d layers, and the configuration has %d", len(m.Layers), len(diffIDs))
	}
	files := map[string]entry{}
	for i, layer := range m.Layers {
		unpacked, err := gzip.NewReader(bytes.NewReader(a.blob(t, layer)))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		if digest(content) != diffIDs[i] {
			t.Errorf("layer %d is %s, and the configuration says %s", i, digest(content), diffIDs[i])
		}
		entries, err := untar(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			files[entry.header.Name] = entry
		}
	}
	return files
}

func untar(from io.Reader) ([]entry, error) {
	reader := tar.NewReader(from)
	var entries []entry
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, fmt.Errorf("reading %s, %w", header.Name, err)
		}
		entries = append(entries, entry{header: header, content: content})
	}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func repository(parts ...string) string {
	return filepath.Join(append([]string{"..", ".."}, parts...)...)
}
