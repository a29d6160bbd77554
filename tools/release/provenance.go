// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"runtime"
	"strings"
)

// The types of in-toto and SLSA with the fields that are used.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     predicate  `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	predicate struct {
		BuildDefinition buildDefinition `json:"buildDefinition"`
		RunDetails      runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	}
	runDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	}
)

// writeProvenance writes what the files were made of and how, and with a key the same in a signed envelope. It has neither the time nor the
// machine of the build: they would be different each time.
func (r *release) writeProvenance() error {
	files, err := r.sums()
	if err != nil {
		return err
	}
	page := r.source + "/blob/main/docs/release.md"
	is := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, one := range files {
		is.Subject = append(is.Subject, resource{Name: one.name, Digest: map[string]string{"sha256": one.hex}})
	}
	for _, one := range r.stored {
		is.Subject = append(is.Subject, resource{Name: one.reference.Repository.Name(),
			Digest: map[string]string{"sha256": one.descriptor.Digest.Hex}})
	}
	is.Predicate.BuildDefinition = buildDefinition{
		BuildType:          page + "#provenance",
		ExternalParameters: map[string]string{"target": "release", "tag": r.tag, "version": r.version},
		ResolvedDependencies: []resource{
			{URI: "git+" + r.source + "@" + r.revision, Digest: map[string]string{"gitCommit": r.revision}},
			{URI: "pkg:generic/go@" + strings.TrimPrefix(runtime.Version(), "go")},
		},
	}
	is.Predicate.RunDetails.Builder.ID = page + "#builder"
	content, err := json.MarshalIndent(is, "", "  ")
	if err != nil {
		return err
	}
	if err := r.file(provenanceFile, append(content, '\n')); err != nil || r.key == nil {
		return err
	}
	signed, err := r.key.attestation(content)
	if err != nil {
		return err
	}
	return r.file(attestationFile, signed)
}
