// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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

// writeProvenance writes what the files were made of and how. It has neither the time nor the machine of the build: they would be
// different each time.
func (r *release) writeProvenance() error {
	files, err := r.sums()
	if err != nil {
		return err
	}
	type digests map[string]string
	var subjects []map[string]any
	for _, file := range files {
		subjects = append(subjects, map[string]any{"name": file.name, "digest": digests{"sha256": file.hex}})
	}
	for _, stored := range r.stored {
		subjects = append(subjects, map[string]any{
			"name": stored.reference.Repository.Name(), "digest": digests{"sha256": stored.descriptor.Digest.Hex},
		})
	}
	page := r.source + "/blob/main/docs/release.md"
	// A statement of in-toto, with a predicate of SLSA.
	content, err := json.MarshalIndent(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1", "subject": subjects,
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          page + "#provenance",
				"externalParameters": map[string]string{"target": "release", "tag": r.tag, "version": r.version},
				"resolvedDependencies": []map[string]any{
					{"uri": "git+" + r.source + "@" + r.revision, "digest": digests{"gitCommit": r.revision}},
					{"uri": "pkg:generic/go@" + strings.TrimPrefix(runtime.Version(), "go")},
				},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": page + "#builder"}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return r.file(provenanceFile, append(content, '\n'))
}
