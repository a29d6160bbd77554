// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

// A kind of component.
type kind int

const (
	moduleKind kind = iota
	programKind
	imageKind
)

// component is a part of what is released, with the parts that it needs. Licences are said of our own parts only.
type component struct {
	kind                kind
	name, version, purl string
	// sha256 is empty for modules: programs have parts of them.
	sha256 string
	needs  []*component
}

// all are a component and the parts of it, which follow in the order of their package URLs, each once.
func (c *component) all() []*component {
	parts := map[string]*component{}
	var collect func(*component)
	collect = func(component *component) {
		for _, part := range component.needs {
			parts[part.purl] = part
			collect(part)
		}
	}
	collect(c)
	sorted := []*component{c}
	for _, part := range parts {
		sorted = append(sorted, part)
	}
	slices.SortFunc(sorted[1:], func(a, b *component) int { return strings.Compare(a.purl, b.purl) })
	return sorted
}

func module(path, version string) *component {
	return &component{kind: moduleKind, name: path, version: version,
		purl: "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")}
}

// program is the component of a program, with the modules that Go has written into it, and Go's own library.
func (r *release) program(content []byte) (*component, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	subpath := strings.TrimPrefix(strings.TrimPrefix(info.Path, info.Main.Path), "/")
	program := &component{kind: programKind, name: info.Path, version: r.version, sha256: digest(content),
		purl:  fmt.Sprintf("%s?goarch=%s&goos=%s#%s", module(info.Main.Path, r.version).purl, settings["GOARCH"], settings["GOOS"], subpath),
		needs: []*component{module("std", strings.TrimPrefix(info.GoVersion, "go"))}}
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		program.needs = append(program.needs, module(dependency.Path, dependency.Version))
	}
	return program, nil
}

// authoritiesModule has the public authorities that are put into each image.
const authoritiesModule = "golang.org/x/crypto/x509roots/fallback"

// authorities is the component of the authorities. Images are made by this program, too, which is built with their module.
func authorities() (*component, error) {
	own, _ := debug.ReadBuildInfo()
	for _, dependency := range own.Deps {
		if dependency.Path == authoritiesModule {
			return module(dependency.Path, dependency.Version), nil
		}
	}
	return nil, fmt.Errorf("this program was built without %s", authoritiesModule)
}

// writeBills writes the bill of materials of a component in both formats.
func (r *release) writeBills(name string, subject *component) error {
	for suffix, format := range map[string]func(string, *component) ([]byte, error){".cdx.json": r.cycloneDX, ".spdx.json": r.spdx} {
		content, err := format(name, subject)
		if err != nil {
			return fmt.Errorf("writing the bill of materials of %s, %w", name, err)
		}
		if err := r.file(name+suffix, content); err != nil {
			return err
		}
	}
	return nil
}

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

// licence of our own parts.
const licence = "Apache-2.0"

const noAssertion = "NOASSERTION"

// spdx is the bill of materials of a component in SPDX. The namespace of the document, which must be one of its own, has the sum of
// what it describes.
func (r *release) spdx(name string, subject *component) ([]byte, error) {
	purposes := map[kind]string{moduleKind: "LIBRARY", programKind: "APPLICATION", imageKind: "CONTAINER"}
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: fmt.Sprintf("%s/spdx/%s-%s-%s", r.source, name, r.tag, subject.sha256),
		CreationInfo: &spdx.CreationInfo{Created: r.created.Format(time.RFC3339),
			Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "karpenter-provider-metal3-release"}}},
	}
	relate := func(a spdx.ElementID, relationship string, b spdx.ElementID) {
		document.Relationships = append(document.Relationships, &spdx.Relationship{RefA: spdx.DocElementID{ElementRefID: a},
			RefB: spdx.DocElementID{ElementRefID: b}, Relationship: relationship})
	}
	parts := subject.all()
	ids := map[string]spdx.ElementID{}
	for i, part := range parts {
		ids[part.purl] = spdx.ElementID(fmt.Sprintf("Package-%d", i))
	}
	relate(document.SPDXIdentifier, common.TypeRelationshipDescribe, ids[subject.purl])
	for _, component := range parts {
		described := &spdx.Package{
			PackageName: component.name, PackageSPDXIdentifier: ids[component.purl], PackageVersion: component.version,
			PrimaryPackagePurpose:   purposes[component.kind],
			PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion,
			PackageCopyrightText: noAssertion,
			PackageExternalReferences: []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager,
				RefType: common.TypePackageManagerPURL, Locator: component.purl}},
		}
		if component.sha256 != "" {
			described.PackageChecksums = []spdx.Checksum{{Algorithm: spdx.SHA256, Value: component.sha256}}
			described.PackageLicenseDeclared = licence
		}
		document.Packages = append(document.Packages, described)
		relationship := common.TypeRelationshipDependsOn
		if component.kind == imageKind {
			relationship = common.TypeRelationshipContains
		}
		for _, part := range component.needs {
			relate(ids[component.purl], relationship, ids[part.purl])
		}
	}
	if err := spdxlib.ValidateDocument(document); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := json.Write(document, &out, json.Indent("  "), json.EscapeHTML(false))
	return out.Bytes(), err
}
