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

// differ are the modules that may have two versions, each with the reason. There are none.
var differ = map[string]string{}

// TestModulesShareVersions: go.mod and tools/cluster, which `make demo` builds, select the same version of each module that both have.
// Other modules with the same Kubernetes do so for the libraries that most of Kubernetes is compiled with. A library that differs has all
// packages above it compiled once more, which takes minutes of a build from nothing.
func TestModulesShareVersions(t *testing.T) {
	files := modules(t)
	type shared struct{ kubernetes, module string }
	first, inFile := map[shared]string{}, map[shared]string{}
	pairs := 0
	for _, file := range files {
		versions := versionsOf(t, file)
		kubernetes := versions["k8s.io/client-go"]
		demo := file == files[0] || file == filepath.Join(root, "tools", "cluster", "go.mod")
		for module, version := range versions {
			key := shared{kubernetes, module}
			switch host, _, _ := strings.Cut(module, "/"); {
			case kubernetes == "", differ[module] != "":
			case !demo && host != "golang.org" && host != "google.golang.org" && host != "k8s.io" && host != "sigs.k8s.io":
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
	if pairs < 200 {
		t.Errorf("%d versions are shared: the test does not read the files", pairs)
	}
	ours := versionsOf(t, files[0])["k8s.io/client-go"]
	if cluster := versionsOf(t, filepath.Join(root, "tools", "cluster", "go.mod"))["k8s.io/client-go"]; ours != cluster {
		t.Errorf("go.mod has k8s.io/client-go %s, and tools/cluster has %s: nothing is shared", ours, cluster)
	}
}

// TestModulesShareGo: all modules ask for the same Go. Another version would compile the standard library once more.
func TestModulesShareGo(t *testing.T) {
	files := modules(t)
	want := moduleFile(t, files[0]).Go
	for _, file := range files {
		if got := moduleFile(t, file).Go; got != want {
			t.Errorf("%s asks for Go %s, and go.mod for %s: run go mod edit -go=%s in its folder", file, got, want, want)
		}
	}
}

// modules returns the go.mod files of the repository. The first one is the root's.
func modules(t *testing.T) []string {
	t.Helper()
	files := []string{filepath.Join(root, "go.mod")}
	for _, pattern := range []string{"*", filepath.Join("versions", "*")} {
		found, err := filepath.Glob(filepath.Join(root, "tools", pattern, "go.mod"))
		if err != nil || len(found) == 0 {
			t.Fatalf("there are no modules in tools/%s (%v)", pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

// versionsOf returns the versions that a go.mod file selects, by module.
func versionsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	mod := moduleFile(t, file)
	versions := map[string]string{}
	for _, required := range mod.Require {
		versions[required.Path] = required.Version
	}
	for _, replaced := range mod.Replace {
		versions[replaced.Old.Path] = replaced.New.Version
	}
	return versions
}

type moduleVersion struct{ Path, Version string }

// goMod is what the tests read of a go.mod file.
type goMod struct {
	Go      string
	Require []moduleVersion
	Replace []struct{ Old, New moduleVersion }
}

func moduleFile(t *testing.T, file string) goMod {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}
