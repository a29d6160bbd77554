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

func (i Image) write(w io.Writer) error {
	layer, err := tarball(file{name: i.Name, mode: 0o755, content: i.Program})
	if err != nil {
		return err
	}
	layerDigest := digest(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": i.Architecture, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{path.Join("/", i.Name)}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerDigest}},
	})
	if err != nil {
		return err
	}
	layerName, configName := path.Join(layerDigest, "layer.tar"), digest(config)+".json"
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
