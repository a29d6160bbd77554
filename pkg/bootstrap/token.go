// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"

	"crypto/rand"

	"k8s.io/apimachinery/pkg/types"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
)

const tokenAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"

// redacted stands for the secret half of a token wherever one is printed.
const redacted = "****************"

// Token is a bootstrap token, "<id>.<secret>". The ID is public: it names the token's Secret. The secret half gives
// its bearer the right to become a node, so a Token shows it to no printer, logger or encoder; Reveal does.
// The zero Token is empty and joins nothing.
type Token struct {
	id, secret string
}

// NewToken makes a token with the given ID, six characters of [a-z0-9], and a secret half read from random.
func NewToken(id string, random io.Reader) (Token, error) {
	if !bootstraputil.IsValidBootstrapTokenID(id) {
		return Token{}, fmt.Errorf("making a join token, ID %q is not six characters of [a-z0-9]", id)
	}
	var secret strings.Builder
	for range bootstrapapi.BootstrapTokenSecretBytes {
		n, err := rand.Int(random, big.NewInt(int64(len(tokenAlphabet))))
		if err != nil {
			return Token{}, fmt.Errorf("making a join token, reading randomness, %w", err)
		}
		secret.WriteByte(tokenAlphabet[n.Int64()])
	}
	return Token{id: id, secret: secret.String()}, nil
}

// ParseToken reads a token in the form "<id>.<secret>", as it stands in a kubeadm configuration. The error does not
// repeat the text, which may be a secret with a typing error in it.
func ParseToken(text string) (Token, error) {
	if !bootstraputil.IsValidBootstrapToken(text) {
		return Token{}, errors.New("the token must be six characters of [a-z0-9], a dot, and sixteen more")
	}
	id, secret, _ := strings.Cut(text, ".")
	return Token{id: id, secret: secret}, nil
}

// TokenID derives the ID of a Machine's token from its UID, so that a run after a crash looks for the same
// one. The salt, from 0, gives a next ID where an earlier one is another Machine's.
func TokenID(machine types.UID, salt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", machine, salt))
	n := new(big.Int).SetBytes(sum[:])
	base, digit := big.NewInt(int64(len(tokenAlphabet))), new(big.Int)
	id := make([]byte, bootstrapapi.BootstrapTokenIDBytes)
	for i := range id {
		n.DivMod(n, base, digit)
		id[i] = tokenAlphabet[digit.Int64()]
	}
	return string(id)
}

// ID returns the public half.
func (t Token) ID() string { return t.id }

// IsZero says whether there is no token.
func (t Token) IsZero() bool { return t == Token{} }

// Reveal returns the whole token, for the document that must hold it and for nothing else.
func (t Token) Reveal() string {
	if t.IsZero() {
		return ""
	}
	return bootstraputil.TokenFromIDAndSecret(t.id, t.secret)
}

// SecretHalf returns what verifies signatures made with the token. Like Reveal, it must not reach a log.
func (t Token) SecretHalf() string { return t.secret }

// String returns the token without its secret half.
func (t Token) String() string {
	if t.IsZero() {
		return ""
	}
	return t.id + "." + redacted
}

// Format prints the token without its secret half, whatever the verb: %#v and %d would otherwise show the fields.
func (t Token) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, t.String())
}

// MarshalText encodes the token without its secret half, also in JSON, so that a structured logger cannot leak it.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
