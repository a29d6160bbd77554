// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Examples in the documentation are admitted in a cluster with only the objects that they refer to: no rule may reject
// what users copy.
func TestExamplesAreAdmitted(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	seen := map[string]int{}
	for _, dir := range []string{"examples", "docs"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, document := range documentsIn(path, string(text)) {
				kind, result := judged(document)
				seen[kind]++
				for _, fault := range result.Errors {
					// The servers that pins are on are not here.
					if !strings.Contains(fault.Detail, "there is no BareMetalHost of this name") {
						t.Errorf("%s: %s is refused: %v", path, kind, fault)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"NodeProvider", "Machine", "TenantCluster", "OSImage", "SSHKey", "MachineConfigTemplate"} {
		if seen[kind] == 0 {
			t.Errorf("no %s was found: %v", kind, seen)
		}
	}
	t.Logf("judged %v", seen)
}

// documentsIn are the YAML documents of a file, and those in the blocks of a page.
func documentsIn(path, text string) []string {
	var documents []string
	switch filepath.Ext(path) {
	case ".yaml":
		documents = strings.Split(text, "\n---\n")
	case ".md":
		for _, block := range strings.Split(text, "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			documents = append(documents, strings.Split(block, "\n---\n")...)
		}
	}
	return documents
}

// judged is the kind of a document, and what is said of it. It is not ours if the kind is empty.
func judged(document string) (string, Result) {
	var header struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if yaml.Unmarshal([]byte(document), &header) != nil || header.APIVersion != v1alpha1.GroupVersion.String() {
		return "", Result{}
	}
	cluster := &memory{inventory: inventory.NewInventory(inventory.Options{}),
		labels: map[string]string{v1alpha1.StandAloneMachinesLabelKey: v1alpha1.StandAloneMachinesLabelValue}}
	switch header.Kind {
	case "NodeProvider":
		return header.Kind, judgeDocument(document, func(o *v1alpha1.NodeProvider) Result { return NodeProvider(cluster, nil, o) })
	case "NodeType":
		return header.Kind, judgeDocument(document, func(o *v1alpha1.NodeType) Result { return NodeType(cluster, nil, o) })
	case "Machine":
		return header.Kind, judgeDocument(document, func(o *v1alpha1.Machine) Result { return Machine(cluster, nil, o) })
	case "TenantCluster":
		return header.Kind, judgeDocument(document, func(o *v1alpha1.TenantCluster) Result { return TenantCluster(cluster, nil, o) })
	case "OSImage":
		return header.Kind, judgeDocument(document, func(o *v1alpha1.OSImage) Result { return OSImage(cluster, nil, o) })
	case "SSHKey":
		return header.Kind, judgeDocument(document, func(o *v1alpha1.SSHKey) Result { return SSHKey(cluster, nil, o) })
	case "MachineConfigTemplate":
		return header.Kind, judgeDocument(document,
			func(o *v1alpha1.MachineConfigTemplate) Result { return MachineConfigTemplate(cluster, nil, o) })
	}
	return "", Result{}
}

// judgeDocument judges a document. One that is a part of an object, as pages have, says nothing.
func judgeDocument[T any](document string, judge func(*T) Result) Result {
	object := new(T)
	if yaml.Unmarshal([]byte(document), object) != nil {
		return Result{}
	}
	return judge(object)
}
