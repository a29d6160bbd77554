// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

var root = filepath.Join("..", "..")

func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, text string
		want         []string
		fails        string
	}{
		"All":      {reason: "it is the default", want: pairs},
		"One":      {reason: "to look into a failure", text: "1.37/1.36", want: []string{"1.37/1.36"}},
		"Two":      {reason: "in the order that is given", text: "1.37/1.37,1.36/1.37", want: []string{"1.37/1.37", "1.36/1.37"}},
		"Unknown":  {reason: "nothing builds this version", text: "1.20/1.37", fails: `-pairs has "1.20/1.37": known are 1.35/1.36, `},
		"Patch":    {reason: "the patch release is in tools/versions", text: "1.37.2/1.37.2", fails: `-pairs has "1.37.2/1.37.2"`},
		"EmptyOne": {reason: "it is a typing error", text: "1.37/1.36,", fails: `-pairs has ""`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(tc.text, time.Time{})
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s\ngot %v, want %v", tc.reason, got, tc.want)
			}
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.fails)
			}
		})
	}
}

// TestTurns: from any day on, also over the end of a year, each pair has its turn once in as many days as there are pairs.
func TestTurns(t *testing.T) {
	first := time.Date(2026, time.December, 29, 23, 30, 0, 0, time.UTC)
	var turns []string
	for day := range pairs {
		chosen, err := choose("turn", first.AddDate(0, 0, day))
		if err != nil {
			t.Fatal(err)
		}
		turns = append(turns, chosen...)
	}
	slices.Sort(turns)
	if want := slices.Sorted(slices.Values(pairs)); !slices.Equal(turns, want) {
		t.Errorf("the turns are %v, want %v", turns, want)
	}
}

// TestJourneysExist: a test that was renamed would not be run, and nothing would say so.
func TestJourneysExist(t *testing.T) {
	for _, name := range append(append(slices.Clone(journeys), laterJourneys...), upgradeJourney) {
		found := 0
		for _, folder := range []string{"e2e", "podgroups", "minorupgrade"} {
			files, err := filepath.Glob(filepath.Join(root, "test", folder, "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Fatalf("test/%s has no tests (%v)", folder, err)
			}
			for _, file := range files {
				found += strings.Count(read(t, file), "\nfunc "+name+"(t *testing.T) {\n")
			}
		}
		if found != 1 {
			t.Errorf("there are %d tests %s, want 1", found, name)
		}
	}
}

// built returns the releases of the control planes that tools has, by minor version: the one in tools/cluster, which all other tests use,
// and the ones in tools/versions. Each module has the version that its folder says, with all parts of that release.
func built(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "tools", "versions", "*", "go.mod"))
	if err != nil || len(files) == 0 {
		t.Fatalf("tools/versions has no modules (%v)", err)
	}
	releases := map[string]string{}
	for _, file := range append(files, filepath.Join(root, "tools", "cluster", "go.mod")) {
		module := read(t, file)
		found := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes v((1\.\d+)\.\d+)( // indirect)?$`).FindStringSubmatch(module)
		if found == nil {
			t.Fatalf("%s requires no k8s.io/kubernetes", file)
		}
		release, minor := found[1], found[2]
		if folder := filepath.Base(filepath.Dir(file)); folder != "cluster" && folder != minor {
			t.Errorf("%s requires Kubernetes %s", file, release)
		}
		if releases[minor] != "" {
			t.Errorf("%s has Kubernetes %s, and another module has %s", file, release, releases[minor])
		}
		releases[minor] = release
		part := "v0." + strings.TrimPrefix(release, "1.")
		for _, staged := range regexp.MustCompile(`(?m)^\tk8s\.io/\S+ => (\S+) (\S+)$`).FindAllStringSubmatch(module, -1) {
			if staged[2] != part {
				t.Errorf("%s has %s %s, want %s", file, staged[1], staged[2], part)
			}
		}
	}
	return releases
}

// TestModules: the pairs need all control planes that tools has, and no others.
func TestModules(t *testing.T) {
	needed := map[string]bool{}
	for _, pair := range pairs {
		management, tenant, _ := strings.Cut(pair, "/")
		needed[management], needed[tenant] = true, true
	}
	got, want := slices.Sorted(maps.Keys(built(t))), slices.Sorted(maps.Keys(needed))
	if !slices.Equal(got, want) {
		t.Errorf("tools has %v, and the pairs need %v", got, want)
	}
}

// TestUpgradePair: a pair that is never run, or whose tenant has no next version, would upgrade nothing.
func TestUpgradePair(t *testing.T) {
	_, tenant, _ := strings.Cut(upgradePair, "/")
	next := version.MustParseGeneric(tenant)
	newer := fmt.Sprintf("%d.%d", next.Major(), next.Minor()+1)
	if releases := built(t); !slices.Contains(pairs, upgradePair) || releases[newer] == "" {
		t.Errorf("the tenant of %s is upgraded to %s; tools has %v, and the pairs are %v", upgradePair, newer, releases, pairs)
	}
}

// TestPairsAreSaid: the page about compatibility and the workflow name these pairs and no others.
func TestPairsAreSaid(t *testing.T) {
	want := slices.Sorted(slices.Values(pairs))
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct{ Matrix struct{ Pair []string } }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(root, ".github", "workflows", "versions.yaml"))), &workflow); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(slices.Values(workflow.Jobs["versions"].Strategy.Matrix.Pair)); !slices.Equal(got, want) {
		t.Errorf("the workflow runs %v, want %v", got, want)
	}
	releases := built(t)
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| (1\\.\\d+)(\\.\\d+) \\| (1\\.\\d+)(\\.\\d+) \\| `make test-versions`").
		FindAllStringSubmatch(read(t, filepath.Join(root, "docs", "compatibility.md")), -1) {
		rows = append(rows, row[1]+"/"+row[3])
		for minor, release := range map[string]string{row[1]: row[1] + row[2], row[3]: row[3] + row[4]} {
			if releases[minor] != release {
				t.Errorf("docs/compatibility.md says %s, and tools has %q", release, releases[minor])
			}
		}
	}
	if slices.Sort(rows); !slices.Equal(rows, want) {
		t.Errorf("docs/compatibility.md has the pairs %v, want %v", rows, want)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
