// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// qcow2Magic is what an image begins with.
const qcow2Magic = "QFI\xfb"

// qcow2Header is the beginning of an image. Tables of the first level say where those of the second are, which say where clusters are.
type qcow2Header struct {
	Magic, Version              uint32
	BackingFile                 uint64
	BackingFileSize             uint32
	ClusterBits                 uint32
	Size                        uint64
	Encryption                  uint32
	FirstLevelSize              uint32
	FirstLevel                  uint64
	Refcounts                   uint64
	RefcountClusters, Snapshots uint32
	SnapshotTable               uint64
	// Incompatible are features that a reader must know; of version 3.
	Incompatible uint64
}

const (
	minClusterBits, maxClusterBits = 9, 21
	maxFirstLevel                  = 4 << 20
	// Of an entry: where a table or a cluster is in the file, that the cluster is compressed, and that it reads as zeros.
	offsetMask, compressed, zeros = 0x00fffffffffffe00, 1 << 62, 1
)

func (h qcow2Header) validate(size int64) error {
	switch {
	case h.Version != 2 && h.Version != 3:
		return fmt.Errorf("it is qcow2 of version %d: it must be 2 or 3", h.Version)
	case h.BackingFile != 0 || h.Encryption != 0 || h.Version == 3 && h.Incompatible != 0:
		return errors.New("it is qcow2 with a backing file, encryption or other features: it must be as qemu-img convert writes it by default")
	case h.ClusterBits < minClusterBits || h.ClusterBits > maxClusterBits || h.FirstLevelSize > maxFirstLevel || h.Size > math.MaxInt64:
		return errors.New("it is not valid qcow2")
	case h.Size > uint64(size):
		return fmt.Errorf("it is a disk of %d bytes, and the disk has %d", h.Size, size)
	}
	return nil
}

// copyQCOW2 copies a disk image to a disk of so many bytes, which must be erased: what the image does not have is left as it is.
func copyQCOW2(to io.WriterAt, size int64, image io.ReaderAt) error {
	var header qcow2Header
	if err := readTable(image, 0, &header); err != nil {
		return err
	}
	if err := header.validate(size); err != nil {
		return err
	}
	firstLevel := make([]uint64, header.FirstLevelSize)
	if err := readTable(image, int64(header.FirstLevel), firstLevel); err != nil {
		return err
	}
	cluster := make([]byte, 1<<header.ClusterBits)
	secondLevel := make([]uint64, len(cluster)/8)
	end, position := int64(header.Size), int64(0)
	for _, first := range firstLevel {
		offset := int64(first & offsetMask)
		if offset == 0 {
			position += int64(len(secondLevel)) << header.ClusterBits
			continue
		}
		if err := readTable(image, offset, secondLevel); err != nil {
			return err
		}
		for _, second := range secondLevel {
			if position >= end {
				return nil
			}
			if err := copyCluster(to, position, cluster[:min(int64(len(cluster)), end-position)], image, second); err != nil {
				return err
			}
			position += int64(len(cluster))
		}
	}
	return nil
}

func copyCluster(to io.WriterAt, position int64, cluster []byte, image io.ReaderAt, described uint64) error {
	offset := int64(described & offsetMask)
	switch {
	case described&compressed != 0:
		return errors.New("it is qcow2 with compressed clusters: it must be as qemu-img convert writes it by default")
	case described&zeros != 0 || offset == 0:
		return nil
	}
	// The last cluster of the file may be shorter. What is missing reads as zeros.
	clear(cluster)
	if _, err := image.ReadAt(cluster, offset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err := to.WriteAt(cluster, position)
	return err
}

func readTable(image io.ReaderAt, offset int64, table any) error {
	if err := binary.Read(io.NewSectionReader(image, offset, int64(binary.Size(table))), binary.BigEndian, table); err != nil {
		return fmt.Errorf("reading its qcow2, %w", err)
	}
	return nil
}
