// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive writes container images of one static program each, as the archives that `docker save` makes and
// `ctr images import` reads. No registry and no container engine is needed to make them.
package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
)

// An Image is a file system of one program, and how to run it.
type Image struct {
	// Reference is the name of the image and its tag, such as metal.test/pause:1.
	Reference string
	// Name of the program, which lies at the root of the image and is its entry point.
	Name string
	// Program is the content of the program, which must need no shared library.
	Program []byte
	// Architecture is Go's name of the processor that it runs on, such as amd64.
	Architecture string
}

// Write writes the archive of the image. Equal images give equal bytes.
func (i Image) Write(w io.Writer) error {
	if err := i.write(w); err != nil {
		return fmt.Errorf("writing image %s, %w", i.Reference, err)
	}
	return nil
}

// Manifest returns what a registry has of the image: the manifest, and what that refers to, by digest.
func (i Image) Manifest() (manifest []byte, blobs map[string][]byte, err error) {
	layer, config, err := i.content()
	if err != nil {
		return nil, nil, fmt.Errorf("making the manifest of image %s, %w", i.Reference, err)
	}
	blobs = map[string][]byte{}
	describe := func(kind string, content []byte) map[string]any {
		name := "sha256:" + digest(content)
		blobs[name] = content
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": name, "size": len(content)}
	}
	manifest, err = json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ManifestType,
		"config": describe("config.v1+json", config), "layers": []any{describe("layer.v1.tar", layer)}})
	return manifest, blobs, err
}

// ManifestType is the media type of a Manifest.
const ManifestType = "application/vnd.oci.image.manifest.v1+json"

// content returns the layer and the configuration.
func (i Image) content() (layer, config []byte, err error) {
	if layer, err = tarball(file{name: i.Name, mode: 0o755, content: i.Program}); err != nil {
		return nil, nil, err
	}
	config, err = json.Marshal(map[string]any{
		"architecture": i.Architecture, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{path.Join("/", i.Name)}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	return layer, config, err
}

func (i Image) write(w io.Writer) error {
	layer, config, err := i.content()
	if err != nil {
		return err
	}
	layerName, configName := path.Join(digest(layer), "layer.tar"), digest(config)+".json"
	manifests, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{i.Reference}, "Layers": []string{layerName}}})
	if err != nil {
		return err
	}
	archive, err := tarball(
		file{name: configName, mode: 0o644, content: config},
		file{name: layerName, mode: 0o644, content: layer},
		file{name: "manifest.json", mode: 0o644, content: manifests},
	)
	if err != nil {
		return err
	}
	_, err = w.Write(archive)
	return err
}

type file struct {
	name    string
	mode    int64
	content []byte
}

func tarball(files ...file) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, f := range files {
		// Without a time, so that the same program always gives the same image.
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Format: tar.FormatUSTAR}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
