// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret, beside those of every TLS Secret.
const (
	// CAKey holds the certificates of all authorities that are to be trusted, the newest first.
	CAKey = "ca.crt"
	// caPrivateKey holds the key of the newest authority.
	caPrivateKey = "ca.key"
)

// Settings of certificates.
type Settings struct {
	// Names of the server, DNS names and IP addresses.
	Names []string
	// AuthorityLifetime and Lifetime are how long certificate authorities and certificates are valid. They are renewed
	// when two thirds of that are over.
	AuthorityLifetime, Lifetime time.Duration
	// Settle is how long a new authority is published before it signs anything: how long an API server may take to read it.
	Settle time.Duration
}

// Default times of Settings.
const (
	DefaultAuthorityLifetime = 5 * 365 * 24 * time.Hour
	DefaultLifetime          = 90 * 24 * time.Hour
	DefaultSettle            = time.Minute
)

// next returns the data that the Secret should have now, and after how long to call it again. Data that is up to date is
// returned unchanged.
func next(current map[string][]byte, now time.Time, settings Settings) (map[string][]byte, time.Duration, error) {
	data := maps.Clone(current)
	if data == nil {
		data = map[string][]byte{}
	}
	// 1. Expired authorities are no longer trusted.
	trusted := slices.DeleteFunc(parseBundle(data[CAKey]), func(one *x509.Certificate) bool { return !now.Before(one.NotAfter) })
	newest, usable := newestOf(trusted, data[caPrivateKey])

	// 2. A new authority is created before the old one expires, and trusted at once.
	if !usable || !now.Before(renewal(newest.certificate)) {
		made, err := newAuthority(now, settings.AuthorityLifetime)
		if err != nil {
			return nil, 0, err
		}
		if data[caPrivateKey], err = encodeKey(made.key); err != nil {
			return nil, 0, err
		}
		newest, trusted = made, append([]*x509.Certificate{made.certificate}, trusted...)
	}
	if bundle := encodeBundle(trusted); !bytes.Equal(bundle, data[CAKey]) {
		data[CAKey] = bundle
	}

	// 3. The certificate is renewed before it expires. A new authority signs only once API servers trust it, unless they
	// would not accept the present certificate either.
	settled := newest.certificate.NotBefore.Add(backdated + settings.Settle)
	served, signer := serving(data, trusted, now)
	switch {
	case served == nil, signer.Equal(newest.certificate) && (!now.Before(renewal(served)) || !hasNames(served, settings.Names)),
		!signer.Equal(newest.certificate) && !now.Before(settled):
		certificate, key, err := newest.sign(now, settings.Lifetime, settings.Names)
		if err != nil {
			return nil, 0, err
		}
		data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = certificate, key
		served, signer = parseBundle(certificate)[0], newest.certificate
	}

	// 4. The time of the next renewal.
	due := []time.Time{renewal(newest.certificate), renewal(served)}
	if !signer.Equal(newest.certificate) {
		due[1] = settled
	}
	for _, one := range trusted {
		due = append(due, one.NotAfter)
	}
	return data, max(slices.MinFunc(due, time.Time.Compare).Sub(now), time.Second), nil
}

// newestOf returns the first of the authorities that are trusted, and whether the key is its key.
func newestOf(trusted []*x509.Certificate, key []byte) (authority, bool) {
	if len(trusted) == 0 {
		return authority{}, false
	}
	private, err := parseKey(key)
	if err != nil || !private.PublicKey.Equal(trusted[0].PublicKey) {
		return authority{}, false
	}
	return authority{certificate: trusted[0], key: private}, true
}

// serving returns the certificate that is served and the authority that has signed it; nil if no API server would accept it.
func serving(data map[string][]byte, trusted []*x509.Certificate, now time.Time) (certificate, signer *x509.Certificate) {
	if _, err := parsePair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
		return nil, nil
	}
	certificate = parseBundle(data[corev1.TLSCertKey])[0]
	if !now.Before(certificate.NotAfter) {
		return nil, nil
	}
	for _, one := range trusted {
		if certificate.CheckSignatureFrom(one) == nil {
			return certificate, one
		}
	}
	return nil, nil
}

// renewal is when two thirds of a certificate's lifetime have passed.
func renewal(certificate *x509.Certificate) time.Time {
	made := certificate.NotBefore.Add(backdated)
	return made.Add(certificate.NotAfter.Sub(made) / 3 * 2)
}
