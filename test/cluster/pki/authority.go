// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the keys and certificates of one throw-away cluster, and the kubeconfig files that use them.
// Each cluster has its own authority: a certificate of one cluster is not valid in another.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
)

const (
	certificateType = "CERTIFICATE"
	keyType         = "PRIVATE KEY"
	publicKeyType   = "PUBLIC KEY"

	// lifetime is longer than that of any sandbox, and short enough that a leaked key expires soon.
	lifetime = 7 * 24 * time.Hour
	// skew makes certificates valid a little before they are made, for clocks that differ.
	skew = 5 * time.Minute
)

// An Authority signs the certificates of one cluster.
type Authority struct {
	clock       clock.PassiveClock
	certificate *x509.Certificate
	key         crypto.Signer
	certPEM     []byte
	keyPEM      []byte
}

// A Pair is a certificate and its private key, both PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// NewAuthority makes a self-signed authority. The clock sets the validity of everything it signs.
func NewAuthority(name string, clock clock.PassiveClock) (*Authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("making the key of authority %s, %w", name, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: name}, clock)
	if err != nil {
		return nil, fmt.Errorf("making authority %s, %w", name, err)
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing authority %s, %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading authority %s, %w", name, err)
	}
	return &Authority{clock: clock, certificate: certificate, key: key, certPEM: encode(certificateType, der), keyPEM: keyPEM}, nil
}

// Pair returns the authority's own certificate and key.
func (a *Authority) Pair() Pair { return Pair{Certificate: a.certPEM, Key: a.keyPEM} }

// Certificate returns the authority's certificate, PEM.
func (a *Authority) Certificate() []byte { return a.certPEM }

// Client makes a client certificate for a user in these groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups}, a.clock)
	if err != nil {
		return Pair{}, fmt.Errorf("making the client certificate of %s, %w", user, err)
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

// Serving makes a certificate for a server that is reached by these DNS names and addresses.
func (a *Authority) Serving(name string, hosts []string, addresses []net.IP) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name}, a.clock)
	if err != nil {
		return Pair{}, fmt.Errorf("making the serving certificate of %s, %w", name, err)
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = hosts, addresses
	return a.sign(template)
}

func (a *Authority) sign(template *x509.Certificate) (Pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of %s, %w", template.Subject.CommonName, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s, %w", template.Subject.CommonName, err)
	}
	return Pair{Certificate: encode(certificateType, der), Key: keyPEM}, nil
}

// NewSigningKey makes a key pair for service account tokens: the private key and the public key, both PEM.
func NewSigningKey() (private, public []byte, err error) {
	key, private, err := newKey()
	if err != nil {
		return nil, nil, fmt.Errorf("making the service account key, %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the service account key, %w", err)
	}
	return private, encode(publicKeyType, der), nil
}

func newTemplate(subject pkix.Name, clock clock.PassiveClock) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := clock.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime),
	}, nil
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, encode(keyType, der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// fileMode denies access to other users of the machine: every file here is a key or a credential.
const fileMode = 0o600

// WriteFile writes one file that only its owner can read, and makes its directory.
func WriteFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the directory of %s, %w", path, err)
	}
	if err := os.WriteFile(path, content, fileMode); err != nil {
		return fmt.Errorf("writing %s, %w", path, err)
	}
	return nil
}

// WriteFiles writes the certificate to NAME.crt and the key to NAME.key in dir.
func (p Pair) WriteFiles(dir, name string) error {
	if err := WriteFile(filepath.Join(dir, name+".crt"), p.Certificate); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, name+".key"), p.Key)
}

// WriteKubeconfig makes a client certificate for the user and writes a kubeconfig file that reaches server with it.
// cluster is the name of the cluster in the file, so that such files can be merged.
func (a *Authority) WriteKubeconfig(path, cluster, server, user string, groups ...string) error {
	pair, err := a.Client(user, groups...)
	if err != nil {
		return err
	}
	context := user + "@" + cluster
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: a.certPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	}
	content, err := clientcmd.Write(config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s, %w", user, err)
	}
	return WriteFile(path, content)
}
