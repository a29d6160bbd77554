// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"strings"
)

// boundaryLength in hexadecimal digits, of the 70 characters that a boundary may have.
const boundaryLength = 32

// part is one document of user data.
type part struct {
	content []byte
	// filename is the name of a script on the server, by which cloud-init orders scripts; empty for any.
	filename string
	// mergeType is how cloud-init merges the part with those before it, empty for its default.
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
	// A boundary of our own instead of a random one makes equal parts equal bytes.
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
		// cloud-init finds out by the first line what it is.
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

// isText tells whether a document is of ASCII, with no line ends but newlines.
func isText(content []byte) bool {
	return !bytes.ContainsFunc(content, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' && r != '\t' })
}

// mimeHeader is what is needed of the header of a MIME message.
type mimeHeader struct{ contentType, boundary string }

// isMIME tells whether a document begins like a MIME message.
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
