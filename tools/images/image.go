// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user runs the programs. No server has this user. It is a number, so that the kubelet can verify that it is not root.
const user = "65532:65532"

// A variant is what an image has besides its program and the common files.
type variant struct {
	environment []string
	files       []file
}

// variants by program. In a container loopback is of use to the rack alone, and its user cannot write to the directory that it is started
// in. Like /tmp, /data is for every user: a volume that is made there has the same mode.
var variants = map[string]variant{
	"rack": {
		environment: []string{
			"KARPENTER_METAL3_REDFISH_BIND_ADDRESS=:8000", "KARPENTER_METAL3_ADMIN_BIND_ADDRESS=:8090", "KARPENTER_METAL3_DATA_DIR=/data",
		},
		files: []file{{"data/", 0o1777, nil}},
	},
}

// file is one entry of a layer. A folder has a name that ends in a slash.
type file struct {
	name    string
	mode    int64
	content []byte
}

// image is the index of the images of a program, one for each platform.
func (r release) image(name string) (v1.ImageIndex, error) {
	common, err := layer(r.created, commonFiles())
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range r.platforms {
		program, err := os.ReadFile(filepath.Join(r.programs, platform.OS+"-"+platform.Architecture, name))
		if err != nil {
			return nil, err
		}
		own, err := layer(r.created, append(variants[name].files, file{name, 0o555, program}))
		if err != nil {
			return nil, err
		}
		base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		image, err := mutate.AppendLayers(base, common, own)
		if err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
		config.Created = v1.Time{Time: r.created}
		config.History = nil
		config.Config = v1.Config{
			Entrypoint: []string{"/" + name},
			User:       user,
			WorkingDir: "/",
			Env:        append([]string{"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}, variants[name].environment...),
			Labels:     r.labels(name),
		}
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
}

func (r release) labels(name string) map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":    name,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.revision,
		"org.opencontainers.image.source":   r.source,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  r.created.Format(time.RFC3339),
	}
	for key, value := range labels {
		if value == "" {
			delete(labels, key)
		}
	}
	return labels
}

// commonFiles are what a static program may look for: the public authorities (for an API server or a network endpoint
// whose certificate is signed by one of them; those that Mozilla trusts everywhere, as Go's own fallback has them), its
// user, and a place for temporary files.
func commonFiles() []file {
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes everything
		}
	}
	return []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities.Bytes()},
		{"tmp/", 0o1777, nil},
	}
}

// layer is a layer with the files, all of root's and of one time.
func layer(modified time.Time, files []file) (v1.Layer, error) {
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	for _, file := range files {
		if err := writeEntry(archive, file, modified); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func writeEntry(archive *tar.Writer, file file, modified time.Time) error {
	header := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.content)), ModTime: modified, Typeflag: tar.TypeReg,
		Format: tar.FormatUSTAR}
	if file.name[len(file.name)-1] == '/' {
		header.Typeflag = tar.TypeDir
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s, %w", file.name, err)
	}
	if _, err := archive.Write(file.content); err != nil {
		return fmt.Errorf("writing %s, %w", file.name, err)
	}
	return nil
}
