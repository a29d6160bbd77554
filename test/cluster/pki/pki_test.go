// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func newAuthority(t *testing.T, name string) *Authority {
	t.Helper()
	authority, err := NewAuthority(name, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func leaf(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	keyPair, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatalf("certificate and key do not belong together: %v", err)
	}
	certificate, err := x509.ParseCertificate(keyPair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestCertificates(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	client, err := ours.Client("alice", "engineers")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ours.Serving("kube-apiserver", []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		pair   Pair
		issuer *Authority
		host   string
		usage  x509.ExtKeyUsage
		valid  bool
	}{
		"Client": {
			reason: "A client certificate opens its own cluster.",
			pair:   client, issuer: ours, usage: x509.ExtKeyUsageClientAuth, valid: true,
		},
		"OtherCluster": {
			reason: "A certificate of one cluster is worth nothing at another.",
			pair:   client, issuer: theirs, usage: x509.ExtKeyUsageClientAuth, valid: false,
		},
		"ClientCannotServe": {
			reason: "A user must not be able to pose as the API server.",
			pair:   client, issuer: ours, usage: x509.ExtKeyUsageServerAuth, valid: false,
		},
		"ServingByAddress": {
			reason: "Clients reach the server by its loopback address.",
			pair:   serving, issuer: ours, host: "127.0.0.1", usage: x509.ExtKeyUsageServerAuth, valid: true,
		},
		"ServingOtherName": {
			reason: "A serving certificate is good for its own names only.",
			pair:   serving, issuer: ours, host: "example.org", usage: x509.ExtKeyUsageServerAuth, valid: false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(tc.issuer.Certificate())
			_, err := leaf(t, tc.pair).Verify(x509.VerifyOptions{
				Roots: roots, DNSName: tc.host, KeyUsages: []x509.ExtKeyUsage{tc.usage},
			})
			if valid := err == nil; valid != tc.valid {
				t.Errorf("%s\nvalid = %t, want %t (%v)", tc.reason, valid, tc.valid, err)
			}
		})
	}
	if diff := cmp.Diff([]string{"engineers"}, leaf(t, client).Subject.Organization); diff != "" {
		t.Errorf("groups of the client (-want +got):\n%s", diff)
	}
}

func TestCertificatesExpire(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	authority, err := NewAuthority("ours", clocktesting.NewFakePassiveClock(now))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Client("alice")
	if err != nil {
		t.Fatal(err)
	}
	certificate := leaf(t, pair)
	if !certificate.NotBefore.Before(now) {
		t.Errorf("not valid yet when made: from %s, made %s", certificate.NotBefore, now)
	}
	if want := now.Add(lifetime); !certificate.NotAfter.Equal(want) {
		t.Errorf("valid until %s, want %s", certificate.NotAfter, want)
	}
}

func TestWriteKubeconfig(t *testing.T) {
	authority := newAuthority(t, "ours")
	path := filepath.Join(t.TempDir(), "new", "alice.kubeconfig")
	if err := authority.WriteKubeconfig(path, "tenant", "https://127.0.0.1:6443", "alice", "engineers"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode of a file with a key is %o, want 600", info.Mode().Perm())
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" {
		t.Errorf("server is %s", config.Host)
	}
	certificate := leaf(t, Pair{Certificate: config.CertData, Key: config.KeyData})
	if certificate.Subject.CommonName != "alice" {
		t.Errorf("user is %s, want alice", certificate.Subject.CommonName)
	}
}
