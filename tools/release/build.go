// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
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

// writeImageArchives packs programs that are built already into container images, without a registry, a daemon or a base
// image: each becomes an OCI image archive with a manifest for each platform. The same programs and flags always give
// the same digest.
func (r *release) writeImageArchives(out string) error {
	for _, name := range r.names {
		reference := strings.TrimSuffix(r.registry, "/") + "/" + name + ":" + r.tag
		index, err := r.image(name)
		if err != nil {
			return fmt.Errorf("making the image of %s, %w", name, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return fmt.Errorf("making the image of %s, %w", name, err)
		}
		path := filepath.Join(out, name+".tar")
		if err := writeImageArchive(path, reference, r.tag, index); err != nil {
			return fmt.Errorf("writing the image of %s, %w", name, err)
		}
		fmt.Printf("%s@%s\n  %s\n", reference, digest, path)
	}
	return nil
}

// writeImageArchive replaces what was at the path at once.
func writeImageArchive(path, reference, tag string, index v1.ImageIndex) error {
	scratch, err := os.MkdirTemp(filepath.Dir(path), ".layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	put := func(images layout.Path, name layout.Option) error {
		if err := images.AppendIndex(index, name); err != nil {
			return err
		}
		return writeDockerManifest(filepath.Join(string(images), "manifest.json"), reference, index)
	}
	content, err := archiveOf(filepath.Join(scratch, "layout"), reference, tag, time.Unix(0, 0), put)
	if err != nil {
		return err
	}
	finished := filepath.Join(scratch, "archive")
	if err := os.WriteFile(finished, content, 0o644); err != nil {
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

// image is the index of the images of a program, one for each platform.
func (r *release) image(name string) (v1.ImageIndex, error) {
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
			Labels: map[string]string{
				"org.opencontainers.image.title":    name,
				"org.opencontainers.image.version":  r.version,
				"org.opencontainers.image.revision": r.revision,
				"org.opencontainers.image.source":   r.source,
				"org.opencontainers.image.licenses": licence,
				"org.opencontainers.image.created":  r.created.Format(time.RFC3339),
			},
		}
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
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
	content, err := packed(files, modified)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// writeImages copies the archives of the images, and writes bills of materials of the images and of their programs.
func (r *release) writeImages() error {
	if len(r.names) == 0 {
		return errors.New("none is named")
	}
	authorities, err := authorities()
	if err != nil {
		return err
	}
	for _, base := range r.names {
		archive := filepath.Join(r.images, base+".tar")
		content, err := os.ReadFile(archive)
		if err != nil {
			return err
		}
		if err := r.file(base+archiveSuffix, content); err != nil {
			return err
		}
		image, err := openStored(filepath.Join(r.dir, base+archiveSuffix), r.scratch)
		if err != nil {
			return err
		}
		if image.reference.TagStr() != r.tag {
			return fmt.Errorf("%s is the image %s and not %s", archive, image.reference, r.tag)
		}
		r.stored = append(r.stored, image)
		platforms, err := image.platforms()
		if err != nil {
			return fmt.Errorf("reading %s, %w", archive, err)
		}
		whole := &component{kind: imageKind, name: image.reference.Repository.Name(), version: r.tag,
			purl: fmt.Sprintf("pkg:oci/%s@%s?repository_url=%s&tag=%s", image.base(), url.QueryEscape(image.descriptor.Digest.String()),
				url.QueryEscape(image.reference.Repository.Name()), r.tag),
			sha256: image.descriptor.Digest.Hex, needs: []*component{authorities}}
		for _, variant := range platforms {
			program, err := r.program(variant.program)
			if err != nil {
				return fmt.Errorf("reading the program in %s for %s, %w", archive, variant.platform, err)
			}
			whole.needs = append(whole.needs, program)
			if err := r.writeBills(fmt.Sprintf("%s-%s-%s", base, variant.platform.OS, variant.platform.Architecture), program); err != nil {
				return err
			}
		}
		if err := r.writeBills(base, whole); err != nil {
			return err
		}
	}
	return nil
}
