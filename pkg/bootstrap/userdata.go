// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap builds the documents that a server reads at its first boot:
//
//   - user data for cloud-init (userdata.go): the user's document, SSH keys and the join, as parts of a MIME message;
//   - the join of a tenant cluster (join.go, joinmodes.go), by kubeadm or by the script of a vCluster, with a bootstrap token
//     (tokens.go) and the hashes of the cluster's CA;
//   - documents from templates (template.go, functions.go, limits.go), and all documents of a plan (documents.go);
//   - the network data of the config drive (network*.go).
//
// All are functions of values, except tokens.go, which calls the API of the tenant cluster.
package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

const (
	keySSHKeys = "ssh_authorized_keys"
	// mergeAdd makes cloud-init add a part to the earlier parts: it appends to lists, and adds only missing keys.
	// Without it, a part replaces each key that it has.
	mergeAdd = "list(append)+dict(no_replace,recurse_list)+str()"
	// mergeMissing makes cloud-init add from a part only what the earlier parts lack, also inside of a key.
	mergeMissing = "list(no_replace)+dict(no_replace)+str()"
)

// UserData returns the user data of a server: the user's document, which may be empty, SSH keys for the login of the
// image's default user, time servers unless the document has some, the script of the mirrors, and the join from
// JoinUserData, or nothing. Several are parts of a MIME message, which cloud-init merges; one is returned as it is. The
// user's part comes first: except for the script of the mirrors, cloud-init writes its files and runs its commands
// first, and keeps its hostname. It cannot change the join, which is a script of its own. The error is a sentence about
// the user's document, without a subject; it repeats no content. Equal values give equal bytes.
func UserData(userDocument []byte, sshKeys, ntpServers []string, mirrors, join []byte) ([]byte, error) {
	if len(userDocument) == 0 && len(sshKeys) == 0 && len(ntpServers) == 0 && len(mirrors) == 0 {
		return join, nil
	}
	if err := CheckUserData(userDocument); err != nil {
		return nil, err
	}
	// A user can write the Secret of the join too.
	if err := CheckUserData(join); err != nil {
		return nil, fmt.Errorf("cannot be combined with the user data of spec.bootstrap.dataSecretName, which %w", err)
	}
	var parts []part
	// cloud-init reports a document without content as an error.
	if document := bytes.TrimLeft(userDocument, " \t\r\n"); !isBlank(document) {
		parts = append(parts, part{content: document})
	}
	for _, ours := range []struct {
		list      []string
		config    any
		mergeType string
	}{
		{sshKeys, map[string][]string{keySSHKeys: sshKeys}, mergeAdd},
		{ntpServers, map[string]any{"ntp": map[string][]string{"servers": ntpServers}}, mergeMissing},
	} {
		if len(ours.list) == 0 {
			continue
		}
		config, err := yaml.Marshal(ours.config)
		if err != nil {
			return nil, fmt.Errorf("cannot have SSH keys and time servers added: %w", err)
		}
		parts = append(parts, part{content: append([]byte(cloudConfigHeader+"\n"), config...), mergeType: ours.mergeType})
	}
	if len(mirrors) > 0 {
		parts = append(parts, part{content: mirrors, filename: MirrorsScriptName})
	}
	if !isBlank(join) {
		parts = append(parts, part{content: join})
	}
	if len(parts) == 0 {
		return userDocument, nil // the user's document is passed on, even without content
	}
	userData, err := messageOf(parts)
	if err != nil {
		return nil, err
	}
	if err := checkSize("the user data", len(userData)); err != nil {
		return nil, fmt.Errorf("is too large: %w", err)
	}
	return userData, nil
}

// isBlank reports whether a document has comments only.
func isBlank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && (line[0] != '#' || bytes.HasPrefix(line, []byte("#!")) || bytes.HasPrefix(line, []byte("#include "))) {
			return false
		}
	}
	return true
}

// MaxDocumentBytes is the size limit of user data, and of network data. Metal3 reads each from a Secret, and the API
// server takes no larger Secret. Ironic's limit for the whole config drive is 64 MiB.
const MaxDocumentBytes = corev1.MaxSecretSize

func checkSize(kind string, size int) error {
	if size <= MaxDocumentBytes {
		return nil
	}
	return fmt.Errorf("%s has %d bytes, and Metal3 takes at most %d: fetch large files at boot instead of writing them out", kind, size,
		MaxDocumentBytes)
}

// boundaryLength in hexadecimal digits, of the 70 characters that a boundary may have.
const boundaryLength = 32

// part is one document of user data.
type part struct {
	content []byte
	// filename is the name of a script on the server, which orders cloud-init's scripts; empty for any.
	filename string
	// mergeType is how cloud-init merges the part with the earlier parts, empty for its default.
	mergeType string
}

