// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/server"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

const (
	// enabled is the environment variable that the tests run with.
	enabled = "E2E_METAL"
	// patience bounds each wait. It is far beyond what anything takes, so that only what never happens fails.
	patience = 6 * time.Minute
)

// world is a management cluster with a rack, a tenant, and the network between the tenant's API server and the servers.
type world struct {
	*stack.Stack
	tenant  *stack.Tenant
	kube    kubernetes.Interface
	network *network.Bridge
	// bin is the directory that has the programs, and dir the one where everything goes.
	bin, dir string
	journal  *journal
	traces   *traces
	// ids are what operating systems are named after, by the checksum of the image that they are in.
	ids map[string]string
}

// need skips the test if it is not enabled, and fails it if a prerequisite is missing.
func need(t *testing.T, bin string, more ...func(bin string) error) {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skip("pods on servers that a real Ironic installs: run it with `make e2e-metal`, as root; " +
			"it unpacks Ironic and the disk of a server from Debian's packages into bin/")
	}
	errs := []error{stack.Missing(bin), stack.MissingForTenant(bin), missingServer(bin)}
	for _, missing := range more {
		errs = append(errs, missing(bin))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("this cannot run:\n%v\n`make e2e-metal` makes all of it that can be made; what runs without: `make test`, `make demo`, and "+
			"./test/metal itself, "+
			"where no server boots", err)
	}
}

func missingServer(bin string) error {
	var errs []error
	if _, err := os.Stat(filepath.Join(bin, light)); err != nil {
		errs = append(errs, errors.New("bin/boot-server is missing: run `make boot-server`"))
	}
	return errors.Join(append(errs, server.Check(server.Options{Server: anyServer(bin)}))...)
}

// anyServer is one of this machine. Its loopback stands for the bridge, which is not there yet.
func anyServer(bin string) boot.Server {
	return boot.Server{Dir: bin, Image: filepath.Join(bin, "server-image"), Bridge: "lo"}
}

// setup says what to start.
type setup struct {
	// bin is the directory that has the programs, and dir the one where everything goes.
	bin, dir string
	// rack is the file of testdata that has the servers, or the absolute path of another one.
	rack string
	// charts leaves it to the test to install what is ours, in a management cluster that servers can join, and in the
	// tenant's.
	charts bool
}

// newWorld starts everything. It ends with the test.
func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	bin, dir := s.bin, s.dir
	w := &world{bin: bin, dir: dir, journal: newJournal(t), traces: newTraces(t, dir), ids: map[string]string{}}
	// The last of all: what is left when everything was stopped.
	t.Cleanup(func() { w.traces.checkGone(t, w.journal.say) })
	w.startNetwork(t)
	rack := loadRack(t, s.rack)
	for _, server := range rack.Servers {
		w.traces.marks = append(w.traces.marks, server.UUID)
	}
	var err error
	config := stack.Config{
		Dir: dir, Bin: bin, Scenario: writeRack(t, dir, rack), BootCommand: w.writeBootCommand(t, rack),
		AgentTimeout: time.Minute, PowerTimeout: 20 * time.Second, Progress: w.journal.say,
	}
	if s.charts {
		config.Nodes = &stack.Nodes{Address: w.network.Address.Addr(), Pods: w.podNetwork()}
	}
	w.Stack, err = stack.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		w.journal.say("everything is stopped")
	})
	startTenant := w.StartTenant
	if s.charts {
		startTenant = w.StartTenantCluster
	} else if err := w.StartWebhook(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.tenant, err = startTenant(t.Context(), w.network.Address.Addr()); err != nil {
		t.Fatal(err)
	}
	if w.kube, err = kubernetes.NewForConfig(w.tenant.REST); err != nil {
		t.Fatal(err)
	}
	// Before anything is stopped: what was running when the test failed is what it failed of.
	t.Cleanup(func() {
		if t.Failed() {
			w.diagnose(t)
		}
	})
	return w
}

// startNetwork makes the network of the servers. Another run, of another clone, has another one.
func (w *world) startNetwork(t *testing.T) {
	t.Helper()
	address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 214, byte(os.Getpid()), 1}), 24)
	var err error
	if w.network, err = network.New(fmt.Sprintf("chain%d", os.Getpid()), address); err != nil {
		t.Fatal(err)
	}
	w.traces.noteLinks(t, w.network.Name)
	t.Cleanup(func() {
		if err := w.network.Close(); err != nil {
			t.Error(err)
		}
	})
}

// loadRack reads the rack, and gives its servers UUIDs that no other run on this machine has.
func loadRack(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join("testdata", name)
	}
	rack, err := scenario.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rack.Servers {
		rack.Servers[i].UUID, rack.Servers[i].Profile = uuid.NewString(), ""
	}
	return rack
}

func writeRack(t *testing.T, dir string, rack *scenario.Scenario) string {
	t.Helper()
	content, err := yaml.Marshal(scenario.Scenario{Servers: rack.Servers})
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, filepath.Join(dir, "rack.yaml"), content, 0o600)
}

// writeBootCommand writes what servers boot by, with the hardware that each of them has. They are containers.
func (w *world) writeBootCommand(t *testing.T, rack *scenario.Scenario) string {
	t.Helper()
	for _, server := range rack.Servers {
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
	return w.bootBy(t, light)
}

// accelerators are the IDs of the GPUs that are in a server, by the name of the resource that they are advertised as.
func accelerators(hardware inventory.Hardware) map[string][]string {
	found := map[string][]string{}
	for _, kind := range hardware.GPUs {
		resource := strings.ToLower(kind.Manufacturer) + ".com/gpu"
		for range max(kind.Count, 1) {
			found[resource] = append(found[resource], fmt.Sprintf("GPU-%s-%s-%d", hardware.SerialNumber, kind.Model, len(found[resource])))
		}
	}
	return found
}

func writeFile(t *testing.T, path string, content []byte, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// until waits until the check has nothing to say, and fails the test with what it said last.
func (w *world) until(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, stop := w.Context(t.Context())
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nothing came of it in %s", patience))
	defer done()
	if err := controlplane.Await(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}
