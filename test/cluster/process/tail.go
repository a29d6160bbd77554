// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// tailSize bounds how much of a log is read for its last lines.
const tailSize = 64 << 10

// LastLines returns up to count of the last lines of a file, oldest first, without line ends.
func LastLines(path string, count int) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the last lines, %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the last lines, %w", err)
	}
	offset := max(0, info.Size()-tailSize)
	content, err := io.ReadAll(io.NewSectionReader(file, offset, tailSize))
	if err != nil {
		return nil, fmt.Errorf("reading the last lines of %s, %w", path, err)
	}
	content = bytes.TrimRight(content, "\n")
	if len(content) == 0 {
		return nil, nil
	}
	all := bytes.Split(content, []byte("\n"))
	if len(all) > count {
		all = all[len(all)-count:]
	}
	lines := make([]string, 0, len(all))
	for _, line := range all {
		lines = append(lines, string(line))
	}
	return lines, nil
}
