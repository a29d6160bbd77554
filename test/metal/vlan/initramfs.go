// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vlan

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// archive is a cpio archive of the form that the kernel unpacks (newc).
type archive struct {
	content bytes.Buffer
	known   map[string]bool
}

func newArchive() *archive { return &archive{known: map[string]bool{"/": true}} }

// add adds a program or a file, and the directories that it is in.
func (a *archive) add(name string, content []byte) {
	a.directory(path.Dir(name))
	a.entry(name, 0o100755, content)
}

func (a *archive) directory(name string) {
	if a.known[name] {
		return
	}
	a.directory(path.Dir(name))
	a.known[name] = true
	a.entry(name, 0o040755, nil)
}

func (a *archive) entry(name string, mode int, content []byte) {
	name = strings.TrimPrefix(name, "/")
	// Inode, mode, owner, group, links, time, size, four numbers of devices, length of the name, checksum.
	fmt.Fprintf(&a.content, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", 0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0,
		len(name)+1, 0)
	a.content.WriteString(name + "\x00")
	a.pad()
	a.content.Write(content)
	a.pad()
}

func (a *archive) pad() { a.content.Write(make([]byte, -a.content.Len()&3)) }

// end returns the archive.
func (a *archive) end() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.content.Bytes()
}

// modulesOf returns the paths of kernel modules in a root file system, each after those that it needs.
func modulesOf(root string, names ...string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(root, "lib/modules/*/modules.dep"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("%s has modules of %d kernels, want one (%w)", root, len(found), err)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	for line := range strings.Lines(string(content)) {
		module, others, _ := strings.Cut(line, ":")
		needs[module] = strings.Fields(others)
	}
	var ordered []string
	add := func(module string) {
		if module = filepath.Join(filepath.Dir(found[0]), module); !slices.Contains(ordered, module) {
			ordered = append(ordered, module)
		}
	}
	for _, name := range names {
		before := len(ordered)
		for module, others := range needs {
			if path.Base(module) == name+".ko" {
				for _, other := range slices.Backward(others) { // modules.dep has the last one first
					add(other)
				}
				add(module)
			}
		}
		if len(ordered) == before {
			return nil, fmt.Errorf("%s has no kernel module %s", root, name)
		}
	}
	return ordered, nil
}
