// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// bill is what a bill of materials says, in either format.
type bill struct {
	// sum is the SHA-256 of what it describes.
	sum string
	// parts are the package URLs of everything else.
	parts []string
}

func cycloneDX(t *testing.T, content []byte) bill {
	t.Helper()
	type component struct {
		Purl   string
		Hashes []struct{ Alg, Content string }
	}
	var read struct {
		BOMFormat, SerialNumber string
		Metadata                struct{ Component component }
		Components              []component
	}
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	if read.BOMFormat != "CycloneDX" || read.SerialNumber != "" || len(read.Metadata.Component.Hashes) != 1 {
		t.Fatalf("it is %q with the serial number %q, of %+v", read.BOMFormat, read.SerialNumber, read.Metadata.Component)
	}
	found := bill{sum: read.Metadata.Component.Hashes[0].Content}
	for _, component := range read.Components {
		found.parts = append(found.parts, component.Purl)
	}
	return found
}

func spdx(t *testing.T, content []byte) bill {
	t.Helper()
	var read struct {
		SPDXVersion   string
		Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
		Packages      []struct {
			SPDXID       string
			Checksums    []struct{ ChecksumValue string }
			ExternalRefs []struct{ ReferenceLocator string }
		}
	}
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	if read.SPDXVersion != "SPDX-2.3" || len(read.Relationships) == 0 || read.Relationships[0].RelationshipType != "DESCRIBES" {
		t.Fatalf("it is %q, and does not say what it describes", read.SPDXVersion)
	}
	found := bill{}
	for _, part := range read.Packages {
		if part.SPDXID == read.Relationships[0].RelatedSPDXElement {
			found.sum = part.Checksums[0].ChecksumValue
			continue
		}
		found.parts = append(found.parts, part.ExternalRefs[0].ReferenceLocator)
	}
	return found
}

// modules are the package URLs of the modules that `go version -m` reads of a program, and of Go's own.
func modules(t *testing.T, program string) []string {
	t.Helper()
	var found []string
	add := func(path, version string) {
		found = append(found, "pkg:golang/"+path+"@"+strings.ReplaceAll(version, "+", "%2B"))
	}
	for i, line := range strings.Split(run(t, "", nil, "go", "version", "-m", program), "\n") {
		fields := strings.Fields(line)
		switch {
		case i == 0:
			add("std", strings.TrimPrefix(fields[1], "go"))
		case len(fields) > 2 && fields[0] == "=>": // it replaces the line before
			found = found[:len(found)-1]
			add(fields[1], fields[2])
		case len(fields) > 2 && fields[0] == "dep":
			add(fields[1], fields[2])
		}
	}
	slices.Sort(found)
	return found
}

func testBills(t *testing.T, c checkout, files dist) {
	var all []string
	for _, architecture := range []string{"amd64", "arm64"} {
		for name, program := range map[string]string{
			image:  filepath.Join(c.dir, "bin", "images", "programs", "linux-"+architecture, image),
			plugin: filepath.Join(c.dir, "bin", "release", "linux-"+architecture, plugin),
		} {
			name += "-linux-" + architecture
			want := bill{sum: sum(dist(filepath.Dir(program)).read(t, filepath.Base(program))), parts: modules(t, program)}
			if strings.HasPrefix(name, image) {
				if len(want.parts) < 50 {
					t.Errorf("%s has %d modules: the test reads too few", name, len(want.parts))
				}
				all = append(all, want.parts...)
			}
			for format, got := range map[string]bill{
				"CycloneDX": cycloneDX(t, files.read(t, name+".cdx.json")), "SPDX": spdx(t, files.read(t, name+".spdx.json")),
			} {
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(bill{})); diff != "" {
					t.Errorf("%s of %s (-what is in the program +what it says):\n%s", format, name, diff)
				}
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for format, got := range map[string]bill{
		"CycloneDX": cycloneDX(t, files.read(t, image+".cdx.json")), "SPDX": spdx(t, files.read(t, image+".spdx.json")),
	} {
		var programs, authorities, rest []string
		for _, part := range got.parts {
			switch {
			case strings.Contains(part, "#cmd/"+image):
				programs = append(programs, part)
			case strings.Contains(part, "/x509roots/"):
				authorities = append(authorities, part)
			default:
				rest = append(rest, part)
			}
		}
		if len(programs) != 2 || len(authorities) != 1 {
			t.Errorf("%s of the image has the programs %v and the authorities %v", format, programs, authorities)
		}
		if diff := cmp.Diff(all, rest); diff != "" {
			t.Errorf("%s of the image (-modules of its programs +what it says):\n%s", format, diff)
		}
	}
}

// testPlugin: krew would find, check and unpack the archives.
func testPlugin(t *testing.T, c checkout, files dist) {
	var manifest struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Version, ShortDescription string
			Platforms                 []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal(files.read(t, plugin+".krew.yaml"), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Metadata.Name != "metal3" || manifest.Spec.Version != c.tag ||
		!strings.HasPrefix(manifest.Spec.ShortDescription, "shows the fleet of bare-metal servers, ") {
		t.Errorf("the manifest says %+v", manifest)
	}
	if len(manifest.Spec.Platforms) != 2 {
		t.Fatalf("the manifest has %d platforms, want 2", len(manifest.Spec.Platforms))
	}
	for _, entry := range manifest.Spec.Platforms {
		platform := entry.Selector.MatchLabels.OS + "-" + entry.Selector.MatchLabels.Arch
		archive := filepath.Base(entry.URI)
		if archive != plugin+"-"+c.tag+"-"+platform+".tar.gz" {
			t.Errorf("the archive for %s is %s", platform, entry.URI)
		}
		content := files.read(t, archive)
		if sum(content) != entry.SHA256 {
			t.Errorf("the sum of %s is %s, and the manifest says %s", archive, sum(content), entry.SHA256)
		}
		program, err := unpack(content, entry.Bin)
		if err != nil {
			t.Errorf("reading %s, %v", archive, err)
		}
		if built := dist(filepath.Join(c.dir, "bin", "release", platform)).read(t, plugin); !bytes.Equal(program, built) {
			t.Errorf("%s has another program than was built", archive)
		}
	}
}

// unpack returns the content of a program in an archive.
func unpack(archive []byte, name string) ([]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for reader := tar.NewReader(unpacked); ; {
		header, err := reader.Next()
		if err != nil {
			return nil, err
		}
		if header.Name != name {
			continue
		}
		if header.FileInfo().Mode().Perm() != 0o755 {
			return nil, errors.New("it cannot be executed")
		}
		return io.ReadAll(reader)
	}
}
