// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// stored is an image or a chart in the archive of an OCI image layout.
type stored struct {
	// file is the name of the archive.
	file       string
	reference  name.Tag
	layout     v1.ImageIndex
	descriptor v1.Descriptor
}

// openStored reads an archive by unpacking it into a new folder in scratch.
func openStored(path, scratch string) (*stored, error) {
	dir, err := os.MkdirTemp(scratch, "layout-")
	if err != nil {
		return nil, err
	}
	if err := unpack(path, dir); err != nil {
		return nil, fmt.Errorf("unpacking %s, %w", path, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("reading %s, %w", path, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading %s, %w", path, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("reading %s, it has %d images and not one", path, len(manifest.Manifests))
	}
	descriptor := manifest.Manifests[0]
	reference, err := name.NewTag(descriptor.Annotations[referenceAnnotation])
	if err != nil {
		return nil, fmt.Errorf("reading the name in %s, %w", path, err)
	}
	return &stored{file: filepath.Base(path), reference: reference, layout: index, descriptor: descriptor}, nil
}

// Annotations by which containerd and others know the image of a layout.
const (
	referenceAnnotation = "io.containerd.image.name"
	tagAnnotation       = "org.opencontainers.image.ref.name"
)

// archiveOf is the archive of a layout that is made in dir. Put appends one image or index to it, under its name.
func archiveOf(dir, reference, tag string, modified time.Time, put func(layout.Path, layout.Option) error) ([]byte, error) {
	images, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := put(images, layout.WithAnnotations(map[string]string{referenceAnnotation: reference, tagAnnotation: tag})); err != nil {
		return nil, err
	}
	files, err := filesIn(dir, "")
	if err != nil {
		return nil, err
	}
	return packed(files, modified)
}

// unpack writes the files of a tar into a folder, and none outside of it.
func unpack(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(header.Name, content, 0o644); err != nil {
			return err
		}
	}
}

// base is the last element of the repository's name.
func (s *stored) base() string {
	all := s.reference.RepositoryStr()
	return all[strings.LastIndex(all, "/")+1:]
}

// A platformImage is an image for one platform, with the program that it runs.
type platformImage struct {
	platform v1.Platform
	program  []byte
}

// platforms are the images of an index.
func (s *stored) platforms() ([]platformImage, error) {
	index, err := s.layout.ImageIndex(s.descriptor.Digest)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all []platformImage
	for _, described := range manifest.Manifests {
		image, err := index.Image(described.Digest)
		if err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		path := strings.TrimPrefix(config.Config.Entrypoint[0], "/")
		program, err := find(image, path)
		if err != nil {
			return nil, fmt.Errorf("reading %s of %s, %w", path, described.Platform, err)
		}
		all = append(all, platformImage{*described.Platform, program})
	}
	return all, nil
}

// find returns the content of a file of an image.
func find(image v1.Image, path string) ([]byte, error) {
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	for reader := tar.NewReader(files); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil, os.ErrNotExist
		}
		if err != nil {
			return nil, err
		}
		if header.Name == path {
			return io.ReadAll(reader)
		}
	}
}

// file is one of an archive. A folder has a name that ends in a slash.
type file struct {
	name    string
	mode    int64
	content []byte
}

// filesIn are the regular files of a folder and below, by name, which begins with prefix.
func filesIn(dir, prefix string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
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
		files = append(files, file{path.Join(prefix, filepath.ToSlash(relative)), 0o644, content})
		return nil
	})
	return files, err
}

// packed is a tar of the files in their order, all of root's and of one time.
func packed(files []file, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, file := range files {
		header := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.content)), ModTime: modified, Typeflag: tar.TypeReg,
			Format: tar.FormatUSTAR}
		if strings.HasSuffix(file.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("writing %s, %w", file.name, err)
		}
		if _, err := archive.Write(file.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// compressed is the compressed tar of files. The header of gzip has neither a name nor a time.
func compressed(files []file, modified time.Time) ([]byte, error) {
	content, err := packed(files, modified)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
