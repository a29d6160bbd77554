// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vlan"
)

const (
	kindLabel    = "kind"
	providerName = "metal3-provider" // as on the pages of the docs
)

// stackFixture is a management cluster with a rack.
type stackFixture struct {
	*fixture
	*stack.Stack
	journal *journal
	// tenant is the cluster that servers join, and kube its administrator's client; nil if no server boots.
	tenant *cluster.Cluster
	kube   kubernetes.Interface
	// lab is the switch that servers are moved by, nil if there is none.
	lab *vlan.Lab
	// networks are those that a server which boots by network is moved between, nil if there is none.
	networks *twoNetworks
	// ids are the image IDs in the names of operating systems, by checksum of the image.
	ids map[string]string
}

// startStack starts a management cluster with a rack, and stops it at the end of the test.
func (w *stackFixture) startStack(t *testing.T, config stack.Config) {
	t.Helper()
	config.Dir, config.Bin, config.Progress = w.dir, bin, w.logf
	var err error
	if w.Stack, err = stack.Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	var stop context.CancelFunc
	w.ctx, stop = w.Context(w.ctx)
	t.Cleanup(func() {
		w.showLogs(t)
		stop()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		w.logf("everything is stopped")
	})
}

// newChain starts a rack of servers that boot, a management cluster, and a tenant that they join.
func newChain(t *testing.T, rackFile string, checks ...func() error) *stackFixture {
	t.Helper()
	w := &stackFixture{ids: map[string]string{}}
	w.fixture = newFixture(t, append(checks, missingServer, func() error { return stack.Missing(bin) },
		func() error { return stack.MissingForTenant(bin) })...)
	w.journal = newJournal(t, w.logf)
	w.startRack(t, rackFile)
	if err := w.StartWebhook(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.tenant, err = w.StartTenant(t.Context(), w.network.Address.Addr()); err != nil {
		t.Fatal(err)
	}
	w.showEvents(t, "tenant", w.tenant.Client)
	if w.kube, err = kubernetes.NewForConfig(w.tenant.REST); err != nil {
		t.Fatal(err)
	}
	return w
}

// startRack starts a rack of servers that boot, in a network, and a management cluster.
func (w *stackFixture) startRack(t *testing.T, rackFile string) {
	t.Helper()
	w.startNetwork(t, ipv4Network())
	rack, err := scenario.Load(filepath.Join("testdata", rackFile))
	if err != nil {
		t.Fatal(err)
	}
	for i := range rack.Servers {
		// Unique on this machine.
		rack.Servers[i].UUID, rack.Servers[i].Profile = uuid.NewString(), ""
		w.addServer(boot.Server{UUID: rack.Servers[i].UUID})
		w.writeHardware(t, &rack.Servers[i])
	}
	content, err := yaml.Marshal(scenario.Scenario{Servers: rack.Servers})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(w.dir, "rack.yaml"), content, 0o600)
	config := stack.Config{
		Scenario: filepath.Join(w.dir, "rack.yaml"), BootCommand: w.bootBy(t, container),
		AgentTimeout: time.Minute, PowerTimeout: 20 * time.Second,
	}
	if slices.ContainsFunc(rack.Servers, func(s scenario.Server) bool { return s.Machine }) {
		config.Host, config.AgentTimeout = w.network.Address.Addr().String(), 5*time.Minute
		w.startNetworks(t, rack.Servers[0], &config)
	}
	w.startStack(t, config)
}

// writeHardware writes the files of a server's hardware, which its boot command copies.
func (w *stackFixture) writeHardware(t *testing.T, server *scenario.Server) {
	t.Helper()
	_, _, threads := server.Hardware.Count()
	for file, content := range map[string]any{
		"devices.json":  accelerators(*server.Hardware),
		"hardware.json": map[string]int{"cpus": threads, "memoryMiB": server.Hardware.MemoryGiB << 10},
	} {
		encoded, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(w.dir, "inventory", server.Name, file), encoded, 0o600)
	}
}

// accelerators returns the IDs of a server's GPUs, by resource name.
func accelerators(hardware inventory.Hardware) map[string][]string {
	found := map[string][]string{}
	for _, kind := range hardware.GPUs {
		resource := strings.ToLower(kind.Manufacturer) + ".com/gpu"
		for range max(kind.Count, 1) {
			id := fmt.Sprintf("GPU-%s-%s-%d", hardware.SerialNumber, kind.Model, len(found[resource]))
			found[resource] = append(found[resource], id)
		}
	}
	return found
}

// keepJournal starts the watches. They end with the test, or when the returned function is called.
func (w *stackFixture) keepJournal(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	follow := func(c client.WithWatch, list client.ObjectList, options ...client.ListOption) {
		followers.Go(func() { w.journal.follow(ctx, c, list, options...) })
	}
	follow(w.Client, &bmov1alpha1.BareMetalHostList{}, client.InNamespace(stack.HostsNamespace))
	follow(w.Client, &v1alpha1.MachineList{}) // of all tenants
	if w.tenant != nil {
		follow(w.tenant.Client, &corev1.PodList{}, client.InNamespace(metav1.NamespaceDefault))
		follow(w.tenant.Client, &karpv1.NodeClaimList{})
		follow(w.tenant.Client, &corev1.NodeList{})
	}
	return func() { cancel(); followers.Wait() }
}

// createFleet creates the objects of a platform team: OSImages, and NodeTypes with the first image. A NodeType has the
// servers that are labelled with its name.
func (w *stackFixture) createFleet(t *testing.T, nodeTypes []v1alpha1.NodeTypeTemplate, osImages ...stack.Image) {
	t.Helper()
	for i, image := range osImages {
		w.create(t, w.Client, &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: imageName(i)}, Spec: v1alpha1.OSImageSpec{
			Properties: map[string]string{v1alpha1.PropertyImageURL: image.URL, v1alpha1.PropertyImageChecksum: image.Checksum},
		}})
	}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: providerName}}
	provider.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: imageName(0)}
	if w.network != nil {
		// This machine has the host part of the network, so it is the gateway.
		provider.Spec.Properties[v1alpha1.PropertyNetworkCIDR] = w.network.Address.String()
	}
	provider.Spec.Metal3.ClusterRef.Namespace = stack.HostsNamespace
	for _, nodeType := range nodeTypes {
		nodeType.BareMetalHosts = env.HostsWith(map[string]string{kindLabel: nodeType.Name})
		provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, nodeType)
	}
	w.create(t, w.Client, provider)
}

func imageName(i int) string { return fmt.Sprintf("linux-%d", i+1) }

// nodeType describes servers of that many resources.
func nodeType(name string, resources ...string) v1alpha1.NodeTypeTemplate {
	nodeType := v1alpha1.NodeTypeTemplate{Name: name}
	nodeType.Resources = env.Resources(resources...)
	return nodeType
}
