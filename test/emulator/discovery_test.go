// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

func TestVerify(t *testing.T) {
	ca, foreignCA := newCA(t), newCA(t)
	describe := func(ca []byte) string {
		content, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
			"": {Server: "https://10.0.0.1:6443", CertificateAuthorityData: ca},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	const id, secret = "abcdef", "0123456789abcdef"
	cases := map[string]struct {
		reason     string
		kubeconfig string
		signedWith string
		pinned     []byte
		want       string
	}{
		"Right":     {"cluster-info matches the user data", describe(ca), secret, ca, ""},
		"Bundle":    {"any CA of a bundle may be the pinned one", describe(append(append([]byte{}, foreignCA...), ca...)), secret, ca, ""},
		"Signature": {"it is signed with another token", describe(ca), "fedcba9876543210", ca, "was not made with token abcdef"},
		"CA": {"a cluster with the same token is another cluster", describe(foreignCA), secret, ca,
			"no CA in cluster-info matches the 1 pinned"},
		"NoCA":       {"there is nothing to compare", describe(nil), secret, ca, "holds no CA certificate"},
		"Garbage":    {"a signed cluster-info without a kubeconfig is not usable", "{", secret, ca, "holds no kubeconfig"},
		"NoClusters": {"a signed cluster-info without a kubeconfig is not usable", "", secret, ca, "names 0 clusters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			signature, err := jws.ComputeDetachedSignature(tc.kubeconfig, id, tc.signedWith)
			if err != nil {
				t.Fatal(err)
			}
			hashes, err := bootstrap.CACertHashes(tc.pinned)
			if err != nil {
				t.Fatal(err)
			}
			token, err := bootstrap.ParseToken(id + "." + secret)
			if err != nil {
				t.Fatal(err)
			}
			got, err := verify(map[string]string{
				bootstrapapi.KubeConfigKey:              tc.kubeconfig,
				bootstrapapi.JWSSignatureKeyPrefix + id: signature,
			}, bootstrap.Join{Token: token, CACertHashes: hashes})
			if tc.want == "" {
				if err != nil || got.server != "https://10.0.0.1:6443" {
					t.Errorf("%s: got %q, %v", tc.reason, got.server, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: error is %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func newCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
