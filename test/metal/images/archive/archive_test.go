// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArchive(t *testing.T) {
	image := Image{Reference: "metal.test/thing:1", Name: "thing", Program: []byte("\x7fELF"), Architecture: "amd64", User: "65535:65535"}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := image.Write(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same program gives two different images: the disk would be rebuilt each time")
	}
	files := untar(t, first.Bytes())
	var manifests []manifest
	if err := json.Unmarshal(files["manifest.json"], &manifests); err != nil {
		t.Fatal(err)
	}
	if len(manifests) != 1 || len(manifests[0].Layers) != 1 {
		t.Fatalf("manifest.json names %+v, want one image of one layer", manifests)
	}
	if diff := cmp.Diff([]string{"metal.test/thing:1"}, manifests[0].RepoTags); diff != "" {
		t.Errorf("the image has another name, -want +got:\n%s", diff)
	}
	var config configuration
	if err := json.Unmarshal(files[manifests[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	layer := files[manifests[0].Layers[0]]
	want := configuration{
		Architecture: "amd64", OS: "linux",
		Config: execution{Entrypoint: []string{"/thing"}, User: "65535:65535"},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest(layer)}},
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("the configuration does not describe the image, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]byte{"thing": []byte("\x7fELF")}, untar(t, layer)); diff != "" {
		t.Errorf("the layer does not have the program, -want +got:\n%s", diff)
	}
}

func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
