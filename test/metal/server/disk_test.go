// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

func TestDiskIsReused(t *testing.T) {
	older, newer := time.Unix(1_700_000_000, 0), time.Unix(1_700_000_001, 0)
	cases := map[string]struct {
		reason string
		change func(t *testing.T, o Options)
		kept   bool
	}{
		"Nothing": {reason: "A server keeps its disk while it is off.", change: func(*testing.T, Options) {}, kept: true},
		"Image": {reason: "Another image empties the disk.",
			change: func(t *testing.T, o Options) { place(t, filepath.Join(o.Dir, "image"), newer) }},
		"ConfigDrive": {
			reason: "Installing the same image again gives a new config drive.",
			change: func(t *testing.T, o Options) { place(t, o.ConfigDrive(), newer) },
		},
		"NoConfigDrive": {reason: "It may have no config drive.", change: func(t *testing.T, o Options) {
			if err := os.Remove(o.ConfigDrive()); err != nil {
				t.Fatal(err)
			}
		}},
		"RootFileSystem": {
			reason: "The behaviour of an overlay with a changed lower layer is undefined.",
			change: func(t *testing.T, o Options) { place(t, filepath.Join(o.Image, ".layer"), newer) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := Options{Server: boot.Server{Dir: t.TempDir(), Image: t.TempDir()}}
			for _, path := range []string{filepath.Join(o.Dir, "image"), o.ConfigDrive(), filepath.Join(o.Image, ".layer")} {
				place(t, path, older)
			}
			if err := prepareDisk(o); err != nil {
				t.Fatal(err)
			}
			written := o.disk("upper", "written")
			place(t, written, older)
			tc.change(t, o)
			if err := prepareDisk(o); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(written); (err == nil) != tc.kept {
				t.Errorf("%s\nkept is %t, want %t", tc.reason, err == nil, tc.kept)
			}
			if _, err := os.Stat(o.disk("work")); err != nil {
				t.Errorf("the disk is not complete: %v", err)
			}
		})
	}
}

func place(t *testing.T, path string, modified time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
}
