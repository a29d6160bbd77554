// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
)

const (
	exampleKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINQIfoqiuwIPHc4eWVdsm2q/kkDtlBVmoL6absE/h+su me1@laptop"
	exampleKey2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAION4/s6y1ukIIrklX5cs3ftosn0A/pEMaYz+KkmoMGUy me2@laptop"
)

func TestAuthorizedKey(t *testing.T) {
	cases := map[string]struct {
		reason, key, want string
	}{
		"Plain":   {"a line", exampleKey, ""},
		"Newline": {"a YAML block ends in one", exampleKey + "\n", ""},
		"Options": {"authorized_keys has options too", `from="10.0.0.0/8" ` + exampleKey, ""},
		"Private": {"it is in a cluster-scoped object now", "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n", "holds a private key"},
		"Two":     {"an SSHKey is one key", exampleKey + "\n" + exampleKey2, "is not one line"},
		"Cut":     {"half copied", exampleKey[:40] + "secret", "is not a public key"},
		"Dots":    {"an example is not a key", "ssh-ed25519 AAAA... secret@host", "is not a public key"},
		"Text":    {"not a key", "secret", "is not a public key"},
		"Comment": {"a comment is not a key", "# secret", "is not a public key"},
		"Empty":   {"an empty key is not a key", " \n", "is not one line"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			line, err := AuthorizedKey(tc.key)
			if tc.want == "" {
				if err != nil || line != strings.TrimSpace(tc.key) {
					t.Errorf("%s: got %q, %v", tc.reason, line, err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: error %v does not say %q, or says too much", tc.reason, err, tc.want)
			}
		})
	}
}
