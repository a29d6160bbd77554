// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// referenceForm is one form of YAML that the documentation of the reference has, written for this project.
type referenceForm struct {
	// Name of the subtest.
	Name string `json:"name"`
	// Page of the reference, and what is written there.
	Page string `json:"page"`
	Form string `json:"form"`
	// Here is what comes of it.
	Here string `json:"here"`
	// Tests that show so, of any package.
	Tests []string `json:"tests,omitempty"`
	// Result is Works, Warns or Refused.
	Result string `json:"result"`
	// Says are the warnings, or the parts of the refusal.
	Says []string `json:"says,omitempty"`
	// StoredAs are the paths of fields that are stored in another form.
	StoredAs []string `json:"storedAs,omitempty"`
	YAML     string   `json:"yaml"`
}

// Results of a form, with how the table says it.
var referenceResults = map[string]string{"Works": "works", "Warns": "works, with a warning", "Refused": "refused"}

const (
	referenceFile = "testdata/reference/forms.yaml"
	migrationPage = "../../docs/migration.md"
	tableBegin    = "<!-- The table is written by TestReference in test/webhooks, with -update. -->\n"
	tableEnd      = "<!-- end of the table -->\n"
)

func referenceForms(t *testing.T) []referenceForm {
	t.Helper()
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	var forms []referenceForm
	if err := yaml.UnmarshalStrict(text, &forms); err != nil {
		t.Fatalf("reading %s, %v", referenceFile, err)
	}
	return forms
}

// TestReference applies each form of testdata/reference/forms.yaml as kubectl does, with strict validation of fields, to an API server
// that asks the webhook: it works, works with the warnings that the form has, or is refused with its sentences. What is accepted is stored
// as it was written.
func TestReference(t *testing.T) {
	fleet(t)
	referenceFleet(t)
	asked(t)
	names := map[string]bool{}
	for _, form := range referenceForms(t) {
		if names[form.Name] {
			t.Errorf("two forms are called %s", form.Name)
		}
		names[form.Name] = true
		t.Run(form.Name, func(t *testing.T) {
			t.Parallel()
			form.check(t)
		})
	}
}

// referenceFleet makes the servers that the forms select, and the namespace of their tenant.
func referenceFleet(t *testing.T) {
	t.Helper()
	for _, name := range []string{"rack-hosts", "acme"} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// A tenant with the defaults of a TenantCluster.
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "customer-b"}})
	create(t, parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: customer-b, name: customer-b}, spec: {apiServerEndpoint: 'b:6443'}}"))
	create(t, parse[v1alpha1.NodeProfile](t, "{metadata: {name: base-nodes}, spec: {nodeLabels: {example.com/tier: base}}}"))
	for name, labels := range map[string]map[string]string{
		"server-01": {"gpu-model": "h100", "gpu-count": "8", "tenant": "customer-a", "role": "gpu-server", "datacenter": "us-east-1"},
		"server-02": {"gpu-model": "a100", "gpu-count": "4", "role": "general-compute", "datacenter": "eu-west-1"},
	} {
		environment.CreateHost(t, env.AvailableHost("rack-hosts", name, labels))
	}
}

// check applies the form and compares what the API server answers.
func (f referenceForm) check(t *testing.T) {
	t.Helper()
	var warned []string
	result, refusal := "Works", ""
	for _, document := range strings.Split(f.YAML, "\n---\n") {
		written := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &written.Object); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		stored := written.DeepCopy()
		heard, err := dryRun(t, stored)
		warned = append(warned, heard...)
		var status apierrors.APIStatus
		switch {
		case errors.As(err, &status):
			result, refusal = "Refused", refusal+err.Error()+"\n"
		case err != nil:
			t.Fatal(err)
		default:
			for _, path := range lost(written.Object, stored.Object, "") {
				if !slices.Contains(f.StoredAs, path) {
					t.Errorf("%s is not stored as it was written", path)
				}
			}
		}
	}
	slices.Sort(warned)
	if result == "Works" && len(warned) > 0 {
		result = "Warns"
	}
	if result != f.Result {
		t.Errorf("%s: %s; want %s:\n%s\n%s", f.Form, result, f.Result, strings.Join(warned, "\n"), refusal)
	}
	if result != "Refused" {
		if diff := cmp.Diff(f.Says, warned); diff != "" {
			t.Errorf("it warns (-want +got):\n%s", diff)
		}
		return
	}
	for _, sentence := range f.Says {
		if !strings.Contains(refusal, sentence) {
			t.Errorf("it does not say %q:\n%s", sentence, refusal)
		}
	}
	if len(f.Says) == 0 {
		t.Errorf("the form does not say why it is refused:\n%s", refusal)
	}
}

