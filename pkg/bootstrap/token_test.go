// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/yaml"
)

func TestTokenIsNeverShown(t *testing.T) {
	token, err := ParseToken(exampleToken)
	if err != nil {
		t.Fatal(err)
	}
	if token.Reveal() != exampleToken {
		t.Errorf("Reveal gives %q", token.Reveal())
	}
	j := exampleJoin(t)
	var shown []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, token), fmt.Sprintf(verb, &token), fmt.Sprintf(verb, j))
	}
	asJSON, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(map[string]any{"token": token})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(shown, string(asJSON), string(asYAML)) {
		if strings.Contains(text, token.SecretHalf()) || strings.Contains(text, hex.EncodeToString([]byte(token.SecretHalf()))) {
			t.Errorf("the secret half is shown: %s", text)
		}
	}
	if !strings.Contains(string(asJSON), "abcdef."+redacted) {
		t.Errorf("the ID, which is public, is not shown: %s", asJSON)
	}
}

func TestNewToken(t *testing.T) {
	if _, err := NewToken("ABC"); err == nil {
		t.Error("an ID of another form is accepted")
	}
	first, err := NewToken("abcdef")
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewToken("abcdef")
	if err != nil {
		t.Fatal(err)
	}
	if first == second || !bootstraputil.IsValidBootstrapToken(first.Reveal()) {
		t.Errorf("tokens are not valid or not random: equal %v, form %v", first == second, bootstraputil.IsValidBootstrapToken(first.Reveal()))
	}
}

func TestTokenID(t *testing.T) {
	seen := map[string]bool{}
	for machine := range 100 {
		for salt := range 3 {
			id := TokenID(types.UID(fmt.Sprint(machine)), salt)
			if !bootstraputil.IsValidBootstrapTokenID(id) || seen[id] {
				t.Fatalf("ID %q of machine %d, salt %d is not valid or not its own", id, machine, salt)
			}
			seen[id] = true
		}
	}
	if first, second := TokenID("a", 0), TokenID("a", 0); first != second {
		t.Errorf("the ID is %q and then %q, want the same each time", first, second)
	}
}

func TestCACertHashes(t *testing.T) {
	oneCA, oneHash := selfSigned(t)
	twoCA, twoHash := selfSigned(t)
	cases := map[string]struct {
		reason string
		pem    []byte
		want   []string
	}{
		"One":    {"one certificate, one hash", oneCA, []string{oneHash}},
		"Bundle": {"a CA that is being replaced has two", bytes.Join([][]byte{oneCA, twoCA, oneCA}, nil), []string{oneHash, twoHash}},
		"Empty":  {"nothing to pin", nil, nil},
		"Text":   {"not PEM", []byte("ca"), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := CACertHashes(tc.pem)
			if (err != nil) != (tc.want == nil) {
				t.Fatalf("%s: unexpected error %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// selfSigned returns a certificate and the hash of its public key.
func selfSigned(t *testing.T) ([]byte, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(public)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "sha256:" + hex.EncodeToString(sum[:])
}
