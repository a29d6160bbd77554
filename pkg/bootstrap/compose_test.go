// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	exampleKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINQIfoqiuwIPHc4eWVdsm2q/kkDtlBVmoL6absE/h+su me1@laptop"
	exampleKey2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAION4/s6y1ukIIrklX5cs3ftosn0A/pEMaYz+KkmoMGUy me2@laptop"
	// userDocument has a bit of everything that users write.
	userDocument = "#cloud-config\n" +
		"# What every server of ours has.\n" +
		"hostname: mine\npackages: [jq, nvme-cli]\n" +
		"users:\n- default\n- name: ops\n  sudo: ALL=(ALL) NOPASSWD:ALL\n  lock_passwd: yes\n" +
		"write_files:\n- path: /etc/motd\n  permissions: '0644' # octal\n  content: |\n    hello\n" +
		"ssh_authorized_keys:\n- " + exampleKey + "\n" +
		"runcmd:\n- echo one\n- [sleep, \"5\"]\n" +
		"ntp: {enabled: true}\n"
)

func mustJoin(t *testing.T, j Join) []byte {
	t.Helper()
	join, err := UserData(j)
	if err != nil {
		t.Fatal(err)
	}
	return join
}

// newCA returns a CA certificate in PEM, and no key.
func newCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func vclusterJoin(t *testing.T) Join {
	t.Helper()
	j := exampleJoin(t)
	j.Mode = v1alpha1.JoinVCluster
	j.CACertificates = newCA(t)
	var err error
	if j.CACertHashes, err = CACertHashes(j.CACertificates); err != nil {
		t.Fatal(err)
	}
	return j
}

