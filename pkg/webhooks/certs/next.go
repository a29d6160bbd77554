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
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret, in addition to the keys of every TLS Secret.
const (
	// CAKey holds the certificates of all trusted authorities, the newest first.
	CAKey = "ca.crt"
	// caPrivateKey holds the key of the newest authority.
	caPrivateKey = "ca.key"
)

// Settings of certificates.
type Settings struct {
	// Names of the server: DNS names and IP addresses.
	Names []string
	// AuthorityLifetime and Lifetime are the validity of authorities and certificates, renewed after two thirds of it.
	AuthorityLifetime, Lifetime time.Duration
	// Settle is how long a new authority is published before it signs anything. API servers need this time to read it.
	Settle time.Duration
}

// DefaultSettings has the default times, and no names.
func DefaultSettings() Settings {
	return Settings{AuthorityLifetime: 5 * 365 * 24 * time.Hour, Lifetime: 90 * 24 * time.Hour, Settle: time.Minute}
}

// next returns the data that the Secret should have now, and after how long to call it again. It returns current data
// unchanged. published is the time since when the configurations are known to have the authorities of current.
func next(current map[string][]byte, now, published time.Time, settings Settings) (map[string][]byte, time.Duration, error) {
	data := maps.Clone(current)
	if data == nil {
		data = map[string][]byte{corev1.TLSCertKey: {}, corev1.TLSPrivateKeyKey: {}} // a TLS Secret must have them
	}
	// 1. Expired authorities are no longer trusted.
	trusted := slices.DeleteFunc(parseBundle(data[CAKey]), func(ca *x509.Certificate) bool { return !now.Before(ca.NotAfter) })
	newest, usable := newestOf(trusted, data[caPrivateKey])

	// 2. A new authority is created before the old one expires, and published at once.
	create := !usable || !now.Before(renewal(newest.certificate))
	if create {
		made, err := newAuthority(now, settings.AuthorityLifetime)
		if err != nil {
			return nil, 0, err
		}
		if data[caPrivateKey], err = keyutil.MarshalPrivateKeyToPEM(made.key); err != nil {
			return nil, 0, fmt.Errorf("encoding a key, %w", err)
		}
		newest, trusted = made, append([]*x509.Certificate{made.certificate}, trusted...)
	}
	if bundle := encodeBundle(trusted); !bytes.Equal(bundle, data[CAKey]) {
		data[CAKey] = bundle
	}

	// 3. The certificate is renewed before it expires. A new authority signs only once it is published and API servers
	// have read it, or if API servers would not accept the current certificate either.
	settled := published.Add(settings.Settle)
	served, signer := serving(data, trusted, now)
	switch {
	case create: // it is not published yet
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
	due := []time.Time{renewal(newest.certificate), settled}
	if served != nil && signer.Equal(newest.certificate) {
		due[1] = renewal(served)
	}
	for _, ca := range trusted {
		due = append(due, ca.NotAfter)
	}
	return data, max(slices.MinFunc(due, time.Time.Compare).Sub(now), time.Second), nil
}

// newestOf returns the newest trusted authority, and reports whether the key belongs to it.
func newestOf(trusted []*x509.Certificate, key []byte) (authority, bool) {
	if len(trusted) == 0 {
		return authority{}, false
	}
	parsed, _ := keyutil.ParsePrivateKeyPEM(key)
	private, is := parsed.(*ecdsa.PrivateKey)
	if !is || !private.PublicKey.Equal(trusted[0].PublicKey) {
		return authority{}, false
	}
	return authority{certificate: trusted[0], key: private}, true
}

// serving returns the served certificate and the authority that signed it; nil if no API server would accept it.
func serving(data map[string][]byte, trusted []*x509.Certificate, now time.Time) (certificate, signer *x509.Certificate) {
	if _, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
		return nil, nil
	}
	certificate = parseBundle(data[corev1.TLSCertKey])[0]
	if !now.Before(certificate.NotAfter) {
		return nil, nil
	}
	for _, ca := range trusted {
		if certificate.CheckSignatureFrom(ca) == nil {
			return certificate, ca
		}
	}
	return nil, nil
}

// renewal returns the time when two thirds of a certificate's lifetime have passed.
func renewal(certificate *x509.Certificate) time.Time {
	made := certificate.NotBefore.Add(backdated)
	return made.Add(certificate.NotAfter.Sub(made) / 3 * 2)
}

const (
	certificateType = "CERTIFICATE"
	// backdated is how long before now certificates begin to be valid, for slow clocks.
	backdated = 5 * time.Minute
	// serialBits is the size of serial numbers, which are random.
	serialBits = 127
)

// authority is a certificate with the key that it signs with.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newAuthority makes an authority with the given lifetime.
func newAuthority(now time.Time, lifetime time.Duration) (authority, error) {
	template, err := newTemplate(now, lifetime)
	if err != nil {
		return authority{}, err
	}
	// Each authority has its own name: if several are trusted, the name says which one signed.
	template.Subject = pkix.Name{CommonName: "karpenter-metal3-webhook-ca-" + template.SerialNumber.Text(36)}
	template.KeyUsage, template.IsCA = x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, true
	return issue(template, nil)
}

// sign makes a server certificate for these DNS names and IP addresses, and returns it and its key as PEM.
func (a authority) sign(now time.Time, lifetime time.Duration, names []string) (certificate, key []byte, err error) {
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
	issued, err := issue(template, &a)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(issued.key)
	return encode(issued.certificate.Raw), key, err
}

// issue makes a key and a certificate for it. The signer signs the certificate; without a signer the key itself does.
func issue(template *x509.Certificate, signer *authority) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("making the key of certificate %s, %w", template.Subject, err)
	}
	if signer == nil {
		signer = &authority{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return authority{}, fmt.Errorf("signing certificate %s, %w", template.Subject, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, fmt.Errorf("reading new certificate %s, %w", template.Subject, err)
	}
	return authority{certificate: certificate, key: key}, nil
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

// parseBundle reads all certificates of a PEM text, and skips unreadable ones.
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
	for _, certificate := range certificates {
		text.Write(encode(certificate.Raw))
	}
	return text.Bytes()
}

// hasNames reports whether a certificate is for exactly these names.
func hasNames(certificate *x509.Certificate, names []string) bool {
	has := sets.New(certificate.DNSNames...)
	for _, address := range certificate.IPAddresses {
		has.Insert(address.String())
	}
	return has.Equal(sets.New(names...))
}
