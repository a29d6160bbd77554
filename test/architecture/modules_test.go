// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesShareVersions: modules with the same Kubernetes have the same version of what most of Kubernetes is compiled with. A library
// that differs in one of them has all packages above it compiled once more, which takes minutes of a build from nothing.
func TestModulesShareVersions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "tools", "*", "go.mod"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no modules (%v)", err)
	}
	type shared struct{ kubernetes, module string }
	first, inFile := map[shared]string{}, map[shared]string{}
	pairs := 0
	for _, file := range append([]string{filepath.Join(root, "go.mod")}, files...) {
		versions := versionsOf(t, file)
		kubernetes := versions["k8s.io/client-go"]
		for module, version := range versions {
			key := shared{kubernetes, module}
			switch host, _, _ := strings.Cut(module, "/"); {
			case kubernetes == "", host != "golang.org" && host != "google.golang.org" && host != "k8s.io" && host != "sigs.k8s.io":
			case first[key] == "":
				first[key], inFile[key] = version, file
			case first[key] != version:
				t.Errorf("%s has %s %s and %s has %s, with the same Kubernetes: run go get %s@VERSION with the greater in the other's folder, "+
					"and go mod tidy", file, module, version, inFile[key], first[key], module)
			default:
				pairs++
			}
		}
	}
	if pairs < 100 {
		t.Errorf("%d versions are shared: the test does not read the files", pairs)
	}
}

// versionsOf returns the versions that a go.mod file selects, by module.
func versionsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	type version struct{ Path, Version string }
	var mod struct {
		Require []version
		Replace []struct{ Old, New version }
	}
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, required := range mod.Require {
		versions[required.Path] = required.Version
	}
	for _, replaced := range mod.Replace {
		versions[replaced.Old.Path] = replaced.New.Version
	}
	return versions
}
