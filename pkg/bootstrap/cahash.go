// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"

	certutil "k8s.io/client-go/util/cert"
)

// caHashPrefix names the only kind of hash that kubeadm knows.
const caHashPrefix = "sha256:"

// CACertHashes returns the hash of each certificate in a PEM bundle, in the form that kubeadm pins: "sha256:" and
// the lower-case hexadecimal SHA-256 of the certificate's Subject Public Key Info. Text without a certificate is an
// error.
func CACertHashes(caPEM []byte) ([]string, error) {
	certs, err := certutil.ParseCertsPEM(caPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA certificates, %w", err)
	}
	var hashes []string
	for _, cert := range certs {
		if hash := CACertHash(cert); !slices.Contains(hashes, hash) {
			hashes = append(hashes, hash)
		}
	}
	return hashes, nil
}

// CACertHash returns the hash of one certificate in the form of CACertHashes.
func CACertHash(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return caHashPrefix + hex.EncodeToString(sum[:])
}
