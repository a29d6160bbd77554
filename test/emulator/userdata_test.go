// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

var compareTokens = cmp.Comparer(func(a, b bootstrap.Token) bool { return a == b })

func joinToRead(t testing.TB) bootstrap.Join {
	t.Helper()
	token, err := bootstrap.ParseToken("abcdef.0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	return bootstrap.Join{
		NodeName: "gpu-7f3k2", ProviderID: "metal3://hosts/server-1/gpu-7f3k2", APIServerEndpoint: "10.0.0.1:6443", Token: token,
		CACertHashes: []string{"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		Labels:       map[string]string{"karpenter.metal3.io/node-type": "h100-8x"},
		Taints: []corev1.Taint{
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}, {Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule},
		},
		KubeletArgs: map[string]string{
			"max-pods": "200", "feature-gates": "A=true,B=false", "eviction-hard": "memory.available<100Mi,nodefs.available<10%", "resolv-conf": "",
		},
		KubernetesVersion: "v1.35",
	}
}

func vclusterJoinToRead(t testing.TB) bootstrap.Join {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	j := joinToRead(t)
	j.Mode, j.KubernetesVersion = v1alpha1.JoinVCluster, ""
	j.CACertificates = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if j.CACertHashes, err = bootstrap.CACertHashes(j.CACertificates); err != nil {
		t.Fatal(err)
	}
	return j
}

// The provider's user data are read back, alone and together with those of users.
func TestReadJoin(t *testing.T) {
	for mode, join := range map[v1alpha1.JoinMode]bootstrap.Join{v1alpha1.JoinKubeadm: joinToRead(t),
		v1alpha1.JoinVCluster: vclusterJoinToRead(t)} {
		alone, err := bootstrap.JoinUserData(join)
		if err != nil {
			t.Fatal(err)
		}
		for name, user := range map[string]string{
			"Alone": "", "CloudConfig": "#cloud-config\nruncmd: [a]\n", "Hostname": "#cloud-config\nhostname: mine\n",
			"Script":  "#!/bin/sh\ncurl one\n",
			"Letters": "#!/bin/sh\necho grüße\n",
			"MIME":    "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n#!/bin/sh\n--b--\n",
		} {
			t.Run(string(mode)+name, func(t *testing.T) {
				userData, err := bootstrap.UserData([]byte(user), nil, nil, nil, alone)
				if err != nil {
					t.Fatal(err)
				}
				got, err := ReadJoin(userData)
				if err != nil {
					t.Fatal(err)
				}
				want := join
				if name == "Hostname" && mode == v1alpha1.JoinVCluster {
					want.NodeName = "mine" // the hostname is the name of the Node there, and the user's hostname is kept
				}
				if diff := cmp.Diff(want, got, compareTokens); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		}
	}
}

func TestReadJoinRefuses(t *testing.T) {
	join, err := bootstrap.JoinUserData(joinToRead(t))
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.ReplaceAll(s, old, new) }
	}
	cases := map[string]struct {
		reason string
		change func(string) string
		want   string
		is     error
	}{
		"Empty": {reason: "empty user data have no join", change: func(string) string { return "" }, is: ErrNoJoin},
		"CloudConfig": {reason: "commands of users are not a join",
			change: func(string) string { return "#cloud-config\nruncmd: [kubeadm join --config /a]\n" }, is: ErrNoJoin},
		"NoCommand": {reason: "a file without the command is not a join", change: replace("\nkubeadm join", "\n# kubeadm join"), is: ErrNoJoin},
		"Cut":       {reason: "an incomplete message", change: func(s string) string { return s[:len(s)/2] }, want: "cannot be"},
		"NoFile": {reason: "kubeadm would fail",
			change: replace(`cat >"$NODE_ROOT"/etc/kubernetes/kubeadm-join.yaml`, `cat >"$NODE_ROOT"/tmp/x`), want: "which no part writes"},
		"OldVersion": {reason: "v1beta3 has other fields", change: replace("v1beta4", "v1beta3"), want: `apiVersion "kubeadm.k8s.io/v1beta3"`},
		"OtherKind": {reason: "an InitConfiguration is not a join", change: replace("JoinConfiguration", "InitConfiguration"),
			want: `"InitConfiguration"`},
		"Unknown": {reason: "an emulated server does not support the field", change: replace("\ndiscovery:", "\ndryRun: true\ndiscovery:"),
			want: `unknown field "dryRun"`},
		"WrongType": {reason: "names are text", change: replace("  name: gpu-7f3k2", "  name: [a]"), want: "nodeRegistration.name"},
		"BadToken":  {reason: "an unusable token", change: replace("abcdef.0123456789abcdef", "sesame"), want: "six characters of [a-z0-9]"},
		"BadLabels": {reason: "the kubelet would not start", change: replace("karpenter.metal3.io/node-type=h100-8x", "gpu"),
			want: `holds "gpu", which is not key=value`},
		"BadEndpoint": {reason: "read values are checked like built ones", change: replace("10.0.0.1:6443", "10.0.0.1"),
			want: "is not host:port"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ReadJoin([]byte(tc.change(string(join))))
			if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Fatalf("%s: error %v does not say %q %v", tc.reason, err, tc.want, tc.is)
			}
			if strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "0123456789abcdef") {
				t.Errorf("%s: the error shows the token: %v", tc.reason, err)
			}
		})
	}
}

// FuzzReadJoin finds input that panics, and joins that change when they are written and read again.
func FuzzReadJoin(f *testing.F) {
	for _, join := range []bootstrap.Join{joinToRead(f), vclusterJoinToRead(f)} {
		userData, err := bootstrap.JoinUserData(join)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(userData)
	}
	f.Add([]byte("#!/bin/sh\nkubeadm join --config a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := ReadJoin(data)
		if err != nil {
			return
		}
		again, err := bootstrap.JoinUserData(j)
		if err != nil {
			t.Fatalf("the join cannot be written: %v", err)
		}
		reread, err := ReadJoin(again)
		if err != nil {
			t.Fatalf("the written join cannot be read: %v", err)
		}
		j.Labels = bootstrap.SelfSettableLabels(j.Labels)
		if diff := cmp.Diff(j, reread, compareTokens, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(j, "CACertificates")); diff != "" {
			t.Errorf("-first +second:\n%s", diff)
		}
	})
}
