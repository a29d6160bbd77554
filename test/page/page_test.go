// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = "# Title\n```console\nbefore\n```\n## One\n```console\necho acme $KUBECONFIG\n```\ntext\n```yaml\na: 1\n```\n" +
	"<!-- not run: it is\nnot a comment -->\n<!-- not run: it never ends -->\n\n```console\nkubectl\n## not a title\n```\n" +
	"<!-- not run: of another section -->\n## Two\n```sh\nfalse\necho more\n```\n"

func TestBlocks(t *testing.T) {
	want := []Block{
		{Section: "", Language: "console", Line: 2, Lines: []string{"before"}},
		{Section: "One", Language: "console", Line: 6, Lines: []string{"echo acme $KUBECONFIG"}},
		{Section: "One", Language: "yaml", Line: 10, Lines: []string{"a: 1"}},
		{Section: "One", Language: "console", Line: 17, Lines: []string{"kubectl", "## not a title"}, NotRun: "it never ends"},
		{Section: "Two", Language: "sh", Line: 23, Lines: []string{"false", "echo more"}},
	}
	if diff := cmp.Diff(want, Blocks(example)); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	bin, file, program := filepath.Join(dir, "bin"), filepath.Join(dir, "example.md"), "#!/bin/sh\ncat charts/file; echo \"in $HOME\"\n"
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{file: example, filepath.Join(bin, "kubectl"): program, filepath.Join(bin, "file"): "a chart, "}
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := Config{
		File: file, Dir: filepath.Join(dir, "page"), Bin: bin, Kubeconfig: "/kubeconfig", Links: map[string]string{"charts": bin},
		Names: []string{"acme", "tenant-a"},
	}
	p, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.Follow(t.Context(), "One", 2, "echo tenant-a", "echo of tenant-a")
	if want := "of tenant-a /kubeconfig\na chart, in " + filepath.Join(dir, "page", "home") + "\n"; err != nil || output != want {
		t.Errorf("section One prints %q (%v), want %q", output, err, want)
	}
	if output, err = p.Follow(t.Context(), "Two", 1); err == nil || output != "" || !strings.Contains(err.Error(), "false\necho more") {
		t.Errorf("section Two prints %q (%v), want that its first command fails and ends it", output, err)
	}
	const want = `has 1 blocks of commands in section "Two", want 2`
	if _, err = p.Follow(t.Context(), "Two", 2); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a section with another number of blocks gives %v", err)
	}
	if _, err := Open(config); err != nil {
		t.Errorf("opening the page again in its folder, %v", err)
	}
}
