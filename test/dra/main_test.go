// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/dra/environment"
)

// Tenants, each with a provider and a pod syncer of its own. Those of the page docs/dra.md are made by that page.
const (
	tester    = "tester"
	research  = "research"
	inference = "inference"
)

var (
	binaries = cluster.Binaries{filepath.Join("..", "..", "bin")}

	start   sync.Once
	running *environment.Environment
	failed  error
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // or it makes files in the temporary directory
	ctrl.SetLogger(klog.Background())
	code := m.Run()
	if running != nil {
		if err := errors.Join(running.Close(), os.RemoveAll(running.Dir())); err != nil {
			fmt.Fprintln(os.Stderr, "error: closing the environment,", err)
			code = 1
		}
	}
	os.Exit(code)
}

// sharedEnvironment returns the environment of all tests of the package. The first one starts it.
func sharedEnvironment(t *testing.T) *environment.Environment {
	t.Helper()
	if err := environment.Programs(binaries, "helm", "provider", "vcluster", "webhook"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if t.Failed() && running != nil {
			for _, tenant := range running.Tenants {
				t.Logf("the last lines of the log of the provider of %s:\n%s", tenant.Name, running.Log(tenant.ProviderProcess(), 30))
			}
			for _, name := range []string{environment.WebhookProcess, running.Tenant(research).VClusterProcess()} {
				t.Logf("the last lines of the log of %s:\n%s", name, running.Log(name, 30))
			}
		}
	})
	start.Do(func() { running, failed = startEnvironment(t.Context()) })
	if failed != nil {
		t.Fatal(failed)
	}
	return running
}

func startEnvironment(ctx context.Context) (*environment.Environment, error) {
	dir, err := os.MkdirTemp("", "dra-")
	if err != nil {
		return nil, err
	}
	w, err := environment.Start(ctx, environment.Config{
		Dir: dir, Binaries: binaries, Tenants: []string{tester, research, inference}, Nodes: []string{"gpu-server-1", "gpu-server-2"},
	})
	if err != nil {
		return w, err
	}
	if err := w.StartWebhook(ctx); err != nil {
		return w, err
	}
	for _, tenant := range w.Tenants {
		if err := errors.Join(syncPods(ctx, tenant), tenant.StartProvider(ctx)); err != nil {
			return w, err
		}
	}
	return w, w.PublishDevices(ctx, map[string][]resourcev1.Device{"gpu-server-1": wholeGPUs(), "gpu-server-2": slicedGPUs()})
}

// syncPods has the real vCluster sync the pods of one tenant. Without its settings for claims, a
// resourceclaim controller runs in the tenant.
func syncPods(ctx context.Context, tenant *environment.Tenant) error {
	if tenant.Name != research {
		return tenant.SyncPods()
	}
	if _, err := tenant.StartClaimController(); err != nil {
		return err
	}
	return tenant.StartVCluster(ctx)
}

// wholeGPUs are three H100s and an A100 on two sockets, and one with a taint.
func wholeGPUs() []resourcev1.Device {
	broken := device("gpu-4", "gpu", "b200", 1, "192Gi")
	broken.Taints = []resourcev1.DeviceTaint{{Key: "gpu.example.com/maintenance", Value: "fan",
		Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	return []resourcev1.Device{
		device("gpu-0", "gpu", "h100", 0, "80Gi"), device("gpu-1", "gpu", "h100", 0, "80Gi"),
		device("gpu-2", "gpu", "h100", 1, "80Gi"), device("gpu-3", "gpu", "a100", 1, "80Gi"),
		broken,
	}
}

// slicedGPUs are two MIG slices of one GPU, and one GPU that several claims share by memory.
func slicedGPUs() []resourcev1.Device {
	shared := device("gpu-1", "shared", "l40", 0, "48Gi")
	shared.AllowMultipleAllocations = ptr.To(true)
	return []resourcev1.Device{
		device("gpu-0-mig-0", "mig", "h100", 0, "10Gi"), device("gpu-0-mig-1", "mig", "h100", 0, "10Gi"),
		shared,
	}
}

func device(name, kind, model string, socket int64, memory string) resourcev1.Device {
	return resourcev1.Device{
		Name: name,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"type": {StringValue: &kind}, "model": {StringValue: &model}, "socket": {IntValue: &socket},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
	}
}
