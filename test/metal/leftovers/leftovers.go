// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leftovers finds what a test with servers has left on the machine.
package leftovers

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ControlGroups returns those of which the name is of the test.
func ControlGroups(ours func(text []byte) bool) ([]string, error) {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // groups come and go
		}
		if entry.IsDir() && ours([]byte(entry.Name())) {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// Processes returns those that were started for the test, are in a control group of one of its servers, or see a mount of one.
func Processes(ours func(text []byte) bool) ([]string, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, process := range processes {
		for _, file := range []string{"cmdline", "environ", "cgroup", "mountinfo"} {
			content, err := os.ReadFile(filepath.Join(process, file))
			if err != nil {
				continue // it has ended meanwhile
			}
			if ours(content) {
				name, _ := os.ReadFile(filepath.Join(process, "comm")) // for the message only
				found = append(found, fmt.Sprintf("%s %s, by its %s", filepath.Base(process), bytes.TrimSpace(name), file))
				break
			}
		}
	}
	return found, nil
}
