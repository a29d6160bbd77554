// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initramfs makes the root file system of a virtual machine that has nothing but a Go program, its first process, and modules
// of the kernel of `make server-image`; and it is what such a program begins with.
package initramfs

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An Archive is a cpio archive of the form that the kernel unpacks (newc).
type Archive struct {
	content bytes.Buffer
	known   map[string]bool
}

// New returns an archive with the directories that Mount needs, and /tmp.
func New() *Archive {
	a := &Archive{known: map[string]bool{"/": true}}
	for _, name := range []string{"/proc", "/sys", "/dev", "/tmp"} {
		a.directory(name)
	}
	return a
}

// Add adds a program or a file, and the directories that it is in.
func (a *Archive) Add(name string, content []byte) {
	a.directory(path.Dir(name))
	a.entry(name, 0o100755, content)
}

func (a *Archive) directory(name string) {
	if a.known[name] {
		return
	}
	a.directory(path.Dir(name))
	a.known[name] = true
	a.entry(name, 0o040755, nil)
}

func (a *Archive) entry(name string, mode int, content []byte) {
	name = strings.TrimPrefix(name, "/")
	// Inode, mode, owner, group, links, time, size, four numbers of devices, length of the name, checksum.
	fmt.Fprintf(&a.content, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", 0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0,
		len(name)+1, 0)
	a.content.WriteString(name + "\x00")
	a.pad()
	a.content.Write(content)
	a.pad()
}

func (a *Archive) pad() { a.content.Write(make([]byte, -a.content.Len()&3)) }

// End returns the archive, to which nothing can be added any more.
func (a *Archive) End() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.content.Bytes()
}

// AddLibraries adds the libraries that programs need, with those that these need, and the loader. They are in one of the root file systems,
// in the folders where Debian has them. Files that are no programs need none.
func (a *Archive) AddLibraries(files []string, roots ...string) error {
	const folder = "lib/x86_64-linux-gnu"
	for len(files) > 0 {
		program, err := elf.Open(files[0])
		files = files[1:]
		if _, other := errors.AsType[*elf.FormatError](err); other {
			continue
		}
		if err != nil {
			return err
		}
		names, err := program.ImportedLibraries()
		if err := errors.Join(err, program.Close()); err != nil {
			return err
		}
		for _, name := range append(names, "ld-linux-x86-64.so.2") {
			if a.known[name] {
				continue
			}
			a.known[name] = true
			var content []byte
			for _, root := range roots {
				for _, in := range []string{folder, "usr/" + folder} {
					source := filepath.Join(root, in, name)
					if found, err := os.ReadFile(source); err == nil && content == nil {
						content, files = found, append(files, source)
					}
				}
			}
			if content == nil {
				return fmt.Errorf("library %s is not in %v", name, roots)
			}
			a.Add("/"+folder+"/"+name, content)
			if strings.HasPrefix(name, "ld-") {
				a.Add("/lib64/"+name, content)
			}
		}
	}
	return nil
}

// modules is the folder of the kernel's modules, whose names sort in the order in which they are loaded.
const modules = "/modules"

// AddModules adds modules of the kernel in a root file system, with those that they need. It can be called once.
func (a *Archive) AddModules(root string, names ...string) error {
	paths, err := modulesOf(root, names...)
	if err != nil {
		return err
	}
	for number, module := range paths {
		content, err := os.ReadFile(module)
		if err != nil {
			return err
		}
		a.Add(fmt.Sprintf("%s/%02d-%s", modules, number, filepath.Base(module)), content)
	}
	return nil
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
