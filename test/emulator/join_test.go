// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// joinOf returns what a server of the name needs to join the cluster, with a token that is valid.
func (c *testCluster) joinOf(t *testing.T, name string) bootstrap.Join {
	t.Helper()
	machine := v1alpha1.MachineReference{Namespace: "tenant", Name: "m-" + name, UID: types.UID("uid-" + name)}
	token, err := bootstrap.EnsureToken(t.Context(), c, machine, v1alpha1.JoinKubeadm, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	hashes, err := bootstrap.CACertHashes(c.CertificateAuthority())
	if err != nil {
		t.Fatal(err)
	}
	return bootstrap.Join{
		NodeName:          machine.Name,
		ProviderID:        "metal3://" + hostNamespace + "/" + name + "/" + machine.Name,
		APIServerEndpoint: strings.TrimPrefix(c.Server, "https://"),
		CACertHashes:      hashes,
		Token:             token,
		Labels:            map[string]string{"karpenter.metal3.io/node-type": "a100-4x", "node-role.kubernetes.io/gpu": ""},
		Taints:            []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}},
		KubeletArgs:       map[string]string{"kube-reserved": "cpu=1"},
	}
}

// untilSigned waits until cluster-info has the signature of the token, by which a server knows it.
func (c *testCluster) untilSigned(t *testing.T, token bootstrap.Token) {
	t.Helper()
	poll.Eventually(t, "cluster-info is signed with token "+token.ID(), func(ctx context.Context) error {
		info := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}
		if err := c.Get(ctx, key, info); err != nil {
			return err
		}
		if info.Data[bootstrapapi.JWSSignatureKeyPrefix+token.ID()] == "" {
			return errors.New("it lacks the signature")
		}
		return nil
	})
}

// startRack runs a rack of the servers until the test ends, and returns the rack and a function that stops it.
func (c *testCluster) startRack(t *testing.T, joinTimeout time.Duration, servers ...Server) (*Rack, func()) {
	t.Helper()
	rack, err := NewRack(Config{
		RESTConfig: c.REST, Namespace: hostNamespace, Servers: servers, Logger: testr.New(t),
		RetryInterval: 50 * time.Millisecond, JoinTimeout: joinTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- rack.Run(ctx) }()
	return rack, func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("the rack stopped with %v", err)
		}
	}
}

// eventually waits until the check holds.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	poll.Eventually(t, what+" has come", func(context.Context) error {
		if check() {
			return nil
		}
		return errors.New("it has not")
	})
}

func statusOf(rack *Rack, name string) Status {
	for _, status := range rack.Statuses() {
		if status.Server == name {
			return status
		}
	}
	return Status{}
}

func TestJoin(t *testing.T) {
	c := startCluster(t)
	t.Run("FromPowerOnToPowerOff", func(t *testing.T) { testLifeOfServer(t, c) })
	t.Run("Heartbeats", func(t *testing.T) { testHeartbeats(t, c) })
	t.Run("WhatDoesNotJoin", func(t *testing.T) { testWhatDoesNotJoin(t, c) })
	t.Run("NoCRD", func(t *testing.T) { testNoCRD(t, c) })
}

