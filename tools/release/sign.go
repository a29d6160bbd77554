// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// key is a private key of `cosign generate-key-pair`. It is kept in memory only, and no error says more of it than its file's name.
type key struct{ private *ecdsa.PrivateKey }

var _ dsse.Signer = &key{}

// keyOf reads the key in a file.
func keyOf(path, password string) (*key, error) {
	if path == "" {
		return nil, errors.New("COSIGN_KEY is not set: name the file of a key of cosign, and set COSIGN_PASSWORD")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading COSIGN_KEY, %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "ENCRYPTED SIGSTORE PRIVATE KEY" && block.Type != "ENCRYPTED COSIGN PRIVATE KEY" {
		return nil, errors.New("reading COSIGN_KEY, it is no private key of cosign generate-key-pair")
	}
	der, err := encrypted.Decrypt(block.Bytes, []byte(password))
	if err != nil {
		return nil, errors.New("reading COSIGN_KEY, COSIGN_PASSWORD does not decrypt it")
	}
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("reading COSIGN_KEY, what it has encrypted is no private key")
	}
	ours, is := private.(*ecdsa.PrivateKey)
	if !is {
		return nil, fmt.Errorf("reading COSIGN_KEY, it is a %T: only ECDSA is supported, which cosign makes", private)
	}
	return &key{ours}, nil
}

func (k *key) public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k.private.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// Sign signs the SHA-256 of data. Without random numbers, as in RFC 6979, the same data always has the same signature.
func (k *key) Sign(_ context.Context, data []byte) ([]byte, error) {
	hash := sha256.Sum256(data)
	return k.private.Sign(nil, hash[:], crypto.SHA256)
}

// KeyID is empty, as cosign has it: who verifies knows the key.
func (k *key) KeyID() (string, error) { return "", nil }

// sign is the signature of content as cosign writes it into files and annotations.
func (k *key) sign(content []byte) ([]byte, error) {
	signature, err := k.Sign(context.Background(), content)
	if err != nil {
		return nil, err
	}
	return []byte(base64.StdEncoding.EncodeToString(signature)), nil
}

// signedPayload is what cosign signs of an image: the format "simple signing".
func signedPayload(artifact *stored) ([]byte, error) {
	return json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]string{"docker-reference": artifact.reference.Repository.Name()},
			"image":    map[string]string{"docker-manifest-digest": artifact.descriptor.Digest.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
}

// wrap writes the format of sigstore in which cosign keeps the signature of a file, or of a statement about files. The
// content is in the field of that name.
func (k *key) wrap(field string, content any) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k.private.Public())
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(der)
	written, err := json.Marshal(map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": base64.StdEncoding.EncodeToString(hash[:])}},
		field:                  content,
	})
	return append(written, '\n'), err
}

// bundle is the signature of content.
func (k *key) bundle(content []byte) ([]byte, error) {
	signature, err := k.Sign(context.Background(), content)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(content)
	return k.wrap("messageSignature", map[string]any{
		"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": hash[:]}, "signature": signature,
	})
}

// attestation is a signed statement of in-toto.
func (k *key) attestation(statement []byte) ([]byte, error) {
	signer, err := dsse.NewEnvelopeSigner(k)
	if err != nil {
		return nil, err
	}
	envelope, err := signer.SignPayload(context.Background(), "application/vnd.in-toto+json", statement)
	if err != nil {
		return nil, err
	}
	return k.wrap("dsseEnvelope", envelope)
}

// sign signs a release that is complete. It writes the public key; what cosign signs of each image and chart in a registry, and its
// signature, which are put beside it when it is pushed; the provenance in a signed envelope; and the sums, and their signature, which is
// that of all files, for cosign and for openssl. Signatures that are there are replaced.
func sign(dir string, key *key) error {
	if _, err := os.Stat(filepath.Join(dir, sumsFile)); err != nil {
		return fmt.Errorf("%s is no release: run `make release`", dir)
	}
	r := &release{dir: dir}
	public, err := key.public()
	if err != nil {
		return err
	}
	if err := r.file(publicKeyFile, public); err != nil {
		return err
	}
	if err := r.signStored(key); err != nil {
		return err
	}
	statement, err := os.ReadFile(filepath.Join(dir, provenanceFile))
	if err != nil {
		return err
	}
	attestation, err := key.attestation(bytes.TrimSuffix(statement, []byte("\n")))
	if err != nil {
		return err
	}
	if err := r.file(attestationFile, attestation); err != nil {
		return err
	}
	if err := r.writeSums(); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return err
	}
	signature, err := key.sign(sums)
	if err != nil {
		return err
	}
	if err := r.file(sumsFile+signatureSuffix, signature); err != nil {
		return err
	}
	signed, err := key.bundle(sums)
	if err != nil {
		return err
	}
	return r.file(sumsFile+bundleSuffix, signed)
}

// signStored signs the images and charts.
func (r *release) signStored(key *key) error {
	archives, err := filepath.Glob(filepath.Join(r.dir, "*"+archiveSuffix))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	for _, archive := range archives {
		artifact, err := openStored(archive, scratch)
		if err != nil {
			return err
		}
		payload, err := signedPayload(artifact)
		if err != nil {
			return err
		}
		signature, err := key.sign(payload)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(artifact.file, archiveSuffix) + payloadSuffix
		if err := r.file(name, payload); err != nil {
			return err
		}
		if err := r.file(name+signatureSuffix, signature); err != nil {
			return err
		}
	}
	return nil
}
