// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// namespace of the releases, and name of those of the tenant's chart.
const (
	namespace = "metal"
	release   = "acme"
)

// releases are the rendered charts: each with its defaults, and with every value set.
var releases = map[string]struct {
	chart string
	flags []string
}{
	"management":            {chart: Management, flags: nil},
	"management-all":        {chart: Management, flags: []string{"--values=testdata/management-all-values.yaml"}},
	"tenant-management":     {chart: Tenant, flags: nil},
	"tenant-management-all": {chart: Tenant, flags: []string{"--values=testdata/tenant-all-values.yaml"}},
	"tenant-tenant":         {chart: Tenant, flags: []string{"--set=target=tenant"}},
	"tenant-tenant-all":     {chart: Tenant, flags: []string{"--set=target=tenant", "--values=testdata/tenant-all-values.yaml"}},
}

// binary is the path of a program in bin/.
func binary(t *testing.T, name, remedy string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is missing: run '%s'", path, remedy)
	}
	return path
}

// helm runs Helm without a cluster and without the user's configuration.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	home := t.TempDir()
	command := exec.CommandContext(t.Context(), binary(t, "helm", "make tools"), args...)
	command.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"KUBECONFIG=" + filepath.Join(home, "none")}
	var out, problems strings.Builder
	command.Stdout, command.Stderr = &out, &problems
	err = command.Run()
	return out.String(), problems.String(), err
}

func template(t *testing.T, chart string, flags ...string) string {
	t.Helper()
	out, problems, err := helm(t, append([]string{"template", release, chart, "--namespace=" + namespace}, flags...)...)
	if err != nil {
		t.Fatalf("rendering %s %v: %v\n%s", chart, flags, err, problems)
	}
	return out
}

func render(t *testing.T, chart string, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	return parse(t, template(t, chart, flags...))
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// convert returns an object in its own type.
func convert[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

// ofKind are the objects of a kind in their own type, by name.
func ofKind[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) map[string]*T {
	t.Helper()
	found := map[string]*T{}
	for _, object := range objects {
		if object.GetKind() == kind {
			found[object.GetName()] = convert[T](t, object)
		}
	}
	return found
}
