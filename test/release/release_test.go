// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

func TestRelease(t *testing.T) {
	system.Only(t)
	checkout := newCheckout(t)
	files := checkout.release(t)
	t.Run("Files", func(t *testing.T) { testFiles(t, checkout, files) })
	t.Run("Bills", func(t *testing.T) { testBills(t, checkout, files) })
	t.Run("Plugin", func(t *testing.T) { testPlugin(t, checkout, files) })
	t.Run("Provenance", func(t *testing.T) { testProvenance(t, checkout, files) })
	t.Run("Registry", func(t *testing.T) { testRegistry(t, checkout, files) })
	t.Run("TwiceTheSame", func(t *testing.T) {
		two := newCheckout(t)
		if diff := cmp.Diff(files.sums(t), two.release(t).sums(t)); diff != "" {
			t.Errorf("another checkout of the same commit makes other files:\n%s", diff)
		}
	})
	t.Run("WithoutKey", func(t *testing.T) {
		want := files.sums(t)
		maps.DeleteFunc(want, func(name, _ string) bool { return isSigned(name) || name == "SHA256SUMS" })
		if output, err := checkout.make(t, nil, "release"); err != nil {
			t.Errorf("without a key: %v\n%s", err, output)
		}
		got := files.sums(t)
		delete(got, "SHA256SUMS")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("without a key there is more missing than signatures (-with +without):\n%s", diff)
		}
	})
	t.Run("Refused", func(t *testing.T) { testRefused(t, checkout) })
}

// isSigned returns whether it is a file that a release has only with a key.
func isSigned(name string) bool {
	return name == "cosign.pub" || strings.HasSuffix(name, ".sigstore.json") || strings.HasSuffix(name, ".simplesigning.json") ||
		strings.HasSuffix(name, ".sig")
}

func testFiles(t *testing.T, c checkout, files dist) {
	var want []string
	bills := func(name string) { want = append(want, name+".cdx.json", name+".spdx.json") }
	stored := func(name string) {
		want = append(want, name+".oci.tar", name+".simplesigning.json", name+".simplesigning.json.sig")
	}
	stored(image)
	bills(image)
	for _, architecture := range []string{"amd64", "arm64"} {
		bills(image + "-linux-" + architecture)
		bills(plugin + "-linux-" + architecture)
		want = append(want, plugin+"-"+c.tag+"-linux-"+architecture+".tar.gz")
	}
	for _, chart := range []string{"karpenter-metal3", "karpenter-metal3-tenant"} {
		stored(chart)
		want = append(want, chart+"-"+c.chart+".tgz", chart+"-crds.yaml")
	}
	want = append(want, plugin+".krew.yaml", "SHA256SUMS", "SHA256SUMS.sig", "SHA256SUMS.sigstore.json", "cosign.pub",
		"provenance.json", "provenance.sigstore.json")
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files.sums(t)))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	listed := run(t, string(files), nil, "sha256sum", "--check", "--strict", "SHA256SUMS")
	if got := strings.Count(listed, ": OK\n"); got != len(want)-3 {
		t.Errorf("SHA256SUMS has %d files, want all but itself and its signatures:\n%s", got, listed)
	}
	public := publicKey(t, files.read(t, "cosign.pub"))
	if err := verify(public, files.read(t, "SHA256SUMS"), string(files.read(t, "SHA256SUMS.sig"))); err != nil {
		t.Errorf("the signature of the sums: %v", err)
	}
	var bundle struct{ MessageSignature struct{ Signature string } }
	if err := json.Unmarshal(files.read(t, "SHA256SUMS.sigstore.json"), &bundle); err != nil {
		t.Fatal(err)
	}
	if bundle.MessageSignature.Signature != string(files.read(t, "SHA256SUMS.sig")) {
		t.Errorf("the bundle has another signature: %+v", bundle)
	}
	ours, err := os.ReadFile(filepath.Join("testdata", "cosign.pub"))
	if err != nil || string(ours) != string(files.read(t, "cosign.pub")) {
		t.Errorf("cosign.pub is not what cosign has written of the key: %v", err)
	}
	for _, chart := range []string{"karpenter-metal3", "karpenter-metal3-tenant"} {
		definitions, err := filepath.Glob(filepath.Join("..", "..", "charts", chart, "files", "generated", "crds", "*.yaml"))
		if err != nil || len(definitions) == 0 {
			t.Fatalf("chart %s has %d definitions, %v", chart, len(definitions), err)
		}
		if got := strings.Count(string(files.read(t, chart+"-crds.yaml")), "\nkind: CustomResourceDefinition\n"); got != len(definitions) {
			t.Errorf("the file of the definitions of %s has %d, want %d", chart, got, len(definitions))
		}
	}
}

// testRefused: it says why, and leaves what there is.
func testRefused(t *testing.T, c checkout) {
	before := dist(filepath.Join(c.dir, "dist")).sums(t)
	foreign := t.TempDir()
	write(t, filepath.Join(foreign, "photo.jpeg"), []byte("mine"))
	for name, tc := range map[string]struct {
		reason      string
		prepare     func()
		target      string // empty: release
		environment []string
		args        []string
		want        string
	}{
		"WrongPassword": {reason: "it must be known which of the two is wrong", target: "release-sign",
			environment: append(signed(t), "COSIGN_PASSWORD=other"), want: "COSIGN_PASSWORD does not decrypt it"},
		"OtherKey": {reason: "a release that is not signed would be taken for one that is", target: "release-sign",
			environment: []string{"COSIGN_KEY=" + filepath.Join(foreign, "photo.jpeg")}, want: "it is no private key of cosign"},
		"NoKey": {reason: "a release that is not signed would be taken for one that is", target: "release-sign",
			want: "COSIGN_KEY is not set"},
		"NoRelease": {reason: "signatures of nothing", target: "release-sign", environment: signed(t),
			args: []string{"RELEASE_DIR=" + foreign}, want: "is no release"},
		"KeyForAll":      {reason: "the compiler and Helm would have it", environment: signed(t), want: "make release-sign` alone"},
		"FolderOfOthers": {reason: "the folder is replaced", args: []string{"RELEASE_DIR=" + foreign}, want: "is no release"},
		"OtherTag": {reason: "the images would have another version than the charts run", args: []string{"IMAGE_TAG=v9.9.9"},
			want: "the commit has the tag " + c.tag},
		"Dirty": {reason: "it could not be made again", want: "changes that no commit has",
			prepare: func() { write(t, filepath.Join(c.dir, "README.md"), []byte("changed")) }},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.prepare != nil {
				tc.prepare()
				defer c.git(t, "checkout", "--quiet", "README.md")
			}
			target := "release"
			if tc.target != "" {
				target = tc.target
			}
			output, err := c.make(t, tc.environment, append([]string{target}, tc.args...)...)
			if err == nil || !strings.Contains(output, tc.want) {
				t.Errorf("%s: %v, want %q in\n%s", tc.reason, err, tc.want, output)
			}
			if strings.Contains(output, password) || strings.Contains(output, "PRIVATE KEY-----") {
				t.Errorf("it prints the key or its password:\n%s", output)
			}
		})
	}
	if diff := cmp.Diff(before, dist(filepath.Join(c.dir, "dist")).sums(t)); diff != "" {
		t.Errorf("what was refused changed the release that was there:\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(foreign, "photo.jpeg")); err != nil {
		t.Error(err)
	}
}
