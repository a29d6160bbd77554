// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// CheckCloudConfig finds out whether a document is cloud-config that a join can be added to. The error is a sentence
// without a subject, such as "is not cloud-config: ...", and repeats nothing of the document but names of keys and
// lines.
func CheckCloudConfig(document []byte) error {
	_, err := readCloudConfig(document)
	return err
}

// readCloudConfig returns the mapping that a cloud-config document is. Nothing at all is an empty mapping.
func readCloudConfig(document []byte) (*yaml.Node, error) {
	empty := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	// cloud-init overlooks what is blank before the header, and so do templates that start with a condition.
	text := bytes.TrimLeft(document, " \t\r\n")
	if len(text) == 0 {
		return empty, nil
	}
	header, _, _ := bytes.Cut(text, []byte("\n"))
	if strings.TrimRight(string(header), " \t\r") != cloudConfigHeader {
		return nil, fmt.Errorf("is not cloud-config: its first line must be %q%s", cloudConfigHeader, insteadOf(string(header)))
	}
	if err := checkSize("the cloud-config document", len(document)); err != nil {
		return nil, fmt.Errorf("is too large: %w", err)
	}
	// Lines are counted in the document as it was written.
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	var root yaml.Node
	if err := decoder.Decode(&root); err != nil {
		if isEnd(err) {
			return empty, nil
		}
		return nil, errors.New("is not valid YAML" + position(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !isEnd(err) {
		return nil, errors.New("holds more than one YAML document: cloud-init reads one, so make it one, without \"---\" in between")
	}
	if len(root.Content) == 0 || isNull(root.Content[0]) {
		return empty, nil
	}
	mapping := root.Content[0]
	if mapping.Kind != yaml.MappingNode {
		return nil, errors.New("is not cloud-config: the document must be a mapping of keys, such as \"packages:\" and \"runcmd:\"")
	}
	// cloud-init would take the last of two equal keys, and so silently drop what the first one says.
	var decoded map[string]any
	if err := mapping.Decode(&decoded); err != nil {
		return nil, errors.New("is not cloud-config" + position(err) + ": its keys must be words, and each must be there once")
	}
	return mapping, nil
}

// insteadOf says what else user data can be that cloud-init knows and that nothing can be merged into.
func insteadOf(header string) string {
	for prefix, kind := range map[string]string{
		"#!":                       "a script: call it from runcmd",
		"## template:":             "a Jinja template: a MachineConfigTemplate does the same",
		"#include":                 "a list of addresses: fetch them in runcmd",
		"#cloud-boothook":          "a boot hook: use bootcmd",
		"#cloud-config-archive":    "an archive: write one document",
		"Content-Type: multipart/": "a MIME message: write one document",
		"MIME-Version:":            "a MIME message: write one document",
		"{":                        "JSON: put the header above it",
	} {
		if strings.HasPrefix(header, prefix) {
			return "; this is " + kind
		}
	}
	return ""
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }
