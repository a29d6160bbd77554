// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusters has the two clusters that black-box tests run on: those that E2E_MANAGEMENT_KUBECONFIG and E2E_TENANT_KUBECONFIG name
// (docs/testing.md), or those of a sandbox. Tests whose folder is two below the root of the checkout use it.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/e2e/servers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// fleetProvider is the NodeProvider of the fleet that E2E_FLEET or the examples describe.
const fleetProvider = "metal3-provider"

// Clusters are a management cluster and that of a tenant, with what the charts install.
type Clusters struct {
	Management, Tenant                     client.WithWatch
	ManagementKubeconfig, TenantKubeconfig string
	// Sandbox is nil if the clusters were there before. Its files are in Dir.
	Sandbox *sandbox.Sandbox
	Dir     string
	// PodImage is the image of all pods.
	PodImage string
	// AllServers is whether there are the servers of test/e2e/servers beside those of the reference fleet.
	AllServers bool
	// management and tenant are the objects that describe the fleet, for either cluster.
	management, tenant []*unstructured.Unstructured
}

// Open connects to the clusters that the environment names. If it names none, it starts a sandbox with all servers, in a temporary
// directory; the configuration says what is special about that. Close ends it.
func Open(ctx context.Context, config sandbox.Config) (*Clusters, error) {
	c, err := read()
	if err != nil {
		return nil, err
	}
	if c.ManagementKubeconfig == "" {
		if err := c.start(ctx, config); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if c.Management, err = connect(c.ManagementKubeconfig); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	tenant, err := connect(c.TenantKubeconfig)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.Tenant = cluster.RecreatingEvicted(tenant)
	return c, nil
}

func connect(kubeconfig string) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading kubeconfig %s, %w", kubeconfig, err)
	}
	config.QPS = -1 // no limit: its error at the end of a wait would hide what was missing
	connected, err := client.NewWithWatch(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting with kubeconfig %s, %w", kubeconfig, err)
	}
	return connected, nil
}

func (c *Clusters) start(ctx context.Context, config sandbox.Config) error {
	var err error
	if config.Fleet, err = servers.All(); err != nil {
		return err
	}
	if c.Dir, err = os.MkdirTemp("", "e2e-sandbox-"); err != nil {
		return fmt.Errorf("making the directory of a sandbox, %w", err)
	}
	fmt.Println("starting a sandbox for the tests in", c.Dir)
	config.Dir, config.Binaries, config.Progress = c.Dir, cluster.Binaries{filepath.Join("..", "..", "bin")}, os.Stdout
	config.AuditLogs = os.Getenv(audit.DirectoryVariable)
	if c.Sandbox, err = sandbox.Up(ctx, config); err != nil {
		return fmt.Errorf("starting a sandbox (run `make tools build` first), %w", err)
	}
	kubeconfigs := c.Sandbox.Kubeconfigs()
	c.ManagementKubeconfig, c.TenantKubeconfig, c.AllServers = kubeconfigs.Management, kubeconfigs.Tenant, true
	return nil
}

// Close ends the sandbox, if there is one, and removes its files.
func (c *Clusters) Close() error {
	if c.Sandbox != nil {
		c.Sandbox.Close()
	}
	if c.Dir == "" {
		return nil
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return fmt.Errorf("removing the sandbox, %w", err)
	}
	return nil
}

// DescribeFleet applies the objects that describe the fleet to both clusters.
func (c *Clusters) DescribeFleet(ctx context.Context) error {
	if err := examples.ApplyAll(ctx, c.Management, c.management); err != nil {
		return err
	}
	return examples.ApplyAll(ctx, c.Tenant, c.tenant)
}

// FleetProperties are those of the NodeProvider of the fleet: whatever is of its servers needs them, such as an image that there really is.
func (c *Clusters) FleetProperties(ctx context.Context) (map[string]string, error) {
	provider := &v1alpha1.NodeProvider{}
	if err := c.Management.Get(ctx, client.ObjectKey{Name: fleetProvider}, provider); err != nil {
		return nil, fmt.Errorf("reading the NodeProvider of the fleet, %w", err)
	}
	return provider.Spec.Properties, nil
}
