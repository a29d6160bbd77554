// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// cloudConfigHeader is the first line of a cloud-config document.
const cloudConfigHeader = "#cloud-config"

// knownHeaders are how the other documents begin that cloud-init takes as a part of user data.
var knownHeaders = []string{"#!", "## template:", "#include", "#cloud-boothook", "#cloud-config-archive", "#cloud-config-jsonp",
	"#part-handler"}

// CheckUserData checks whether cloud-init reads a document that a user has written. A cloud-config document, alone or
// in a MIME message, must be valid as well. The error is a sentence without a subject, such as "is not valid YAML at
// line 3", and has only names of keys and line numbers of the document.
func CheckUserData(document []byte) error {
	if err := checkSize("the document", len(document)); err != nil {
		return fmt.Errorf("is too large: %w", err)
	}
	// cloud-init skips what is blank before the header, and templates that start with a condition write such lines.
	text := bytes.TrimLeft(document, " \t\r\n")
	header, _, _ := strings.Cut(string(text), "\n")
	switch {
	case len(text) == 0:
		return nil
	case strings.TrimRight(header, " \t\r") == cloudConfigHeader:
		return checkCloudConfig(document)
	case isMIME(text):
		return checkMIME(text)
	case slices.ContainsFunc(knownHeaders, func(known string) bool { return strings.HasPrefix(header, known) }):
		return nil
	}
	instead := ""
	if strings.HasPrefix(header, "{") {
		instead = "; this is JSON: put the header above it"
	}
	return fmt.Errorf("is not user data for cloud-init: its first line must be %q, or that of another format of cloud-init, such as "+
		"\"#!/bin/sh\"%s", cloudConfigHeader, instead)
}

// checkMIME checks each part of a MIME message.
func checkMIME(message []byte) error {
	header, body, err := readMIME(message)
	if err != nil {
		return err
	}
	reader := multipart.NewReader(bytes.NewReader(body), header.boundary)
	for n := 1; ; n++ {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var text []byte
		if err == nil {
			content := io.Reader(part)
			if strings.EqualFold(part.Header.Get("Content-Transfer-Encoding"), "base64") {
				content = base64.NewDecoder(base64.StdEncoding, part)
			}
			text, err = io.ReadAll(content)
		}
		if err != nil {
			return fmt.Errorf("is a MIME message whose part %d cannot be read: check its encoding, and end the message with its boundary", n)
		}
		text = bytes.TrimLeft(text, " \t\r\n")
		if bytes.HasPrefix(text, []byte(cloudConfigHeader+"\n")) || bytes.HasPrefix(text, []byte(cloudConfigHeader+"\r\n")) {
			if err := checkCloudConfig(text); err != nil {
				return fmt.Errorf("is a MIME message whose part %d %w", n, err)
			}
		}
	}
}

// checkCloudConfig finds what cloud-init would drop with no more than a line in a log of the server.
func checkCloudConfig(document []byte) error {
	// Lines are counted in the document as it was written.
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	var root yaml.Node
	if err := decoder.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return errors.New("is not valid YAML" + position(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one YAML document: cloud-init reads one, so make it one, without \"---\" in between")
	}
	if len(root.Content) == 0 || isNull(root.Content[0]) {
		return nil
	}
	mapping := root.Content[0]
	if mapping.Kind != yaml.MappingNode {
		return errors.New("is not cloud-config: the document must be a mapping of keys, such as \"packages:\" and \"runcmd:\"")
	}
	// cloud-init would take the last of two equal keys.
	var decoded map[string]any
	if err := mapping.Decode(&decoded); err != nil {
		return errors.New("is not cloud-config" + position(err) + ": its keys must be words, and each must be there once")
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if err := checkList(mapping.Content[i].Value, mapping.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// checkList checks a value that must be a list. SSH keys are added to the one of the user's document; cloud-init adds
// nothing to a key without a value.
func checkList(key string, value *yaml.Node) error {
	line := value.Line
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	switch {
	case key != keySSHKeys && key != "write_files" && key != "runcmd", value.Kind == yaml.SequenceNode:
		return nil
	case !isNull(value):
		return fmt.Errorf("has a %s in line %d that is not a list: write each entry after a dash", key, line)
	case key == keySSHKeys:
		return fmt.Errorf("has no value for %s in line %d, which keeps other SSH keys out: write a list, or leave the key out", key, line)
	}
	return nil
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

var (
	lineNumber   = regexp.MustCompile(`line \d+`)
	unknownField = regexp.MustCompile(`(unknown|duplicate) field "[\w.\[\]]+"`)
	setAlready   = regexp.MustCompile(`key "\w+" already set in map`)
)

// position returns where a YAML error is. The error's own text can quote the document, and so a token.
func position(err error) string {
	if match := setAlready.FindString(err.Error()); match != "" {
		return ": " + match
	}
	if match := lineNumber.FindString(err.Error()); match != "" {
		return " at " + match
	}
	return ""
}

// fieldOf returns what is wrong with which field, without the value.
func fieldOf(err error) string {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Sprintf("field %q cannot hold a %s", mismatch.Field, mismatch.Value)
	}
	if match := unknownField.FindString(err.Error()); match != "" {
		return match
	}
	if match := setAlready.FindString(err.Error()); match != "" {
		return match
	}
	return "its fields do not have the expected types"
}