func testLifeOfServer(t *testing.T, c *testCluster) {
	const name = "server-1"
	join := c.joinOf(t, name)
	userData, err := bootstrap.JoinUserData(join)
	if err != nil {
		t.Fatal(err)
	}
	rack, stop := c.startRack(t, time.Minute, Server{Name: name, Capacity: resources("cpu", "16", "memory", "64Gi", "nvidia.com/gpu", "4")})
	defer stop()
	host := c.provision(t, name, userData)

	eventually(t, "the server's registration", func() bool { return statusOf(rack, name).State == Registered })
	node := &corev1.Node{}
	nodeKey := client.ObjectKey{Name: join.NodeName}
	if err := c.Get(t.Context(), nodeKey, node); err != nil {
		t.Fatal(err)
	}
	if node.Spec.ProviderID != join.ProviderID {
		t.Errorf("provider ID is %q, want %q", node.Spec.ProviderID, join.ProviderID)
	}
	var unregistered bool
	for _, taint := range node.Spec.Taints {
		unregistered = unregistered || taint.MatchTaint(&join.Taints[0])
	}
	if !unregistered {
		t.Errorf("the Node did not register with Karpenter's taint: %v", node.Spec.Taints)
	}
	wantLabels := map[string]string{
		"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", // added by the API server
		"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": join.NodeName,
		"karpenter.metal3.io/node-type": "a100-4x", KwokNodeKey: KwokNodeValue,
	}
	for _, key := range []string{"beta.kubernetes.io/arch", "beta.kubernetes.io/os"} {
		if _, ok := node.Labels[key]; !ok {
			delete(wantLabels, key)
		}
	}
	if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
		t.Errorf("labels -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(
		resources("cpu", "16", "memory", "64226Mi", "nvidia.com/gpu", "4", "pods", "110", "ephemeral-storage", "440Gi"),
		node.Status.Capacity); diff != "" {
		t.Errorf("capacity -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(
		resources("cpu", "15", "memory", "64126Mi", "nvidia.com/gpu", "4", "pods", "110", "ephemeral-storage", evicted),
		node.Status.Allocatable); diff != "" {
		t.Errorf("allocatable -want +got:\n%s", diff)
	}
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	if len(requests.Items) != 1 || requests.Items[0].Spec.Username != "system:bootstrap:"+join.Token.ID() {
		t.Errorf("want one signing request by the token's user, got %d", len(requests.Items))
	}

	// The token is deleted. A server that is switched off and on does not need it again.
	if err := bootstrap.DeleteToken(t.Context(), c, v1alpha1.MachineReference{UID: types.UID("uid-" + name)}); err != nil {
		t.Fatal(err)
	}
	c.setOnline(t, host, false)
	eventually(t, "power-off", func() bool { return statusOf(rack, name).State == Off })
	if c.managedByKwok(t, nodeKey) {
		t.Error("kwok would still renew the heartbeats of a server without power")
	}
	c.setOnline(t, host, true)
	eventually(t, "the server's return", func() bool { return statusOf(rack, name).State == Registered })
	if !c.managedByKwok(t, nodeKey) {
		t.Error("the server is on again, but its Node is not managed by kwok")
	}
	boots := sets.New("", node.Status.NodeInfo.BootID)
	rack.Reset(name)
	eventually(t, "the server's return from a reset", func() bool {
		return statusOf(rack, name).State == Registered && c.Get(t.Context(), nodeKey, node) == nil && !boots.Has(node.Status.NodeInfo.BootID)
	})

	c.setState(t, host, metal3api.StateDeprovisioning)
	eventually(t, "the server's end", func() bool { return statusOf(rack, name).State == Off })
	if c.managedByKwok(t, nodeKey) {
		t.Error("kwok would still renew the heartbeats of a server that was erased")
	}
}

func testWhatDoesNotJoin(t *testing.T, c *testCluster) {
	unknown, err := bootstrap.ParseToken("zzzzzz.0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	closed := freeport.ForTest(t)
	cases := map[string]struct {
		reason string
		change func(*bootstrap.Join)
		want   string
	}{
		"unknown-token": {"the cluster has no such token", func(j *bootstrap.Join) { j.Token = unknown },
			"cluster-info is not signed with token zzzzzz"},
		"wrong-secret": {"an incomplete token is invalid", func(j *bootstrap.Join) {
			if j.Token, err = bootstrap.ParseToken(j.Token.ID() + ".0123456789abcdef"); err != nil {
				t.Fatal(err)
			}
		}, "the token is wrong, or it is another cluster"},
		"wrong-ca": {"another cluster", func(j *bootstrap.Join) {
			if j.CACertHashes, err = bootstrap.CACertHashes(newCA(t)); err != nil {
				t.Fatal(err)
			}
		}, "no CA in cluster-info matches"},
		"wrong-endpoint": {"no server listens there", func(j *bootstrap.Join) { j.APIServerEndpoint = closed }, "connection refused"},
	}
	var servers []Server
	for name := range cases {
		servers = append(servers, Server{Name: name, Capacity: resources("cpu", "1")})
	}
	// Each server tries for so long, all at the same time. Its last reason is that of an attempt which the cluster has answered.
	rack, stop := c.startRack(t, 10*time.Second, servers...)
	defer stop()
	for name, tc := range cases {
		join := c.joinOf(t, name)
		c.untilSigned(t, join.Token)
		tc.change(&join)
		userData, err := bootstrap.JoinUserData(join)
		if err != nil {
			t.Fatal(err)
		}
		c.provision(t, name, userData)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			eventually(t, "the server's failure", func() bool { return statusOf(rack, name).State == Failed })
			status := statusOf(rack, name)
			if !strings.Contains(status.Reason, tc.want) || strings.Contains(status.Reason, "0123456789abcdef") {
				t.Errorf("%s: the reason lacks %q: %s", tc.reason, tc.want, status.Reason)
			}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "m-" + name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
				t.Errorf("%s: the Node must not exist: %v", tc.reason, err)
			}
		})
	}
}

// testNoCRD runs last: it deletes the CRD.
func testNoCRD(t *testing.T, c *testCluster) {
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "baremetalhosts.metal3.io"}}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := c.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the CRD's end", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	})
	limit := time.Second
	eventually(t, "an error that names what is missing", func() bool {
		rack, err := NewRack(Config{RESTConfig: c.REST, Namespace: hostNamespace, Logger: testr.New(t)})
		if err != nil {
			t.Fatal(err)
		}
		// Discovery drops the kind a moment after the CRD is deleted. A rack that began before that does not end, and one on a busy
		// machine takes longer: each attempt has more time than the one before.
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		limit *= 2
		err = rack.Run(ctx)
		return err != nil && strings.Contains(err.Error(), "install Metal3's CRDs")
	})
}
