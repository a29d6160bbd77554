// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
)

// Disk is a block device.
type Disk struct {
	// Path of the device, such as /dev/vda.
	Path string
	// Temporary is a directory with space for an image, which is written to the disk when all of it is there, and has its checksum.
	Temporary string
}

func (d Disk) download() string { return filepath.Join(d.Temporary, "image") }

// Create erases the disk, and opens what the image is downloaded to.
func (d Disk) Create() (io.WriteCloser, error) {
	if err := d.Erase(); err != nil {
		return nil, err
	}
	return os.Create(d.download())
}

// Commit writes the downloaded image, qcow2 or raw, to the disk, and the config drive to a partition at its end.
func (d Disk) Commit(_ disk.Image, configDrive []byte) (err error) {
	image, err := os.Open(d.download())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close(), os.Remove(d.download())) }()
	device, size, err := d.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if err := copyImage(device, size, image); err != nil {
		return fmt.Errorf("writing the image to %s, %w", d.Path, err)
	}
	if len(configDrive) > 0 {
		if err := addPartition(device, size, configDrive); err != nil {
			return fmt.Errorf("writing the config drive to %s, %w", d.Path, err)
		}
	}
	return device.Sync()
}

// Erase makes the device forget all of its content: the kernel asks it to, and refuses if it cannot.
func (d Disk) Erase() (err error) {
	device, size, err := d.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if err := unix.Fallocate(int(device.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		return fmt.Errorf("erasing %s, %w", d.Path, err)
	}
	return device.Sync()
}

func (d Disk) open() (device *os.File, size int64, err error) {
	if device, err = os.OpenFile(d.Path, os.O_RDWR, 0); err != nil {
		return nil, 0, fmt.Errorf("opening the disk, %w", err)
	}
	if size, err = device.Seek(0, io.SeekEnd); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("asking for the size of %s, %w", d.Path, err), device.Close())
	}
	return device, size, nil
}

// copyImage copies an image to a disk that is erased.
func copyImage(to *os.File, size int64, image *os.File) error {
	magic := make([]byte, len(qcow2Magic))
	if _, err := image.ReadAt(magic, 0); err != nil {
		return fmt.Errorf("reading the image, %w", err)
	}
	if bytes.Equal(magic, []byte(qcow2Magic)) {
		return copyQCOW2(to, size, image)
	}
	info, err := image.Stat()
	if err != nil {
		return err
	}
	if info.Size() > size {
		return fmt.Errorf("it has %d bytes, and the disk has %d", info.Size(), size)
	}
	_, err = io.Copy(io.NewOffsetWriter(to, 0), image)
	return err
}

// What is in the first sector of a disk with a master boot record.
const (
	sector = 512
	// table is where the four partitions are described, by an entry each.
	table, entries, entry = 446, 4, 16
	// typeAt, startAt and sizeAt are where an entry has the type of the partition, its first sector, and its number of sectors.
	typeAt, startAt, sizeAt = 4, 8, 12
	// protective is the type of the only partition of a disk with another table, GPT.
	protective = 0xee
	linux      = 0x83
	signature  = "\x55\xaa"
	// alignment of partitions.
	alignment = 1 << 20
)

// addPartition adds a partition with the content at the end of a disk, to its master boot record.
func addPartition(device *os.File, size int64, content []byte) error {
	record := make([]byte, sector)
	if _, err := device.ReadAt(record, 0); err != nil {
		return err
	}
	if string(record[sector-len(signature):]) != signature {
		return errors.New("the image has no partition table: it must have a master boot record")
	}
	start := (size - int64(len(content))) / alignment * alignment
	var free []byte
	for n := range entries {
		partition := record[table+n*entry:][:entry]
		end := int64(binary.LittleEndian.Uint32(partition[startAt:])) + int64(binary.LittleEndian.Uint32(partition[sizeAt:]))
		switch {
		case partition[typeAt] == protective:
			return errors.New("the image has a partition table of type GPT: it must have a master boot record")
		case partition[typeAt] == 0 && free == nil:
			free = partition
		case partition[typeAt] != 0 && end*sector > start:
			return fmt.Errorf("partition %d of the image ends at byte %d, and the config drive begins at byte %d", n+1, end*sector, start)
		}
	}
	if free == nil {
		return fmt.Errorf("the image has %d partitions: a master boot record has no entry for one more", entries)
	}
	// Addresses of cylinders, which nobody reads, are at their maximum.
	copy(free, []byte{0, 0xfe, 0xff, 0xff, linux, 0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(free[startAt:], uint32(start/sector))
	binary.LittleEndian.PutUint32(free[sizeAt:], uint32((size-start)/sector))
	if _, err := device.WriteAt(content, start); err != nil {
		return err
	}
	_, err := device.WriteAt(record, 0)
	return err
}
