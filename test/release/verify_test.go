// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/release/published"
)

// publicKey reads cosign.pub.
func publicKey(t *testing.T, content []byte) *ecdsa.PublicKey {
	t.Helper()
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatal("cosign.pub has no key")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*ecdsa.PublicKey)
}

// verify fails if the signature, in base64, is not that of content.
func verify(key *ecdsa.PublicKey, content []byte, signature string) error {
	decoded, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(content)
	if !ecdsa.VerifyASN1(key, hash[:], decoded) {
		return errors.New("the signature is not of this key")
	}
	return nil
}

// authenticated is what DSSE signs.
func authenticated(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// registry is one of a test.
type registry struct{ published.Registry }

// put tags a manifest.
func (r registry) put(t *testing.T, repository, tag string, manifest []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.URL(repository+"/manifests/"+tag), bytes.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("PUT %s: %s", tag, response.Status)
	}
}

// signatureTag is where cosign looks for the signature of a digest.
func signatureTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// verify does what `cosign verify` does of the signature beside an image.
func (r registry) verify(repository, tag string, key *ecdsa.PublicKey) error {
	manifest, err := r.Read(repository + "/manifests/" + tag)
	if err != nil {
		return err
	}
	digest := "sha256:" + sum(manifest)
	content, err := r.Read(repository + "/manifests/" + signatureTag(digest))
	if err != nil {
		return err
	}
	var signed struct {
		Layers []struct {
			MediaType, Digest string
			Annotations       map[string]string
		}
	}
	if err := json.Unmarshal(content, &signed); err != nil {
		return err
	}
	if len(signed.Layers) != 1 || signed.Layers[0].MediaType != "application/vnd.dev.cosign.simplesigning.v1+json" {
		return fmt.Errorf("it is no image of a signature: %s", content)
	}
	payload, err := r.Read(repository + "/blobs/" + signed.Layers[0].Digest)
	if err != nil {
		return err
	}
	if err := verify(key, payload, signed.Layers[0].Annotations["dev.cosignproject.cosign/signature"]); err != nil {
		return err
	}
	var claim struct {
		Critical struct {
			Type  string
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			}
		}
	}
	if err := json.Unmarshal(payload, &claim); err != nil {
		return err
	}
	if claim.Critical.Type != "cosign container image signature" || claim.Critical.Image.Digest != digest {
		return fmt.Errorf("the signature is of %s and not of %s", claim.Critical.Image.Digest, digest)
	}
	return nil
}
