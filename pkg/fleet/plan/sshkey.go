// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"
)

// AuthorizedKey returns the line for authorized_keys from an SSHKey's publicKey. The error is a sentence without a
// subject, such as "holds a private key: ...", and does not repeat the text.
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
