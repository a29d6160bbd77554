// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	certificateType = "CERTIFICATE"
	keyType         = "EC PRIVATE KEY"
	// backdated is how much earlier than now certificates are valid, for clocks that are slow.
	backdated = 5 * time.Minute
	// serialBits is the size of serial numbers, which are random.
	serialBits = 127
)

// authority is a certificate authority that can sign.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newAuthority makes an authority that is valid for so long.
func newAuthority(now time.Time, lifetime time.Duration) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("making the key of a certificate authority, %w", err)
	}
	template, err := newTemplate(now, lifetime)
	if err != nil {
		return authority{}, err
	}
	// Each has a name of its own: where several are trusted, the name says which one has signed.
	template.Subject = pkix.Name{CommonName: "karpenter-metal3-webhook-ca-" + template.SerialNumber.Text(36)}
	template.KeyUsage, template.IsCA = x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("making a certificate authority, %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, fmt.Errorf("reading a new certificate authority, %w", err)
	}
	return authority{certificate: certificate, key: key}, nil
}

// sign makes a certificate for a server of these names, DNS names and IP addresses, and returns it and its key as PEM.
func (a authority) sign(now time.Time, lifetime time.Duration, names []string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the key of a certificate, %w", err)
	}
	template, err := newTemplate(now, lifetime)
	if err != nil {
		return nil, nil, err
	}
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	template.Subject = pkix.Name{CommonName: "karpenter-metal3-webhook"}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate, %w", err)
	}
	key, err = encodeKey(private)
	return encode(der), key, err
}

func newTemplate(now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("making a serial number, %w", err)
	}
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-backdated), NotAfter: now.Add(lifetime), BasicConstraintsValid: true},
		nil
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key, %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}

// parseBundle reads all certificates of a PEM text; those that cannot be read are left out.
func parseBundle(text []byte) []*x509.Certificate {
	var found []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == certificateType {
			found = append(found, certificate)
		}
	}
	return found
}

func encodeBundle(certificates []*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, one := range certificates {
		text.Write(encode(one.Raw))
	}
	return text.Bytes()
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// parsePair reads a certificate and its key.
func parsePair(certificate, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate, %w", err)
	}
	return &pair, nil
}

// hasNames tells whether a certificate is for exactly these names.
func hasNames(certificate *x509.Certificate, names []string) bool {
	has := slices.Clone(certificate.DNSNames)
	for _, address := range certificate.IPAddresses {
		has = append(has, address.String())
	}
	want := slices.Clone(names)
	slices.Sort(has)
	slices.Sort(want)
	return slices.Equal(has, slices.Compact(want))
}