// messageOf returns the parts as a MIME message, and a single part as it is.
func messageOf(parts []part) ([]byte, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	if len(parts) == 1 && parts[0].filename == "" {
		return parts[0].content, nil
	}
	hash := sha256.New()
	for _, part := range parts {
		_, _ = hash.Write(part.content)
	}
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	// Our own boundary instead of a random one makes equal parts equal bytes.
	if err := writer.SetBoundary(hex.EncodeToString(hash.Sum(nil))[:boundaryLength]); err != nil {
		return nil, err
	}
	for _, part := range parts {
		if err := part.write(writer); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	header := fmt.Sprintf("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=%q\n\n", writer.Boundary())
	return append([]byte(header), body.Bytes()...), nil
}

func (p part) write(message *multipart.Writer) error {
	header, content := textproto.MIMEHeader{}, p.content
	switch {
	case isMIME(content):
		inner, body, err := readMIME(content)
		if err != nil {
			return err
		}
		header.Set("Content-Type", inner.contentType)
		content = body
	case !isText(content):
		// cloud-init reads the whole message as text, and changes other characters.
		header.Set("Content-Type", "text/plain; charset=utf-8")
		header.Set("Content-Transfer-Encoding", "base64")
		content = base64.StdEncoding.AppendEncode(nil, content)
	default:
		// cloud-init recognizes the document by its first line.
		header.Set("Content-Type", "text/plain")
	}
	if p.filename != "" {
		header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": p.filename}))
	}
	if p.mergeType != "" {
		header.Set("Merge-Type", p.mergeType)
	}
	writer, err := message.CreatePart(header)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(writer, "%s\n", bytes.TrimRight(content, "\n"))
	return err
}

// isText reports whether a document is ASCII, with no line ends but newlines.
func isText(content []byte) bool {
	return !bytes.ContainsFunc(content, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' && r != '\t' })
}

// mimeHeader is the needed part of the header of a MIME message.
type mimeHeader struct{ contentType, boundary string }

// isMIME reports whether a document begins like a MIME message.
func isMIME(document []byte) bool {
	first, _, _ := bytes.Cut(document, []byte(":"))
	return strings.EqualFold(string(first), "Content-Type") || strings.EqualFold(string(first), "MIME-Version")
}

// readMIME takes a MIME message apart. The error is a sentence without a subject.
func readMIME(message []byte) (mimeHeader, []byte, error) {
	read, err := mail.ReadMessage(bytes.NewReader(message))
	if err != nil {
		return mimeHeader{}, nil, errors.New("is a MIME message whose header cannot be read: end it with an empty line")
	}
	header := mimeHeader{contentType: read.Header.Get("Content-Type")}
	kind, parameters, err := mime.ParseMediaType(header.contentType)
	if header.boundary = parameters["boundary"]; err != nil || !strings.HasPrefix(kind, "multipart/") || header.boundary == "" {
		return mimeHeader{}, nil,
			errors.New("is a MIME message without parts: its header must have \"Content-Type: multipart/mixed; boundary=...\"")
	}
	body, err := io.ReadAll(read.Body)
	return header, body, err
}

// cloudConfigHeader is the first line of a cloud-config document.
const cloudConfigHeader = "#cloud-config"

// knownHeaders are the beginnings of the other documents that cloud-init takes as a part of user data.
var knownHeaders = []string{"#!", "## template:", "#include", "#cloud-boothook", "#cloud-config-archive", "#cloud-config-jsonp",
	"#part-handler"}

// CheckUserData checks whether cloud-init reads a user's document. A cloud-config document, alone or in a MIME message,
// must also be valid. The error is a sentence without a subject, such as "is not valid YAML at line 3", and has only
// names of keys and line numbers of the document.
func CheckUserData(document []byte) error {
	if err := checkSize("the document", len(document)); err != nil {
		return fmt.Errorf("is too large: %w", err)
	}
	// cloud-init skips blanks before the header, and templates that start with a condition write blank lines.
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
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err == nil && len(root.Content) > 0 {
		if err := checkForeign(root.Content[0]); err != nil {
			return err
		}
	}
	instead := ""
	if strings.HasPrefix(header, "{") {
		instead = "; this is JSON: put the header above it"
	}
	return fmt.Errorf("is not user data for cloud-init: its first line must be %q, or that of another format of cloud-init, such as "+
		"\"#!/bin/sh\"%s", cloudConfigHeader, instead)
}

// checkForeign finds documents of other programs by their keys. Their images have no cloud-init, so they never join.
func checkForeign(mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if format := map[string]string{"ignition": "Ignition", "variant": "Butane"}[mapping.Content[i].Value]; format != "" {
			return fmt.Errorf("is %s, and servers join by cloud-init: use an image that has cloud-init, and write the document for it", format)
		}
	}
	return nil
}

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

// checkCloudConfig finds what cloud-init would drop with only a line in a log of the server.
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
	if err := checkForeign(mapping); err != nil {
		return err
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if err := checkList(mapping.Content[i].Value, mapping.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// checkList checks a value that must be a list. SSH keys are added to the list of the user's document; cloud-init adds
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
	unknownField = regexp.MustCompile(`(unknown|duplicate) field "[\w.\[\]-]+"`)
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

// fieldOf says which field has the wrong type, without the value.
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
