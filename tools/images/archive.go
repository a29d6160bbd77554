// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// writeArchive writes the index into path, as the tar of an OCI image layout. containerd takes the image's name from
// io.containerd.image.name, others the tag from org.opencontainers.image.ref.name. What was at path is replaced at once.
func writeArchive(path, reference, tag string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	images, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		return err
	}
	if err := images.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          reference,
		"org.opencontainers.image.ref.name": tag,
	})); err != nil {
		return err
	}
	if err := writeDockerManifest(filepath.Join(string(images), "manifest.json"), reference, index); err != nil {
		return err
	}
	finished := filepath.Join(dir, "archive")
	if err := pack(finished, string(images)); err != nil {
		return err
	}
	return os.Rename(finished, path)
}

// writeDockerManifest writes what "docker load" reads where Docker has no containerd image store. It knows one platform: the first.
func writeDockerManifest(path, reference string, index v1.ImageIndex) error {
	described, err := index.IndexManifest()
	if err != nil {
		return err
	}
	image, err := index.Image(described.Manifests[0].Digest)
	if err != nil {
		return err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
	loaded := tarball.Descriptor{Config: blob(manifest.Config.Digest), RepoTags: []string{reference}}
	for _, layer := range manifest.Layers {
		loaded.Layers = append(loaded.Layers, blob(layer.Digest))
	}
	content, err := json.Marshal(tarball.Manifest{loaded})
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// pack writes the regular files under dir into a tar, in the order of their names and without a time.
func pack(path, dir string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	archive := tar.NewWriter(out)
	if err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		return writeEntry(archive, file{filepath.ToSlash(relative), 0o644, content}, time.Unix(0, 0))
	}); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return out.Close()
}
