// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The table is made by vCluster's own code.
func TestHostNamesAreVClusters(t *testing.T) {
	content, err := os.ReadFile("testdata/names.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct{ Name, Namespace, Tenant, Host, HostShort, ReleaseLabel string }
	if err := json.Unmarshal(content, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) < 200 {
		t.Fatalf("the table has %d rows only", len(rows))
	}
	same := 0
	for _, row := range rows {
		got, err := HostName(row.Name, row.Namespace, row.Tenant)
		if err != nil {
			// What can be read in two ways is the one thing where we differ.
			if !strings.HasPrefix(row.Namespace, "x-") && !strings.HasPrefix(row.Tenant, "x-") && !strings.HasSuffix(row.Name, "-x") {
				t.Errorf("%s/%s of %s is refused: %v", row.Namespace, row.Name, row.Tenant, err)
			}
			continue
		}
		same++
		if got != row.Host {
			t.Errorf("%s/%s of %s is %s, want %s", row.Namespace, row.Name, row.Tenant, got, row.Host)
		}
		if got, err := HostNameShort(row.Name, row.Namespace, row.Tenant); err != nil || got != row.HostShort || !IsShort(got) {
			t.Errorf("%s/%s of %s is %s for short, and error %v, want %s", row.Namespace, row.Name, row.Tenant, got, err, row.HostShort)
		}
		if got := labelKey("release", row.Tenant); got != row.ReleaseLabel {
			t.Errorf("the label release of %s is %s, want %s", row.Tenant, got, row.ReleaseLabel)
		}
	}
	t.Logf("%d names of %d are vCluster's", same, len(rows))
}

func TestHostName(t *testing.T) {
	for name, tc := range map[string]struct {
		reason                  string
		name, namespace, tenant string
		want, wantErr           string
	}{
		"Plain":            {"the rule", "gpu", "ml", "blue", "gpu-x-ml-x-blue", ""},
		"LettersX":         {"x in x is x-x-x", "x", "x", "t", "", "also be that of another"},
		"Inside":           {"a-x-b in c is a in b-x-c", "a-x-b", "c", "blue", "", "also be that of another"},
		"InsideNamespace":  {"and the other way round", "a", "b-x-c", "blue", "", "also be that of another"},
		"EndOfName":        {"a-x in ml is a in x-ml", "a-x", "ml", "blue", "", "also be that of another"},
		"StartOfNamespace": {"and the other way round", "a", "x-ml", "blue", "", "also be that of another"},
		"EndOfNamespace":   {"ml-x of blue is ml of x-blue", "a", "ml-x", "blue", "", "also be that of another"},
		"StartOfTenant":    {"no name of it would be unique", "a", "ml", "x-blue", "", "choose another"},
		"SeparatorTenant":  {"no name of it would be unique", "a", "ml", "b-x-lue", "", "choose another"},
		"LongTenant":       {"it is a label's value too", "a", "ml", strings.Repeat("t", 64), "", "64 characters"},
		"NoName":           {"nothing has no name", "", "ml", "blue", "", "none may be empty"},
		"NoNamespace":      {"a claim is in a namespace", "a", "", "blue", "", "none may be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if short, err := HostNameShort(tc.name, tc.namespace, tc.tenant); (err != nil) != (tc.wantErr != "") || IsShort(short) == (err != nil) {
				t.Errorf("%s: for short, got %q and error %v", tc.reason, short, err)
			}
			got, err := HostName(tc.name, tc.namespace, tc.tenant)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%s: got %q and error %v, want one with %q", tc.reason, got, err, tc.wantErr)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%s: got %q and error %v, want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

// Two different objects never have one name on the host, and every name is valid.
func FuzzHostName(f *testing.F) {
	for _, seed := range [][6]string{
		{"a-x-b", "c", "t", "a", "b-x-c", "t"},
		{"a-x", "c", "t", "a", "x-c", "t"},
		{"a", "b-x", "t", "a", "b", "x-t"},
		{"a", "b", "t", "a", "b", "u"},
		{strings.Repeat("c", 51) + ".d", "b", "t", strings.Repeat("c", 51), "d", "t"},
		{strings.Repeat("c", 253), strings.Repeat("n", 63), strings.Repeat("t", 63), strings.Repeat("c", 253), strings.Repeat("n", 63),
			strings.Repeat("t", 62)},
		{strings.Repeat("c", 42), "b", "0123456789", strings.Repeat("c", 60), "b", "0123456789"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	}
	f.Fuzz(func(t *testing.T, name1, namespace1, tenant1, name2, namespace2, tenant2 string) {
		for _, part := range []string{name1, name2, tenant1, tenant2} {
			if len(validation.IsDNS1123Subdomain(part)) > 0 {
				t.Skip()
			}
		}
		if len(validation.IsDNS1123Label(namespace1))+len(validation.IsDNS1123Label(namespace2)) > 0 {
			t.Skip()
		}
		first, err1 := HostName(name1, namespace1, tenant1)
		second, err2 := HostName(name2, namespace2, tenant2)
		for _, name := range []string{first, second} {
			if problems := validation.IsDNS1123Subdomain(name); name != "" && (len(problems) > 0 || len(name) > maxName) {
				t.Errorf("%q is not valid: %v", name, problems)
			}
		}
		different := name1 != name2 || namespace1 != namespace2 || tenant1 != tenant2
		if err1 == nil && err2 == nil && (first == second) == different {
			t.Errorf("%s/%s of %s is %q, %s/%s of %s is %q", namespace1, name1, tenant1, first, namespace2, name2, tenant2, second)
		}
	})
}

// All short names of the letters that separators are made of, against each other.
func TestShortNamesAreUnique(t *testing.T) {
	parts := []string{"x", "a", "-"}
	var words []string
	var grow func(string)
	grow = func(word string) {
		if word != "" && len(validation.IsDNS1123Label(word)) == 0 {
			words = append(words, word)
		}
		if len(word) < 5 {
			for _, part := range parts {
				grow(word + part)
			}
		}
	}
	grow("")
	seen, refused := map[string]string{}, 0
	for _, name := range words {
		for _, namespace := range words {
			for _, tenant := range []string{"x", "a", "a-x", "x-a", "a-x-a", "x-x"} {
				host, err := HostName(name, namespace, tenant)
				if err != nil {
					refused++
					continue
				}
				object := namespace + "/" + name + " of " + tenant
				if other, ok := seen[host]; ok {
					t.Fatalf("%s and %s are both %s", object, other, host)
				}
				seen[host] = object
			}
		}
	}
	if len(seen) == 0 || refused == 0 {
		t.Fatal("nothing was compared")
	}
	t.Logf("%d names, all different; %d refused", len(seen), refused)
}

// TestCounts: what counts in the limit of a tenant's copies.
func TestCounts(t *testing.T) {
	marker := func(tenant string) map[string]string { return map[string]string{MarkerLabel: tenant} }
	extended := func(value string) map[string]string {
		return map[string]string{resourcev1.ExtendedResourceClaimAnnotation: value}
	}
	for name, tc := range map[string]struct {
		reason string
		meta   metav1.ObjectMeta
		want   bool
	}{
		"Copy":      {"it is the tenant's", metav1.ObjectMeta{Labels: marker("blue")}, true},
		"Other":     {"it is another tenant's", metav1.ObjectMeta{Labels: marker("red")}, false},
		"Extended":  {"kube-scheduler has made it, for a pod of the namespace", metav1.ObjectMeta{Annotations: extended("true")}, true},
		"Forged":    {"kube-scheduler writes no other value", metav1.ObjectMeta{Annotations: extended("no")}, false},
		"Platforms": {"it is no tenant's", metav1.ObjectMeta{}, false},
	} {
		if got := Counts(&metav1.PartialObjectMetadata{ObjectMeta: tc.meta}, "blue"); got != tc.want {
			t.Errorf("%s: got %v: %s", name, got, tc.reason)
		}
	}
}
