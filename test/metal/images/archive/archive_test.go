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

// configuration is the part of Docker's image configuration that a container runtime needs.
type configuration struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       execution `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type execution struct {
	Entrypoint []string `json:"Entrypoint"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// manifest is one entry of the archive's manifest.json.
type manifest struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

func TestArchive(t *testing.T) {
	image := Image{Reference: "metal.test/thing:1", Name: "thing", Program: []byte("\x7fELF"), Architecture: "amd64"}
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
		Config: execution{Entrypoint: []string{"/thing"}},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest(layer)}},
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("the configuration does not describe the image, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]byte{"thing": []byte("\x7fELF")}, untar(t, layer)); diff != "" {
		t.Errorf("the layer does not have the program, -want +got:\n%s", diff)
	}
}

// TestManifest: a registry has the same image as the archive.
func TestManifest(t *testing.T) {
	image := Image{Name: "thing", Program: []byte("\x7fELF"), Architecture: "amd64"}
	content, blobs, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	type descriptor struct {
		MediaType, Digest string
		Size              int
	}
	var got struct {
		SchemaVersion int
		MediaType     string
		Config        descriptor
		Layers        []descriptor
	}
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	layer, config, err := image.content()
	if err != nil || got.SchemaVersion != 2 || got.MediaType != ManifestType || len(got.Layers) != 1 || len(blobs) != 2 {
		t.Fatalf("the manifest is %s, of %d blobs (%v)", content, len(blobs), err)
	}
	for blob, want := range map[descriptor]descriptor{
		got.Config:    {"application/vnd.oci.image.config.v1+json", "sha256:" + digest(config), len(config)},
		got.Layers[0]: {"application/vnd.oci.image.layer.v1.tar", "sha256:" + digest(layer), len(layer)},
	} {
		if diff := cmp.Diff(want, blob); diff != "" || "sha256:"+digest(blobs[blob.Digest]) != blob.Digest {
			t.Errorf("the manifest refers to another blob (-want +got):\n%s", diff)
		}
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
