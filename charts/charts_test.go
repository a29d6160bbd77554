// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// TestFilesAreFresh: the copies in the charts equal their sources, and there are no other files.
func TestFilesAreFresh(t *testing.T) {
	want, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%v: run 'make generate'", err)
			continue
		}
		if diff := cmp.Diff(string(content), string(got)); diff != "" {
			t.Errorf("%s is stale, run 'make generate' (-want +got):\n%s", name, diff)
		}
	}
	for _, chart := range []string{Management, Tenant} {
		err := filepath.WalkDir(filepath.Join(chart, Generated), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && want[filepath.ToSlash(path)] == nil {
				t.Errorf("%s is made of nothing any more: run 'make generate'", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestLint(t *testing.T) {
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			out, problems, err := helm(t, append([]string{"lint", "--strict", tc.chart, "--namespace=" + namespace}, tc.flags...)...)
			if err != nil || strings.Contains(out, "[WARNING]") {
				t.Errorf("helm lint: %v\n%s%s", err, out, problems)
			}
		})
	}
}

// TestGolden shows what the charts install by default, except the CRDs, which are in pkg/apis.
func TestGolden(t *testing.T) {
	for name, tc := range releases {
		if strings.HasSuffix(name, "-all") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got := template(t, tc.chart, append([]string{"--set=crds.install=false"}, tc.flags...)...)
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s is rendered otherwise; if that is right, run this test with -update (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestDefinitionsStay: deleting a CRD deletes all its objects, and with them the claims on servers.
func TestDefinitionsStay(t *testing.T) {
	for name, tc := range map[string]struct {
		flags []string
		chart string
		want  int
	}{
		"Management":   {chart: Management, want: 9},
		"NotInstalled": {chart: Management, flags: []string{"--set=crds.install=false"}},
		"Tenant":       {chart: Tenant, flags: []string{"--set=target=tenant"}, want: 5},
		"WithDRAAlone": {chart: Tenant, flags: []string{"--set=target=tenant", "--set=controllers={dra}"}},
		"Provider":     {chart: Tenant},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			for _, object := range render(t, tc.chart, tc.flags...) {
				if object.GetKind() != "CustomResourceDefinition" {
					continue
				}
				got++
				if object.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
					t.Errorf("%s goes with the release", object.GetName())
				}
			}
			if got != tc.want {
				t.Errorf("%d definitions, want %d", got, tc.want)
			}
		})
	}
}
