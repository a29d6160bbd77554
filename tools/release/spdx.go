// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

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
