// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// What cosign looks for beside an image.
const (
	payloadType         = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// push pushes the images, charts and signatures in a folder as they are. It needs no key, and who may push is said by Docker's
// configuration.
func push(from, registry string) error {
	archives, err := filepath.Glob(filepath.Join(from, "*"+archiveSuffix))
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return fmt.Errorf("%s has no images: run `make release`", from)
	}
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	for _, archive := range archives {
		if err := pushArchive(archive, strings.TrimSuffix(registry, "/")+"/", scratch); err != nil {
			return fmt.Errorf("pushing %s, %w", archive, err)
		}
	}
	return nil
}

func pushArchive(archive, registry, scratch string) error {
	artifact, err := openStored(archive, scratch)
	if err != nil {
		return err
	}
	chart, err := artifact.isChart()
	if err != nil {
		return err
	}
	if chart {
		registry += chartsPath
	}
	target, err := name.NewTag(registry + artifact.base() + ":" + artifact.reference.TagStr())
	if err != nil {
		return err
	}
	if err := artifact.write(target); err != nil {
		return err
	}
	signature, err := signatureOf(strings.TrimSuffix(archive, archiveSuffix) + payloadSuffix)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Printf("%s@%s, not signed\n", target, artifact.descriptor.Digest)
		return nil
	}
	if err != nil {
		return err
	}
	signatureTag := target.Tag(strings.Replace(artifact.descriptor.Digest.String(), ":", "-", 1) + ".sig")
	if err := remote.Write(signatureTag, signature, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing the signature, %w", err)
	}
	fmt.Printf("%s@%s\n", target, artifact.descriptor.Digest)
	return nil
}

// write pushes it under a name.
func (s *stored) write(target name.Tag) error {
	if !s.descriptor.MediaType.IsIndex() {
		image, err := s.layout.Image(s.descriptor.Digest)
		if err != nil {
			return err
		}
		return remote.Write(target, image, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	index, err := s.layout.ImageIndex(s.descriptor.Digest)
	if err != nil {
		return err
	}
	return remote.WriteIndex(target, index, remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// signatureOf is the image in which cosign has a signature.
func signatureOf(path string) (v1.Image, error) {
	payload, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	signature, err := os.ReadFile(path + signatureSuffix)
	if err != nil {
		return nil, err
	}
	return mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: static.NewLayer(payload, payloadType), Annotations: map[string]string{signatureAnnotation: string(signature)}})
}