func TestComposeDocuments(t *testing.T) {
	cases := map[string]struct {
		reason string
		user   string
		keys   []string
		join   func(*testing.T) []byte
	}{
		"everything":  {"the user's part stays as it is, ours comes after it", userDocument, []string{exampleKey, exampleKey2}, func(t *testing.T) []byte { return mustJoin(t, exampleJoin(t)) }},
		"stand-alone": {"a Machine without a tenant joins nothing", userDocument, []string{exampleKey2}, nil},
		"keys-only":   {"keys need no document", "", []string{exampleKey}, nil},
		"nothing":     {"nothing at all is still cloud-config", "", nil, nil},
		"empty-lists": {"a key without a value is an empty list", "\n\n#cloud-config\nruncmd:\nwrite_files: []\nssh_authorized_keys: ~\n", []string{exampleKey}, func(t *testing.T) []byte { return mustJoin(t, exampleJoin(t)) }},
		"no-keys":     {"a header alone is an empty document", "#cloud-config\n# nothing yet\n", nil, func(t *testing.T) []byte { return mustJoin(t, exampleJoin(t)) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var join []byte
			if tc.join != nil {
				join = tc.join(t)
			}
			got, err := Compose([]byte(tc.user), tc.keys, join)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			again, err := Compose([]byte(tc.user), tc.keys, join)
			if err != nil || !bytes.Equal(got, again) {
				t.Errorf("equal documents must give equal bytes (%v)", err)
			}
			mustBeCloudConfig(t, got)
			golden(t, name+".yaml", got)
			if join == nil {
				return
			}
			joined, err := ParseUserData(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(exampleJoin(t), joined, compareTokens); diff != "" {
				t.Errorf("%s: the join is another one: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// What the user has written is there afterwards, in the order it was in, before ours.
func TestComposeKeepsTheUsers(t *testing.T) {
	composed, err := Compose([]byte(userDocument), []string{exampleKey2}, mustJoin(t, exampleJoin(t)))
	if err != nil {
		t.Fatal(err)
	}
	var before, after map[string]any
	for into, text := range map[*map[string]any][]byte{&before: []byte(userDocument), &after: composed} {
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range before {
		list, isList := value.([]any)
		if !isList {
			if diff := cmp.Diff(value, after[key]); diff != "" {
				t.Errorf("%s has changed (-want +got):\n%s", key, diff)
			}
			continue
		}
		got, _ := after[key].([]any)
		if len(got) < len(list) {
			t.Errorf("%s has lost entries: %v", key, got)
			continue
		}
		if diff := cmp.Diff(list, got[:len(list)]); diff != "" {
			t.Errorf("%s does not begin with the user's (-want +got):\n%s", key, diff)
		}
	}
	commands := after["runcmd"].([]any)
	last, _ := commands[len(commands)-1].([]any)
	if len(last) < 2 || last[0] != "kubeadm" || last[1] != "join" {
		t.Errorf("the join is not the last command: %v", commands)
	}
}

// cloud-init warns of such things and does what was meant; so do we.
func TestComposeLooseDocument(t *testing.T) {
	const loose = "#cloud-config\nruncmd: [[sleep, 5], ~, {a: b}]\nwrite_files: [{path: 1, permissions: 0644, content: !!binary aGVsbG8=}]\nhostname: 12\nsudo: no\n"
	composed, err := Compose([]byte(loose), nil, mustJoin(t, exampleJoin(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{"[sleep, 5]", "permissions: 0644", "!!binary aGVsbG8=", "hostname: 12", "sudo: no"} {
		if !strings.Contains(string(composed), kept) {
			t.Errorf("%q was changed:\n%s", kept, composed)
		}
	}
}

func TestComposeVCluster(t *testing.T) {
	j := vclusterJoin(t)
	composed, err := Compose([]byte(userDocument), []string{exampleKey}, mustJoin(t, j))
	if err != nil {
		t.Fatal(err)
	}
	mustBeCloudConfig(t, composed)
	got, err := ParseUserData(composed)
	if err != nil {
		t.Fatal(err)
	}
	j.NodeName = "mine" // the hostname is the name of the Node there, and the user's hostname is kept
	if diff := cmp.Diff(j, got, compareTokens); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestComposeRefuses(t *testing.T) {
	cases := map[string]struct {
		reason, user, want string
	}{
		"Script":      {"nothing can be merged into a script", "#!/bin/sh\necho secret\n", `is not cloud-config: its first line must be "#cloud-config"; this is a script: call it from runcmd`},
		"NoHeader":    {"cloud-init would take it for text", "packages: [secret]\n", "its first line must be"},
		"Jinja":       {"rendered on the server, after the merge", "## template: jinja\n#cloud-config\n", "this is a Jinja template"},
		"JSON":        {"cloud-init wants the header", "{}", "this is JSON"},
		"MIME":        {"several parts", "Content-Type: multipart/mixed; boundary=secret\n", "this is a MIME message"},
		"BadYAML":     {"the line, and nothing of what is in it", "#cloud-config\na: 1\nsecret: [\n", "is not valid YAML at line"},
		"List":        {"the document is a mapping", "#cloud-config\n- secret\n", "the document must be a mapping"},
		"TwoKeys":     {"cloud-init would drop the first", "#cloud-config\nruncmd: [a]\nruncmd: [secret]\n", "is not cloud-config at line 3: its keys must be words, and each must be there once"},
		"TwoDocs":     {"cloud-init would fail", "#cloud-config\na: 1\n---\nb: secret\n", "more than one YAML document"},
		"TextRunCmd":  {"a text cannot be appended to", "#cloud-config\nruncmd: secret\n", "has a runcmd in line 2 that is not a list"},
		"MapFiles":    {"a mapping cannot be appended to", "#cloud-config\nwrite_files: {path: secret}\n", "has a write_files in line 2 that is not a list"},
		"AliasFiles":  {"appending to an alias would change the other place too", "#cloud-config\nx: &a []\nwrite_files: *a\n", "an alias for write_files in line 3"},
		"AnchorFiles": {"appending to it would change the other place too", "#cloud-config\nwrite_files: &a []\nx: *a\n", "an anchor on write_files in line 2"},
		"OwnJoin":     {"two joins: which one counts", "#cloud-config\nruncmd: [kubeadm join --config /a]\n", "more than one kubeadm join"},
		"Large":       {"Metal3 could not store it", "#cloud-config\nx: " + strings.Repeat("a", MaxDocumentBytes) + "\n", "Metal3 takes at most 1048576"},
		"NearlyLarge": {"with the join it is too large", "#cloud-config\nx: " + strings.Repeat("a", MaxDocumentBytes-100) + "\n", "Metal3 takes at most 1048576"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Compose([]byte(tc.user), []string{exampleKey}, mustJoin(t, exampleJoin(t)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: error %v does not say %q", tc.reason, err, tc.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error repeats the document: %v", tc.reason, err)
			}
		})
	}
}

func TestAuthorizedKeys(t *testing.T) {
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
		"Comment": {"a comment lets nobody in", "# secret", "is not a public key"},
		"Empty":   {"nothing lets nobody in", " \n", "is not one line"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			lines, err := AuthorizedKeys([]string{"team"}, map[string]string{"team": tc.key})
			if tc.want == "" {
				if err != nil || len(lines) != 1 || lines[0] != strings.TrimSpace(tc.key) {
					t.Errorf("%s: got %q, %v", tc.reason, lines, err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), `spec.publicKey of SSHKey "team" `+tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: error %v does not say %q, or says too much", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := AuthorizedKeys([]string{"nobody", "noone"}, nil); err == nil || strings.Count(err.Error(), "does not exist: create it") != 2 {
		t.Errorf("every missing key is named: %v", err)
	}
}

// FuzzCompose looks for documents that make it panic, or that come out as something else than they went in.
func FuzzCompose(f *testing.F) {
	f.Add([]byte(userDocument))
	f.Add([]byte("#cloud-config\nruncmd: [[a, 1], b]\nx: |2\n   y\n"))
	f.Add([]byte("\n#cloud-config\n? [a]\n: b\n"))
	join := exampleUserData
	f.Fuzz(func(t *testing.T, document []byte) {
		composed, err := Compose(document, []string{exampleKey}, []byte(join))
		if err != nil {
			return
		}
		if _, err := ParseUserData(composed); err != nil {
			t.Fatalf("what was composed does not join: %v\n%s", err, composed)
		}
		again, err := Compose(composed, nil, nil)
		if err != nil {
			t.Fatalf("what was composed cannot be read: %v\n%s", err, composed)
		}
		var first, second any
		if yaml.Unmarshal(composed, &first) == nil && yaml.Unmarshal(again, &second) == nil {
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("it changes when it is written again (-first +second):\n%s", diff)
			}
		}
	})
}
