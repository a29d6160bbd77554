// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
)

// size of the disk of a test, in bytes.
const size = 8 << 20

// newDisk returns a disk, a file that is full of what the last user wrote.
func newDisk(t *testing.T) Disk {
	t.Helper()
	d := Disk{Path: filepath.Join(t.TempDir(), "disk"), Temporary: t.TempDir()}
	if err := os.WriteFile(d.Path, bytes.Repeat([]byte("secret"), size/6+1)[:size], 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// write installs an image, as the agent does.
func write(t *testing.T, d Disk, image []byte, configDrive string) error {
	t.Helper()
	file, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(image); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	err = d.Commit(disk.Image{}, []byte(configDrive))
	if _, missing := os.Stat(d.download()); missing == nil {
		t.Error("the downloaded image is left in memory")
	}
	return err
}

func content(t *testing.T, d Disk) []byte {
	t.Helper()
	found, err := os.ReadFile(d.Path)
	if err != nil || len(found) != size {
		t.Fatalf("the disk has %d bytes, %v", len(found), err)
	}
	return found
}

func TestErase(t *testing.T) {
	d := newDisk(t)
	if err := d.Erase(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, d), make([]byte, size)) {
		t.Error("the disk is erased, and not all of it is zero")
	}
	missing := Disk{Path: d.Path + ".none"}
	if err := missing.Erase(); err == nil || !strings.Contains(err.Error(), missing.Path) {
		t.Errorf("there is no disk, and the error is %v", err)
	}
}

// partitioned is a raw image with these types of partitions, of 1 MiB each from 1 MiB on.
func partitioned(types ...byte) []byte {
	image := make([]byte, 4<<20)
	for n, kind := range types {
		partition := image[table+n*entry:]
		partition[typeAt] = kind
		binary.LittleEndian.PutUint32(partition[startAt:], uint32(n+1)<<20/sector)
		binary.LittleEndian.PutUint32(partition[sizeAt:], 1<<20/sector)
	}
	copy(image[sector-len(signature):], signature)
	copy(image[1<<20:], "root file system")
	return image
}

func TestWrite(t *testing.T) {
	d := newDisk(t)
	image := partitioned(linux)
	if err := write(t, d, image, "the config drive"); err != nil {
		t.Fatal(err)
	}
	found := content(t, d)
	drive := found[table+entry:][:entry]
	start, sectors := binary.LittleEndian.Uint32(drive[startAt:]), binary.LittleEndian.Uint32(drive[sizeAt:])
	if drive[typeAt] != linux || (start+sectors)*sector != size {
		t.Fatalf("the second partition is %x, from sector %d on, with %d sectors: want the end of the disk, as Linux", drive, start, sectors)
	}
	if got := found[start*sector:][:len("the config drive")]; string(got) != "the config drive" {
		t.Errorf("the second partition has %q", got)
	}
	copy(image[table+entry:], drive)
	if !bytes.Equal(found[:len(image)], image) {
		t.Error("the image is not on the disk")
	}
	if bytes.Contains(found, []byte("secret")) {
		t.Error("what the last user wrote is beside the image")
	}
}

func TestImagesThatDoNotFit(t *testing.T) {
	full := partitioned(linux)
	binary.LittleEndian.PutUint32(full[table+sizeAt:], (size-1<<20)/sector)
	cases := map[string]struct {
		reason string
		image  []byte
		want   string
	}{
		"Too large":        {"a write beyond the end fails late", make([]byte, size+1), "it has 8388609 bytes, and the disk has 8388608"},
		"Too large qcow2":  {"it is small as a file", qcow2(size+1, nil, nil), "it is a disk of 8388609 bytes, and the disk has 8388608"},
		"No table":         {"there is no place for a partition", make([]byte, 4<<20), "no partition table"},
		"GPT":              {"its master boot record is not read", partitioned(protective), "type GPT"},
		"Four partitions":  {"a record has four", partitioned(linux, linux, linux, linux), "the image has 4 partitions"},
		"No space":         {"the config drive would be in the root file system", full, "partition 1 of the image ends at byte 8388608"},
		"Empty":            {"a server would not boot", nil, "reading the image"},
		"Half a qcow2":     {"a panic would end the server", []byte(qcow2Magic), "reading its qcow2"},
		"Table is missing": {"a panic would end the server", qcow2(size, nil, nil)[:100], "reading its qcow2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := write(t, newDisk(t), tc.image, "the config drive"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: the error is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

const clusterBits = 16

// qcow2 is an image of so many bytes whose clusters, by number, have these contents. change may make it another one.
func qcow2(bytesOfDisk uint64, clusters map[int]string, change func(*qcow2Header, []uint64)) []byte {
	const cluster = 1 << clusterBits
	header := qcow2Header{
		Magic: binary.BigEndian.Uint32([]byte(qcow2Magic)), Version: 3, ClusterBits: clusterBits, Size: bytesOfDisk, FirstLevelSize: 2,
		FirstLevel: cluster,
	}
	secondLevel := make([]uint64, cluster/8)
	var data []byte
	for _, number := range slices.Sorted(maps.Keys(clusters)) {
		text := clusters[number]
		secondLevel[number] = uint64(3*cluster + len(data))
		data = append(data, append([]byte(text), make([]byte, cluster-len(text))...)...)
	}
	if change != nil {
		change(&header, secondLevel)
	}
	image := make([]byte, 3*cluster)
	for position, value := range map[int]any{0: header, cluster: []uint64{2 * cluster, 0}, 2 * cluster: secondLevel} {
		if _, err := binary.Encode(image[position:], binary.BigEndian, value); err != nil {
			panic(err)
		}
	}
	return append(image, data...)
}

func TestQCOW2(t *testing.T) {
	d := newDisk(t)
	image := qcow2(size, map[int]string{0: string(partitioned(linux)[:sector]), 1: "first", 3: "third", 5: "5"},
		func(_ *qcow2Header, secondLevel []uint64) { secondLevel[3] |= zeros })
	// The last cluster, which is not complete in the file.
	if err := write(t, d, bytes.TrimRight(image, "\x00"), ""); err != nil {
		t.Fatal(err)
	}
	found := content(t, d)
	for position, want := range map[int]string{1 << clusterBits: "first", 3 << clusterBits: "\x00", 5 << clusterBits: "5\x00\x00"} {
		if got := string(found[position:][:len(want)]); got != want {
			t.Errorf("at byte %d is %q, want %q", position, got, want)
		}
	}
	if bytes.Contains(found, []byte("secret")) {
		t.Error("what the last user wrote is where the image has nothing")
	}
}

// written has where something was written.
type written map[int64]string

func (w written) WriteAt(content []byte, position int64) (int, error) {
	w[position] = string(bytes.TrimRight(content, "\x00"))
	return len(content), nil
}

// A part of the disk that has no table of the second level is half a gigabyte.
func TestQCOW2WithoutFirstTable(t *testing.T) {
	const part = 512 << 20
	image := qcow2(2*part, map[int]string{1: "text"}, nil)
	copy(image[1<<clusterBits:], append(make([]byte, 8), image[1<<clusterBits:][:8]...))
	got := written{}
	if err := copyQCOW2(got, 2*part, bytes.NewReader(image)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written{part + 1<<clusterBits: "text"}, got); diff != "" {
		t.Errorf("on the disk (-want +got):\n%s", diff)
	}
}

func TestQCOW2ThatIsNotSupported(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*qcow2Header, []uint64)
		want   string
	}{
		"Version":      {"a later one has another form", func(h *qcow2Header, _ []uint64) { h.Version = 4 }, "version 4"},
		"Backing file": {"most of the disk would be missing", func(h *qcow2Header, _ []uint64) { h.BackingFile = 1 << 10 }, "backing file"},
		"Encryption":   {"the disk would be noise", func(h *qcow2Header, _ []uint64) { h.Encryption = 1 }, "encryption"},
		"Features":     {"the disk would be wrong", func(h *qcow2Header, _ []uint64) { h.Incompatible = 1 << 4 }, "other features"},
		"Clusters":     {"memory of any size would be taken", func(h *qcow2Header, _ []uint64) { h.ClusterBits = 40 }, "not valid"},
		"Tables":       {"memory of any size would be taken", func(h *qcow2Header, _ []uint64) { h.FirstLevelSize = 1 << 30 }, "not valid"},
		"Compression":  {"a cluster would be noise", func(_ *qcow2Header, second []uint64) { second[1] = compressed }, "compressed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := copyQCOW2(io.NewOffsetWriter(nil, 0), size, bytes.NewReader(qcow2(size, nil, tc.change)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: the error is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}
