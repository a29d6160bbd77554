// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

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
