// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

const (
	keySSHKeys = "ssh_authorized_keys"
	// mergeAdd makes cloud-init add a part to those before it: to lists, and of other keys only those that are missing.
	// Without it, a part replaces each key that it has.
	mergeAdd = "list(append)+dict(no_replace,recurse_list)+str()"
)

// UserData returns the user data of a server: the user's document, which may be empty, SSH keys for the login of the image's
// default user, and the join that JoinUserData has made, or nothing. More than one of them are parts of a MIME message, which
// cloud-init merges; one alone is returned as it is. The user's part comes first: cloud-init writes its files and runs its
// commands first, and keeps its hostname. Nothing in it can change the join, which is a script of its own. The error is a
// sentence about the user's document, without a subject; it repeats no content. Equal values give equal bytes.
func UserData(userDocument []byte, sshKeys []string, join []byte) ([]byte, error) {
	if len(userDocument) == 0 && len(sshKeys) == 0 {
		return join, nil
	}
	if err := CheckUserData(userDocument); err != nil {
		return nil, err
	}
	// A user can write the Secret of the join, too.
	if err := CheckUserData(join); err != nil {
		return nil, fmt.Errorf("cannot be combined with the user data of spec.bootstrap.dataSecretName, which %w", err)
	}
	var parts []part
	// cloud-init reports a document without content as an error.
	if document := bytes.TrimLeft(userDocument, " \t\r\n"); !isBlank(document) {
		parts = append(parts, part{content: document})
	}
	if len(sshKeys) > 0 {
		keys, err := yaml.Marshal(map[string][]string{keySSHKeys: sshKeys})
		if err != nil {
			return nil, fmt.Errorf("cannot have SSH keys added: %w", err)
		}
		parts = append(parts, part{content: append([]byte(cloudConfigHeader+"\n"), keys...), mergeType: mergeAdd})
	}
	if !isBlank(join) {
		parts = append(parts, part{content: join})
	}
	if len(parts) == 0 {
		return userDocument, nil // what a user has set is handed on, even without content
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

// isBlank tells whether a document has comments only.
func isBlank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && (line[0] != '#' || bytes.HasPrefix(line, []byte("#!")) || bytes.HasPrefix(line, []byte("#include "))) {
			return false
		}
	}
	return true
}
