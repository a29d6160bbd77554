// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// TestFilesAreFresh: the copies in the charts equal their sources, and there are no other files.
func TestFilesAreFresh(t *testing.T) {
	want, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range []string{Management, Tenant} {
		var current [2][]byte
		for i, name := range []string{"Chart.yaml", "values.yaml"} {
			if current[i], err = os.ReadFile(filepath.Join(chart, name)); err != nil {
				t.Fatal(err)
			}
		}
		if want[chart+"/Chart.yaml"], err = Metadata(chart, current[0], current[1]); err != nil {
			t.Fatal(err)
		}
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

// TestArtifactHub: what is told of a chart is what it installs.
func TestArtifactHub(t *testing.T) {
	for chart, flags := range map[string][]string{Management: {"--set=page.enabled=true"}, Tenant: {"--set=target=tenant"}} {
		content, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var metadata struct {
			Home, Icon  string
			Maintainers []struct{ Name, URL string }
			Annotations map[string]string
		}
		if err := yaml.Unmarshal(content, &metadata); err != nil {
			t.Fatal(err)
		}
		_, icon, _ := strings.Cut(metadata.Icon, "/main/charts/")
		if _, err := os.Stat(icon); icon == "" || err != nil || len(metadata.Maintainers) == 0 {
			t.Errorf("%s has the icon %q and the maintainers %v: %v", chart, metadata.Icon, metadata.Maintainers, err)
		}
		annotation := func(name string, target any) {
			t.Helper()
			if err := yaml.UnmarshalStrict([]byte(metadata.Annotations["artifacthub.io/"+name]), target); err != nil {
				t.Errorf("%s: artifacthub.io/%s: %v", chart, name, err)
			}
		}
		var crds []struct{ Kind, Version, Name, DisplayName, Description string }
		annotation("crds", &crds)
		told, installed := map[string]string{}, map[string]string{}
		for _, crd := range crds {
			if told[crd.Name] = crd.Kind + " " + crd.Version; crd.Description == "" || crd.DisplayName == "" {
				t.Errorf("%s: nothing is said of %s", chart, crd.Name)
			}
		}
		objects := render(t, chart, flags...)
		for name, crd := range ofKind[apiextensionsv1.CustomResourceDefinition](t, objects, "CustomResourceDefinition") {
			for _, version := range crd.Spec.Versions {
				if version.Storage {
					installed[name] = crd.Spec.Names.Kind + " " + version.Name
				}
			}
		}
		if diff := cmp.Diff(installed, told); diff != "" || len(told) == 0 {
			t.Errorf("%s: definitions (-want +got):\n%s", chart, diff)
		}
		var images []struct {
			Name, Image string
			Platforms   []string
		}
		annotation("images", &images)
		told, installed = map[string]string{}, map[string]string{}
		for _, image := range images {
			told[image.Name] = image.Image
		}
		programs := objects
		if chart == Tenant { // the definitions are for one cluster, and the program is in the other
			programs = render(t, chart)
		}
		for _, deployment := range ofKind[appsv1.Deployment](t, programs, "Deployment") {
			container := deployment.Spec.Template.Spec.Containers[0]
			installed[container.Name] = container.Image
		}
		if diff := cmp.Diff(installed, told); diff != "" || len(told) == 0 {
			t.Errorf("%s: images (-want +got):\n%s", chart, diff)
		}
		var links []struct{ Name, URL string }
		annotation("links", &links)
		for _, link := range links {
			_, path, _ := strings.Cut(link.URL, metadata.Home+"/blob/main/")
			if _, err := os.Stat(filepath.Join("..", path)); path == "" || err != nil {
				t.Errorf("%s: the link %s: %v", chart, link.URL, err)
			}
		}
		var changes []struct{ Kind, Description string }
		annotation("changes", &changes)
		for _, change := range changes {
			if change.Description == "" ||
				!slices.Contains([]string{"added", "changed", "deprecated", "removed", "fixed", "security"}, change.Kind) {
				t.Errorf("%s: Artifact Hub does not know the change %+v", chart, change)
			}
		}
		if metadata.Annotations["artifacthub.io/license"] != "Apache-2.0" {
			t.Errorf("%s has the annotations %v", chart, metadata.Annotations)
		}
	}
}

// TestEveryValueIsDescribed: README.md is made of the values and their comments, and has no value without one.
func TestEveryValueIsDescribed(t *testing.T) {
	row := regexp.MustCompile(`^\| ([A-Za-z.]+) \| [a-z/]+ \| .* \| (.*) \|$`)
	for _, chart := range []string{Management, Tenant} {
		readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		described := map[string]bool{}
		for line := range strings.Lines(string(readme)) {
			if found := row.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
				if described[found[1]] = true; strings.TrimSpace(found[2]) == "" {
					t.Errorf("%s says nothing of %s: its comment begins with two dashes", chart, found[1])
				}
			}
		}
		content, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var values map[string]any
		if err := yaml.Unmarshal(content, &values); err != nil {
			t.Fatal(err)
		}
		var check func(path string, value any)
		check = func(path string, value any) {
			below, _ := value.(map[string]any)
			if described[path] {
				return
			}
			if len(below) == 0 {
				t.Errorf("the README of %s does not have %s: run 'make generate'", chart, path)
			}
			for key, value := range below {
				check(strings.TrimPrefix(path+"."+key, "."), value)
			}
		}
		check("", values)
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
		"Management":   {chart: Management, want: 10},
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