// dryRun creates an object with the strict validation of kubectl, without storing it, and returns the warnings.
func dryRun(t *testing.T, object client.Object) ([]string, error) {
	t.Helper()
	heard := &warnings{}
	config := rest.CopyConfig(environment.Config)
	config.WarningHandler, config.WarningHandlerWithContext = heard, nil
	api, err := client.New(config, client.Options{Scheme: environment.Scheme, Mapper: environment.Client.RESTMapper()})
	if err != nil {
		return nil, err
	}
	err = client.WithFieldValidation(api, metav1.FieldValidationStrict).Create(t.Context(), object, client.DryRunAll)
	return heard.all(), err
}

// lost are the paths of the values that were written and are not stored. What the API server adds is not looked at.
func lost(written, stored any, path string) (paths []string) {
	switch written := written.(type) {
	case map[string]any:
		there, is := stored.(map[string]any)
		if !is {
			return []string{path}
		}
		for _, key := range slices.Sorted(maps.Keys(written)) {
			paths = append(paths, lost(written[key], there[key], strings.TrimPrefix(path+"."+key, "."))...)
		}
	case []any:
		there, is := stored.([]any)
		if !is || len(there) != len(written) {
			return []string{path}
		}
		for i := range written {
			paths = append(paths, lost(written[i], there[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
	default:
		if fmt.Sprint(written) != fmt.Sprint(stored) {
			return []string{path}
		}
	}
	return paths
}

// warnings collects what the API server warns of.
type warnings struct {
	mutex sync.Mutex
	heard []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if code == 299 && text != "" {
		w.heard = append(w.heard, text)
	}
}

func (w *warnings) all() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	slices.Sort(w.heard)
	return w.heard
}

// TestMigrationTable: the table in docs/migration.md is that of the forms.
func TestMigrationTable(t *testing.T) {
	page, err := os.ReadFile(migrationPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := bytes.Cut(page, []byte(tableBegin))
	table, after, ends := bytes.Cut(rest, []byte(tableEnd))
	if !begins || !ends {
		t.Fatalf("%s has no table between %q and %q", migrationPage, tableBegin, tableEnd)
	}
	want := referenceTable(referenceForms(t))
	if *update {
		written := slices.Concat(before, []byte(tableBegin), []byte(want), []byte(tableEnd), after)
		if err := os.WriteFile(migrationPage, written, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(table)); diff != "" {
		t.Errorf("%s is stale: write it with -update (-want +got):\n%s", migrationPage, diff)
	}
}

// referenceTable is the table of all forms, by page.
func referenceTable(forms []referenceForm) string {
	text := &strings.Builder{}
	fmt.Fprint(text, "| page | form | result | here | test |\n|---|---|---|---|---|\n")
	page := ""
	for _, form := range forms {
		shown := form.Page
		if shown == page {
			shown = ""
		}
		page = form.Page
		tests := "`TestReference/" + form.Name + "`"
		for _, test := range form.Tests {
			tests += ", `" + test + "`"
		}
		fmt.Fprintf(text, "| %s | %s | %s | %s | %s |\n", shown, form.Form, referenceResults[form.Result], form.Here, tests)
	}
	return text.String()
}
