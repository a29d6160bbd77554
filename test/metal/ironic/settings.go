// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed ironic.conf.tmpl
var settingsTemplate string

// settings are what differs from one Ironic to the next. Timeouts are in seconds.
type settings struct {
	Dir string
	// Listen is the address that the API is served on, and URL where agents find it.
	Listen       string
	Port         int
	URL          string
	FilesURL     string
	AgentTimeout int
	PowerTimeout int
}

// folders are what Ironic expects to exist.
var folders = []string{"state", "tmp", "http", "tftp", "images", "locks", "masters/iso", "masters/tftp", "masters/instance"}

// write writes the settings, an empty database and empty folders. It returns the path of the settings.
func (s settings) write(tree string) (string, error) {
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(s.Dir, folder), 0o700); err != nil {
			return "", fmt.Errorf("making a directory for Ironic, %w", err)
		}
	}
	schema, err := os.ReadFile(filepath.Join(tree, "schema.sqlite"))
	if err != nil {
		return "", fmt.Errorf("reading Ironic's empty database, %w", err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "ironic.sqlite"), schema, 0o600); err != nil {
		return "", fmt.Errorf("writing Ironic's database, %w", err)
	}
	parsed, err := template.New("ironic.conf").Parse(settingsTemplate)
	if err != nil {
		return "", fmt.Errorf("parsing the template of Ironic's settings, %w", err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, s); err != nil {
		return "", fmt.Errorf("filling in Ironic's settings, %w", err)
	}
	path := filepath.Join(s.Dir, "ironic.conf")
	if err := os.WriteFile(path, filled.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("writing Ironic's settings, %w", err)
	}
	return path, nil
}
