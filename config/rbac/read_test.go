// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	role := "# a comment\n---\nkind: ClusterRole\nmetadata: {name: a}\n---\nkind: Role\nmetadata: {name: b, namespace: \"{{ .Namespace }}\"}\n"
	files := fstest.MapFS{
		"good.yaml": {Data: []byte(role)},
		"typo.yaml": {Data: []byte(strings.ReplaceAll(role, ".Namespace", ".Namspace"))},
	}
	rights, err := Read(files, "good.yaml", "tenant-a")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range rights {
		got = append(got, object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
	}
	if diff := cmp.Diff([]string{"ClusterRole /a", "Role tenant-a/b"}, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	for _, file := range []string{"typo.yaml", "missing.yaml"} {
		if _, err := Read(files, file, "tenant-a"); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("the error of %s is %v, want one that names it", file, err)
		}
	}
}
