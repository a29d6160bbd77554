// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Keys of a cloud-config document that hold lists, and that more is added to.
const (
	keyWriteFiles = "write_files"
	keyRunCmd     = "runcmd"
	keySSHKeys    = "ssh_authorized_keys"
)

// Compose returns the user data of a server: the user's cloud-config document, which may be empty, with SSH keys for
// the login of the image's default user and with the join, a document that UserData has made, or nothing. What the
// user has written stays as it is: our files are written, and our commands run, after the user's, and a hostname that
// the user gives is kept. The error is a sentence about the document, without a subject; it repeats no content. The
// document is not changed by the order of anything but its input.
func Compose(userDocument []byte, sshKeys []string, join []byte) ([]byte, error) {
	document, err := readCloudConfig(userDocument)
	if err != nil {
		return nil, err
	}
	if len(sshKeys) > 0 {
		if err := addSSHKeys(document, sshKeys); err != nil {
			return nil, err
		}
	}
	if len(join) > 0 {
		ours, err := readCloudConfig(join)
		if err != nil {
			return nil, fmt.Errorf("cannot be joined with the document of the join, which %w", err)
		}
		if err := addDocument(document, ours); err != nil {
			return nil, err
		}
	}
	composed, err := encodeCloudConfig(document)
	if err != nil {
		return nil, err
	}
	if err := checkSize("the user data", len(composed)); err != nil {
		return nil, fmt.Errorf("is too large: %w", err)
	}
	return composed, checkJoin(composed, join)
}

// checkJoin finds out whether a server that boots with the composed document makes the join that it was to make. The
// user's document can spoil that, for instance with a kubeadm join of its own.
func checkJoin(composed, join []byte) error {
	wanted, err := ParseUserData(join)
	if err != nil {
		// The join is empty, or something else than a join: there is nothing to be spoilt.
		return nil
	}
	got, err := ParseUserData(composed)
	if err != nil {
		return fmt.Errorf("does not go with the join that is added to it: %w", err)
	}
	got.NodeName = wanted.NodeName
	if !got.equal(wanted) {
		return errors.New("changes the join that is added to it: leave its files alone")
	}
	return nil
}

// addDocument adds ours to the document: lists are appended to, and anything else is only for where the user has said
// nothing.
func addDocument(document, ours *yaml.Node) error {
	for i := 0; i+1 < len(ours.Content); i += 2 {
		key, value := ours.Content[i], ours.Content[i+1]
		if value.Kind == yaml.SequenceNode {
			if err := appendTo(document, key.Value, value.Content...); err != nil {
				return err
			}
			continue
		}
		if lookup(document, key.Value) == nil {
			document.Content = append(document.Content, key, value)
		}
	}
	return nil
}

func addSSHKeys(document *yaml.Node, keys []string) error {
	var present []string
	if list := lookup(document, keySSHKeys); list != nil {
		for _, item := range list.Content {
			present = append(present, item.Value)
		}
	}
	var added []*yaml.Node
	for _, key := range keys {
		if !slices.Contains(present, key) {
			present = append(present, key)
			added = append(added, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key})
		}
	}
	return appendTo(document, keySSHKeys, added...)
}

// appendTo appends to a list of the document, which it makes if it is not there.
func appendTo(document *yaml.Node, key string, items ...*yaml.Node) error {
	if len(items) == 0 {
		return nil
	}
	list := lookup(document, key)
	switch {
	case list == nil:
		list = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		document.Content = append(document.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, list)
	case isNull(list):
		*list = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", HeadComment: list.HeadComment, LineComment: list.LineComment, FootComment: list.FootComment}
	case list.Kind == yaml.AliasNode:
		return fmt.Errorf("has an alias for %s in line %d: write the list out", key, list.Line)
	case list.Kind != yaml.SequenceNode:
		return fmt.Errorf("has a %s in line %d that is not a list: write each entry after a dash", key, list.Line)
	case list.Anchor != "":
		return fmt.Errorf("has an anchor on %s in line %d: write the list out where it is used again", key, list.Line)
	}
	// What we add is longer than a line.
	list.Style &^= yaml.FlowStyle
	list.Content = append(list.Content, items...)
	return nil
}

// lookup returns the value of a key, or nil.
func lookup(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func encodeCloudConfig(document *yaml.Node) ([]byte, error) {
	// The header is ours to write, and it was read as a comment.
	document.HeadComment = ""
	var out bytes.Buffer
	out.WriteString(cloudConfigHeader + "\n")
	if len(document.Content) == 0 {
		// Without a mapping, cloud-init would call it broken.
		out.WriteString("{}\n")
		return out.Bytes(), nil
	}
	document.Content[0].HeadComment = withoutHeader(document.Content[0].HeadComment)
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return nil, errors.New("cannot be written as YAML" + position(err))
	}
	if err := encoder.Close(); err != nil {
		return nil, errors.New("cannot be written as YAML" + position(err))
	}
	return out.Bytes(), nil
}

// withoutHeader takes the header off a comment.
func withoutHeader(comment string) string {
	lines := bytes.Split([]byte(comment), []byte("\n"))
	lines = slices.DeleteFunc(lines, func(line []byte) bool { return string(bytes.TrimRight(line, " \t\r")) == cloudConfigHeader })
	return string(bytes.Join(lines, []byte("\n")))
}
