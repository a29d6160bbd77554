// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// A kind of component.
type kind int

const (
	moduleKind kind = iota
	programKind
	imageKind
)

// component is a part of what is released, with the parts that it needs. Licences are said of our own parts only.
type component struct {
	kind                kind
	name, version, purl string
	// sha256 is empty for modules: programs have parts of them.
	sha256 string
	needs  []*component
}

// all are a component and the parts of it, which follow in the order of their package URLs, each once.
func (c *component) all() []*component {
	parts := map[string]*component{}
	var collect func(*component)
	collect = func(component *component) {
		for _, part := range component.needs {
			parts[part.purl] = part
			collect(part)
		}
	}
	collect(c)
	sorted := []*component{c}
	for _, part := range parts {
		sorted = append(sorted, part)
	}
	slices.SortFunc(sorted[1:], func(a, b *component) int { return strings.Compare(a.purl, b.purl) })
	return sorted
}

func module(path, version string) *component {
	return &component{kind: moduleKind, name: path, version: version,
		purl: "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")}
}

// program is the component of a program, with the modules that Go has written into it, and Go's own library.
func (r *release) program(content []byte) (*component, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	subpath := strings.TrimPrefix(strings.TrimPrefix(info.Path, info.Main.Path), "/")
	program := &component{kind: programKind, name: info.Path, version: r.version, sha256: digest(content),
		purl:  fmt.Sprintf("%s?goarch=%s&goos=%s#%s", module(info.Main.Path, r.version).purl, settings["GOARCH"], settings["GOOS"], subpath),
		needs: []*component{module("std", strings.TrimPrefix(info.GoVersion, "go"))}}
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		program.needs = append(program.needs, module(dependency.Path, dependency.Version))
	}
	return program, nil
}

// authoritiesModule has the public authorities that are put into each image.
const authoritiesModule = "golang.org/x/crypto/x509roots/fallback"

// authorities is the component of the authorities. Images are made by this program, too, which is built with their module.
func authorities() (*component, error) {
	own, _ := debug.ReadBuildInfo()
	for _, dependency := range own.Deps {
		if dependency.Path == authoritiesModule {
			return module(dependency.Path, dependency.Version), nil
		}
	}
	return nil, fmt.Errorf("this program was built without %s", authoritiesModule)
}

// writeBills writes the bill of materials of a component in both formats.
func (r *release) writeBills(name string, subject *component) error {
	for suffix, format := range map[string]func(string, *component) ([]byte, error){".cdx.json": r.cycloneDX, ".spdx.json": r.spdx} {
		content, err := format(name, subject)
		if err != nil {
			return fmt.Errorf("writing the bill of materials of %s, %w", name, err)
		}
		if err := r.file(name+suffix, content); err != nil {
			return err
		}
	}
	return nil
}
