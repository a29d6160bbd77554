// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Files of a release that its other parts look for.
const (
	sumsFile          = "SHA256SUMS"
	publicKeyFile     = "cosign.pub"
	provenanceFile    = "provenance.json"
	attestationFile   = "provenance.sigstore.json"
	archiveSuffix     = ".oci.tar"
	payloadSuffix     = ".simplesigning.json"
	signatureSuffix   = ".sig"
	bundleSuffix      = ".sigstore.json"
	helmConfig        = "application/vnd.cncf.helm.config.v1+json"
	chartsPath        = "charts/"
	generatedCRDsPath = "files/generated/crds"
)

// release is what a release is made of.
type release struct {
	repository, images, programs, helm       string
	registry, tag, version, revision, source string
	// names are those of the images, and plugins the folders of the plugin's commands in the repository.
	names, plugins []string
	platforms      []v1.Platform
	created        time.Time
	dir, scratch   string
	// stored are the images and charts, in the order in which they were written.
	stored []*stored
}

// write writes the files into dir, an empty folder. It leaves what it needs meanwhile in scratch.
func (r *release) write(dir, scratch string) error {
	r.dir, r.scratch = dir, scratch
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"images", r.writeImages},
		{"charts", r.writeCharts},
		{"plugin", r.writePlugins},
		{"provenance", r.writeProvenance},
		{"sums", r.writeSums},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("writing the %s, %w", step.what, err)
		}
	}
	fmt.Println("nothing is signed yet: make release-sign")
	return nil
}

// file writes a file of the release.
func (r *release) file(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.dir, name), content, 0o644)
}

// sum is the SHA-256 of a file of the release.
type sum struct{ name, hex string }

// sums are those of the files that are there, by name.
func (r *release) sums() ([]sum, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var all []sum
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, sum{entry.Name(), digest(content)})
	}
	return all, nil
}

func digest(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

// writeSums writes what sha256sum -c reads.
func (r *release) writeSums() error {
	all, err := r.sums()
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, sum := range all {
		if !strings.HasPrefix(sum.name, sumsFile) {
			fmt.Fprintf(&list, "%s  %s\n", sum.hex, sum.name)
		}
	}
	return r.file(sumsFile, list.Bytes())
}
