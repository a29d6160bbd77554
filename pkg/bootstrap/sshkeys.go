// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// AuthorizedKey returns the line for authorized_keys that an SSHKey's publicKey holds. The error is a sentence without
// a subject, such as "holds a private key: ...", and does not repeat the text.
func AuthorizedKey(publicKey string) (string, error) {
	line := strings.TrimSpace(publicKey)
	if strings.Contains(line, "PRIVATE KEY") {
		return "", errors.New("holds a private key: give the public one (the file that ends in .pub), and do not use this key pair any more")
	}
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", errors.New("is not one line: give one public key in the format of authorized_keys, and make an SSHKey for each")
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil || strings.HasPrefix(line, "#") {
		return "", errors.New("is not a public key: copy the whole line of the file that ends in .pub, for example \"ssh-ed25519 AAAAC3... " +
			"user@host\"")
	}
	return line, nil
}

// AuthorizedKeys returns the line of each SSHKey, by the names given and from their publicKeys. The error names every
// SSHKey that does not exist or cannot be read.
func AuthorizedKeys(names []string, publicKeys map[string]string) ([]string, error) {
	var lines []string
	var errs []error
	for _, name := range names {
		publicKey, found := publicKeys[name]
		if !found {
			errs = append(errs, fmt.Errorf("SSHKey %q does not exist: create it or correct the name", name))
			continue
		}
		line, err := AuthorizedKey(publicKey)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.publicKey of SSHKey %q %w", name, err))
			continue
		}
		lines = append(lines, line)
	}
	return lines, errors.Join(errs...)
}
