// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// cycloneDX is the bill of materials of a component in CycloneDX. It has no serial number, which would be a random one.
func (r *release) cycloneDX(_ string, subject *component) ([]byte, error) {
	types := map[kind]cyclonedx.ComponentType{
		moduleKind: cyclonedx.ComponentTypeLibrary, programKind: cyclonedx.ComponentTypeApplication, imageKind: cyclonedx.ComponentTypeContainer,
	}
	var components []cyclonedx.Component
	var dependencies []cyclonedx.Dependency
	for _, component := range subject.all() {
		described := cyclonedx.Component{BOMRef: component.purl, Type: types[component.kind], Name: component.name,
			Version: component.version, PackageURL: component.purl}
		if component.sha256 != "" {
			described.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: component.sha256}}
			described.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: licence}}}
		}
		components = append(components, described)
		if len(component.needs) > 0 {
			var needs []string
			for _, part := range component.needs {
				needs = append(needs, part.purl)
			}
			dependencies = append(dependencies, cyclonedx.Dependency{Ref: component.purl, Dependencies: &needs})
		}
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.created.Format(time.RFC3339), Component: &components[0]}
	rest := components[1:]
	bom.Components, bom.Dependencies = &rest, &dependencies
	var out bytes.Buffer
	// Tools know 1.6 better than the newest.
	err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}
