// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/dradriver"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

const (
	nodeName  = "gpu-server-1"
	serverMAC = "52:54:00:6e:1f:0e"
	// devices of the server. Their names are gpu-0 and so on.
	devices = 4
)

func (w *fixture) server() boot.Server {
	return boot.Server{
		Name: nodeName, UUID: w.id, MAC: serverMAC, Dir: filepath.Join(w.dir, "server"), Image: filepath.Join(w.bin, "server-image"),
	}
}

// turnOn boots the server, as a rack does. The user data are how it joins.
func (w *fixture) turnOn(t *testing.T, userData []byte) {
	t.Helper()
	images := filepath.Join(w.dir, "images")
	writeFile(t, w.server().InstalledImage(), []byte("image 1"))
	w.writeConfigDrive(t, userData)
	if err := dradriver.WriteImage(w.bin, images); err != nil {
		t.Fatal(err)
	}
	path, err := w.binaries.Find("boot-server")
	if err != nil {
		t.Fatal(err)
	}
	err = w.supervisor.Start(process.Spec{
		Name: "server", Path: path, Rank: controlplane.RankClients + 2, Grace: time.Minute,
		Args: []string{"--image", w.server().Image, "--bridge", w.network.Name, "--container-images", images},
		Env:  []string{"SERVER_NAME=" + nodeName, "SERVER_UUID=" + w.id, "SERVER_MAC=" + serverMAC, "SERVER_DIR=" + w.server().Dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.logf("the server is turned on")
}

// writeConfigDrive writes the server's config drive: its identity, its network and how it joins.
func (w *fixture) writeConfigDrive(t *testing.T, userData []byte) {
	t.Helper()
	networkData, err := bootstrap.NetworkData(bootstrap.NetworkConfig{
		Address: w.network.Server(9), Gateway: w.network.Address.Addr(), MAC: serverMAC,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.server().WriteConfigDrive(networkData, userData); err != nil {
		t.Fatal(err)
	}
}

// userData joins the server by kubeadm.
func (w *fixture) userData(t *testing.T) []byte {
	t.Helper()
	realClock := clock.RealClock{}
	// It gives the join token its name. No such Machine exists.
	machine := v1alpha1.MachineReference{Namespace: hostsNamespace, Name: nodeName, UID: "0c5f3f0e-0000-4000-8000-000000000003"}
	token, err := bootstrap.EnsureToken(t.Context(), w.client, machine, v1alpha1.JoinKubeadm, realClock.Now().Add(time.Hour), realClock)
	if err != nil {
		t.Fatal(err)
	}
	hashes, err := bootstrap.CACertHashes(w.CertificateAuthority())
	if err != nil {
		t.Fatal(err)
	}
	join, err := bootstrap.JoinUserData(bootstrap.Join{
		NodeName: nodeName, ProviderID: "none://" + nodeName, APIServerEndpoint: w.endpoint(), CACertHashes: hashes, Token: token,
	})
	if err != nil {
		t.Fatal(err)
	}
	document, err := bootstrap.UserData(nil, nil, nil, join)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// endpoint of the host's API server, host:port.
func (w *fixture) endpoint() string { return strings.TrimPrefix(w.Server, "https://") }

// untilNodeReady waits until the server is a ready node of a cluster, which it returns.
func (w *fixture) untilNodeReady(t *testing.T, cluster client.Client) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	w.until(t, "node "+nodeName+" to be ready", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKey{Name: nodeName}, node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				w.logf("node %s is ready, with %s", nodeName, node.Status.NodeInfo.ContainerRuntimeVersion)
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", node.Status.Conditions)
	})
	return node
}

// installDriver installs the driver, and returns when it has published its devices.
func (w *fixture) installDriver(t *testing.T) {
	t.Helper()
	if err := dradriver.Install(t.Context(), w.bin, w.client, w.endpoint(), devices); err != nil {
		t.Fatal(err)
	}
	w.until(t, "the driver to publish its devices", func(ctx context.Context) error {
		slices := &resourcev1.ResourceSliceList{}
		if err := w.client.List(ctx, slices); err != nil {
			return err
		}
		for i := range slices.Items {
			spec := slices.Items[i].Spec
			if spec.Driver == dradriver.Driver && spec.NodeName != nil && *spec.NodeName == nodeName && len(spec.Devices) == devices {
				return nil
			}
		}
		return fmt.Errorf("there are %d ResourceSlices", len(slices.Items))
	})
	w.logf("driver %s has published %d devices of node %s", dradriver.Driver, devices, nodeName)
}

// untilCheckpointEmpty waits until the driver has unprepared all claims, which it notes on the server's disk.
func (w *fixture) untilCheckpointEmpty(t *testing.T) {
	t.Helper()
	w.until(t, "the driver to have unprepared all claims", func(context.Context) error {
		claims, err := w.preparedClaims()
		if err == nil && len(claims) > 0 {
			err = fmt.Errorf("it has prepared %v", claims)
		}
		return err
	})
	w.logf("the driver's checkpoint is empty")
}

// preparedClaims returns the UIDs of the claims in the driver's checkpoint.
func (w *fixture) preparedClaims() ([]string, error) {
	path := filepath.Join(w.server().Dir, "disk/kubelet/plugins", dradriver.Driver, "checkpoint.json")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	checkpoint := struct {
		V1 *struct {
			PreparedClaims map[string]json.RawMessage `json:"preparedClaims"`
		} `json:"v1"`
	}{}
	if err := json.Unmarshal(content, &checkpoint); err != nil {
		return nil, err
	}
	if checkpoint.V1 == nil {
		return nil, errors.New("the driver's checkpoint has another form: " + string(content))
	}
	var claims []string
	for claim := range checkpoint.V1.PreparedClaims {
		claims = append(claims, claim)
	}
	return claims, nil
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
