// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

// The images in testdata were made by the command that Ironic makes its config drives with:
// genisoimage -ldots -allow-lowercase -allow-multidot -l -publisher ironic -quiet -J -r -V LABEL DIRECTORY.
func placeISO(t *testing.T, name, target string) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	reader, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConfigDriveUnpack(t *testing.T) {
	o, root := Options{Server: boot.Server{Dir: t.TempDir(), MAC: "52:54:00:00:00:01"}}, t.TempDir()
	placeISO(t, "config-drive.iso.gz", o.ConfigDrive())
	seed := filepath.Join(root, configDriveSeed)
	if err := writeFile(filepath.Join(seed, "openstack/latest/left-over"), []byte("of another installation"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeConfigDrive(o, root); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		got[name] = strings.TrimSpace(string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		configDriveSeed + "/openstack/latest/meta_data.json":    `{"uuid":"6e1f0d6a","name":"server-1","hostname":"server-1"}`,
		configDriveSeed + "/openstack/latest/network_data.json": `{"links":[],"networks":[{"id":"address","type":"ipv4","link":"boot","ip_address":"10.0.0.9","netmask":"255.255.255.0"}],"services":[]}`,
		configDriveSeed + "/openstack/latest/user_data":         "#cloud-config\nhostname: a-name-that-is-longer-than-eight-and-three",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the unpacked files differ from the config drive, -want +got:\n%s", diff)
	}
}

func TestInvalidConfigDrive(t *testing.T) {
	cases := map[string]struct {
		reason, image, want string
	}{
		"OtherLabel": {reason: "cloud-init would ignore a drive with another label.", image: "other-label.iso.gz",
			want: "is labelled \"cidata\""},
		"NoISO": {reason: "A damaged image is an error before the boot.", want: "is not an ISO 9660 image"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config-drive.iso")
			if tc.image != "" {
				placeISO(t, tc.image, path)
			} else if err := os.WriteFile(path, []byte("H4sIAAAAAAAA"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := unpackConfigDrive(path, filepath.Join(t.TempDir(), "seed")); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}
