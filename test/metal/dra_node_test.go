// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/dradriver"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// devices of the server. Their names are gpu-0 and so on.
const devices = 4

// hostFixture is a host cluster, with our manager and our webhook, and the administrator's access to it.
type hostFixture struct{ *clusterFixture }

// newHostFixture starts a host cluster, and stops everything at the end of the test.
func newHostFixture(t *testing.T) *hostFixture {
	t.Helper()
	w := &hostFixture{newClusterFixture(t, ipv4Network(), programs("etcd", "kube-apiserver", "kube-controller-manager",
		"kube-scheduler", "kubeadm", "helm", vclusterName, dradriver.Program, "manager", "provider", "webhook"))}
	w.startCluster(t, cluster.Options{
		Name: "host", Etcd: w.startEtcd(t, "etcd-host"),
		Prepare: func(ctx context.Context, c client.Client) error {
			return cluster.PrepareManagement(ctx, c, cluster.Binaries{bin}, stack.HostsNamespace)
		},
	})
	manager, webhook := filepath.Join(w.dir, "manager.kubeconfig"), filepath.Join(w.dir, "webhook.kubeconfig")
	if err := w.Grant(t.Context(), cluster.ManagerUser, stack.HostsNamespace, manager, "manager.yaml"); err != nil {
		t.Fatal(err)
	}
	// Providers write nothing until the manager has identified the tenants' clusters.
	w.startOurs(t, "manager", "manager", "--kubeconfig="+manager, "--leader-elect=false", "--metrics-bind-address=0")
	if err := w.Grant(t.Context(), cluster.WebhookUser, stack.HostsNamespace, webhook, "webhook.yaml"); err != nil {
		t.Fatal(err)
	}
	spec := process.Spec{Args: []string{"--metrics-bind-address=0"}, Env: []string{"HOME=" + w.dir}}
	if err := w.StartWebhook(t.Context(), webhook, spec); err != nil {
		t.Fatal(err)
	}
	return w
}

// startOurs starts one of our programs as a process of that name, and returns when it is ready.
func (w *hostFixture) startOurs(t *testing.T, name, program string, args ...string) {
	t.Helper()
	ctx, done := poll.WithPatience(w.ctx)
	defer done()
	spec := process.Spec{Name: name, Args: args, Env: []string{"HOME=" + w.dir}}
	if err := w.StartProgram(ctx, program, spec); err != nil {
		t.Fatal(err)
	}
	w.logf("our %s is ready", name)
}

// startEtcd starts an etcd that listens on the machine's address of the network.
func (w *hostFixture) startEtcd(t *testing.T, name string) *cluster.Etcd {
	t.Helper()
	etcd, err := cluster.StartEtcd(t.Context(), cluster.EtcdOptions{
		Name: name, Dir: w.dir, Binaries: cluster.Binaries{bin}, Processes: w.supervisor,
		Address: w.network.Address.Addr().String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return etcd
}

// bootServer boots the server with the image of the driver. The user data are how it joins.
func (w *hostFixture) bootServer(t *testing.T, userData []byte) {
	t.Helper()
	images := filepath.Join(w.dir, "images")
	if err := dradriver.WriteImage(bin, images); err != nil {
		t.Fatal(err)
	}
	w.install(t, userData, nil)
	w.turnOn(t, container, "--container-images", images)
}

// installDriver installs the driver, and returns when it has published its devices.
func (w *hostFixture) installDriver(t *testing.T) {
	t.Helper()
	if err := dradriver.Install(t.Context(), bin, w.Client, w.endpoint(), dradriver.Options{Devices: devices}); err != nil {
		t.Fatal(err)
	}
	w.until(t, "the driver to publish its devices", func(ctx context.Context) error {
		slices := &resourcev1.ResourceSliceList{}
		if err := w.Client.List(ctx, slices); err != nil {
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
func (w *hostFixture) untilCheckpointEmpty(t *testing.T) {
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
func (w *hostFixture) preparedClaims() ([]string, error) {
	path := filepath.Join(w.server.Dir, "disk/kubelet/plugins", dradriver.Driver, "checkpoint.json")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	checkpoint := struct {
		Kind           string `json:"kind"`
		PreparedClaims []struct {
			UID string `json:"uid"`
		} `json:"preparedClaims"`
	}{}
	if err := json.Unmarshal(content, &checkpoint); err != nil {
		return nil, err
	}
	if checkpoint.Kind != "Checkpoint" {
		return nil, errors.New("the driver's checkpoint has another form: " + string(content))
	}
	var claims []string
	for _, claim := range checkpoint.PreparedClaims {
		claims = append(claims, claim.UID)
	}
	return claims, nil
}
