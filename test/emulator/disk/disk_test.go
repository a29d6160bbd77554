// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A disk has an image only if all of it was written: an interrupted write leaves an empty disk.
func TestHalfWritten(t *testing.T) {
	d := Disk{Dir: t.TempDir()}
	write := func() {
		t.Helper()
		file, err := d.Create()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(file, "image"); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want bool) {
		t.Helper()
		image, err := d.Installed()
		if err != nil || (image != nil) != want {
			t.Errorf("disk has %+v, %v; want one: %v", image, err, want)
		}
	}
	has(false)
	write()
	has(false)
	if err := d.Commit(Image{URL: "http://images/1"}, []byte("drive")); err != nil {
		t.Fatal(err)
	}
	has(true)
	write() // the next one, which is never finished
	has(false)
	if _, err := os.Stat(filepath.Join(d.Dir, ConfigDriveFile)); err == nil {
		t.Error("the config drive of the previous image is still there")
	}
	if err := d.Commit(Image{URL: "http://images/2"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Erase(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(d.Dir); err != nil || len(left) != 0 {
		t.Errorf("an erased disk has %v, %v", left, err)
	}
}

// The data on the disk belong to the previous tenant. They must be erased by an erase step, and by writing an image
// without one. The console log is for the operator, and stays.
func TestDiskIsErased(t *testing.T) {
	for name, empty := range map[string]func(Disk) error{
		"Erase": Disk.Erase,
		"Create": func(d Disk) error {
			file, err := d.Create()
			if err != nil {
				return err
			}
			return errors.Join(file.Close(), os.Remove(filepath.Join(d.Dir, ImageFile+partSuffix)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Disk{Dir: t.TempDir()}
			for _, path := range []string{ImageFile, ConfigDriveFile, ConsoleFile, "disk/upper/root/secret", "overlay.qcow2"} {
				path = filepath.Join(d.Dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("x"), 0o400); err != nil {
					t.Fatal(err)
				}
			}
			if err := empty(d); err != nil {
				t.Fatal(err)
			}
			left, err := os.ReadDir(d.Dir)
			if err != nil || len(left) != 1 || left[0].Name() != ConsoleFile {
				t.Errorf("left are %v, %v; want %s alone", left, err, ConsoleFile)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	d := Disk{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(d.Dir, infoFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Installed(); err == nil || !strings.Contains(err.Error(), infoFile) {
		t.Errorf("error is %v, want one that names %s", err, infoFile)
	}
	if err := (Disk{Dir: filepath.Join(d.Dir, "gone")}).Erase(); err != nil {
		t.Errorf("erasing nothing: %v", err)
	}
	if _, err := (Disk{Dir: filepath.Join(d.Dir, "gone")}).Create(); err == nil {
		t.Error("an image was written to a disk that is not there")
	}
}
