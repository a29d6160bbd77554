// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

const (
	// bareServer is installed by Metal3 alone, for comparison; bareNode is its node.
	bareServer = "gpu-03"
	bareNode   = "bare"
	// bareKind is a label that no NodeType selects.
	bareKind = "bare"
)

// installBare installs a server with Metal3 alone: with an image, user data and network data in
// the BareMetalHost. It takes the time until the Node has GPUs, and gives the server back.
func (w *stackFixture) installBare(t *testing.T, image stack.Image) *timeline {
	t.Helper()
	host, err := w.Host(t.Context(), bareServer)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stack.HostsNamespace, Name: bareNode}}
	secret.Data = map[string][]byte{"userData": w.bareUserData(t), "networkData": w.bareNetworkData(t, host)}
	w.create(t, w.Client, secret)
	reference := &corev1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}
	times := &timeline{}
	times.add("", "Metal3 is asked for it", time.Now())
	w.patchHost(t, func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.Image = &bmov1alpha1.Image{URL: image.URL, Checksum: image.Checksum, ChecksumType: bmov1alpha1.SHA256}
		host.Spec.UserData, host.Spec.NetworkData, host.Spec.Online = reference, reference, true
	})
	w.until(t, "node "+bareNode+" to be ready", func(context.Context) error {
		node, err := look[*corev1.Node](w.journal, bareNode)
		if err != nil {
			return err
		}
		if node.Status.Allocatable.Name(gpu, "").IsZero() {
			return errors.New("it has no GPUs yet")
		}
		return nodeIsReady(node)
	})
	w.addBoot(t, times, bareServer, bareNode)

	w.patchHost(t, func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.Image, host.Spec.UserData, host.Spec.NetworkData, host.Spec.Online = nil, nil, nil, false
	})
	w.untilAvailable(t, bareServer)
	for c, objects := range map[client.Client][]client.Object{
		w.Client:        {secret},
		w.tenant.Client: {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: bareNode}}},
	} {
		for _, object := range objects {
			if err := c.Delete(t.Context(), object); err != nil {
				t.Fatalf("deleting %T %s, %v", object, object.GetName(), err)
			}
		}
	}
	if err := bootstrap.DeleteToken(t.Context(), w.tenant.Client, machineOfNode(bareNode)); err != nil {
		t.Fatal(err)
	}
	return times
}

// patchHost changes the BareMetalHost of bareServer.
func (w *stackFixture) patchHost(t *testing.T, change func(*bmov1alpha1.BareMetalHost)) {
	t.Helper()
	host, err := w.Host(t.Context(), bareServer)
	if err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	change(host)
	if err := w.Client.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatalf("changing host %s, %v", host.Name, err)
	}
}

// bareUserData returns the user data that our provider would write, so that both servers do the same work.
func (w *stackFixture) bareUserData(t *testing.T) []byte {
	t.Helper()
	return userData(t, bootstrap.Join{
		NodeName: bareNode, ProviderID: fmt.Sprintf("metal3://%s/%s/%s", stack.HostsNamespace, bareServer, bareNode),
		APIServerEndpoint: strings.TrimPrefix(w.tenant.REST.Host, "https://"),
		Token:             joinToken(t, w.tenant.Client, bareNode, v1alpha1.JoinKubeadm),
	}, w.tenant.CertificateAuthority(), "")
}

func (w *stackFixture) bareNetworkData(t *testing.T, host *bmov1alpha1.BareMetalHost) []byte {
	t.Helper()
	// No Machine gets this address: the pool starts elsewhere.
	const last = 200
	data, err := bootstrap.NetworkData(addressOf(w.network, last), host.Spec.BootMACAddress)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// moveToType labels bareServer so that the NodeType selects it.
func (w *stackFixture) moveToType(t *testing.T) {
	t.Helper()
	w.patchHost(t, func(host *bmov1alpha1.BareMetalHost) { host.Labels[kindLabel] = nodeTypeName })
	w.until(t, "NodeType "+nodeTypeName+" to have all servers", func(ctx context.Context) error {
		nodeType := &v1alpha1.NodeType{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: nodeTypeName}, nodeType); err != nil {
			return err
		}
		if available := int(nodeType.Status.Capacity.Available); available != w.inOrder() {
			return fmt.Errorf("it has %d available, want %d", available, w.inOrder())
		}
		return nil
	})
}
