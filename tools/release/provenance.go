// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"runtime"
	"strings"
)

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
