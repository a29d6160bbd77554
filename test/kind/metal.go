// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplane "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/e2e/servers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/metal"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/dradriver"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

// metalContainers are the names of the containers beside the clusters.
func (w *Environment) metalContainers() []string {
	return []string{metal.Metal3Container(w.state.Management.Name), metal.RackContainer(w.state.Management.Name)}
}

func connect(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s, %w", kubeconfig, err)
	}
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client by the kubeconfig %s, %w", kubeconfig, err)
	}
	return c, nil
}

// prepareManagement installs the CRDs of Metal3, without which the manager does not start. Metal3's container finds them.
func (w *Environment) prepareManagement(ctx context.Context) (client.Client, error) {
	c, err := connect(w.ManagementKubeconfig())
	if err != nil {
		return nil, err
	}
	return c, controlplane.PrepareMetal3(ctx, c, controlplane.Binaries{w.bin()}, hostNamespace)
}

// startMetal starts Metal3 and the rack, and waits until all servers are available.
func (w *Environment) startMetal(ctx context.Context, management client.Client) error {
	kubeconfig, err := os.ReadFile(w.path("management-internal.kubeconfig"))
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of Metal3, %w", err)
	}
	list := fleet.Reference
	if w.state.AllServers {
		list = servers.All
	}
	described, err := list()
	if err != nil {
		return err
	}
	containerImages := ""
	if w.state.DRADriver {
		containerImages = w.path("container-images")
		if err := dradriver.WriteImage(w.bin(), containerImages); err != nil {
			return err
		}
	}
	m, err := metal.Up(ctx, metal.Config{
		Cluster: w.state.Management.Name, Network: network, Kubeconfig: kubeconfig, Client: management, Servers: described,
		Bin: w.bin(), Dir: w.path("metal"), ContainerImages: containerImages, Progress: w.say,
	})
	if err != nil {
		return err
	}
	w.state.Rack = m.Rack.Admin
	if err := w.writeFleet(ctx, m.OSImage); err != nil {
		return err
	}
	if err := m.AwaitAvailable(ctx); err != nil {
		return err
	}
	w.say("all servers are available")
	return nil
}

// installCharts runs the commands of docs/install.md.
func (w *Environment) installCharts(ctx context.Context) error {
	p, err := page.Open(page.Config{
		File: filepath.Join(w.config.Repository, "docs", "install.md"), Dir: w.path("page"),
		Bin: w.bin(), Kubeconfig: w.ManagementKubeconfig(),
		Links: map[string]string{
			"charts": filepath.Join(w.config.Repository, "charts"), tenantName + "-admin.kubeconfig": w.TenantKubeconfig(),
		},
		Names: []string{
			"acme.example.com:6443", w.endpoint, "acme", tenantName,
			// The page waits for the Deployments after each installation, and a tenant's for its TenantCluster before.
			"helm install", "helm install --wait --timeout=3m",
		},
	})
	if err != nil {
		return err
	}
	for _, section := range []struct {
		title        string
		blocks       int
		replacements []string
		done         string
	}{
		{"1. The management cluster", 3, nil, "manager and webhook run"},
		{"2. The tenant cluster", 2, nil, "the tenant cluster has the tenant's chart"},
		// The sandbox's provider has this gate, too.
		{"3. The tenant's provider", 4, []string{"charts/karpenter-metal3-tenant ",
			"charts/karpenter-metal3-tenant --set provider.featureGates.CapacityBuffer=true "}, "the provider runs"},
	} {
		if _, err := p.Follow(ctx, section.title, section.blocks, section.replacements...); err != nil {
			return err
		}
		w.say("%s", section.done)
	}
	// A quota that is as new as the definitions is counted after minutes, and no Machine is admitted until then.
	if _, err := w.kubectl(ctx, w.ManagementKubeconfig(), "wait", "resourcequota", "--all", "--namespace="+tenantName,
		`--for=jsonpath={.status.used.count/machines\.karpenter\.metal3\.io}`, "--timeout=6m"); err != nil {
		return err
	}
	// The page's tenant may have a part of the types and servers only.
	_, err = w.kubectl(ctx, w.ManagementKubeconfig(), "patch", "tenantcluster", tenantName, "--namespace="+tenantName, "--type=merge",
		`--patch={"spec": {"allowedNodeTypes": null, "quota": null}}`)
	return err
}

// installDriver installs the DRA driver in the tenant cluster, if the environment has one.
func (w *Environment) installDriver(ctx context.Context) error {
	if !w.state.DRADriver {
		return nil
	}
	tenant, err := connect(w.TenantKubeconfig())
	if err != nil {
		return err
	}
	if err := dradriver.Install(ctx, w.bin(), tenant, w.endpoint, dradriver.Options{Devices: 1}); err != nil {
		return err
	}
	w.say("the DRA driver %s publishes one device of each server", dradriver.Driver)
	return nil
}
