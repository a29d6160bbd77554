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
	// waitTimeout bounds each wait. It is far longer than any step takes, so that a busy machine fails no test.
	waitTimeout = 6 * time.Minute
)

// fixture is a management cluster with a rack, a tenant, and the network between the tenant's API server and the servers.
type fixture struct {
	*stack.Stack
	tenant  *stack.Tenant
	kube    kubernetes.Interface
	network *network.Bridge
	// bin is the directory that has the programs, and dir the one where everything goes.
	bin, dir  string
	journal   *journal
	leftovers *traces
	// ids are the image IDs in the names of operating systems, by checksum of the image.
	ids map[string]string
}

// requirePrerequisites skips the test if it is not enabled, and fails it if a prerequisite is missing.
func requirePrerequisites(t *testing.T, bin string, more ...func(bin string) error) {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skip("pods on servers that a real Ironic installs: run `make e2e-metal` as root; " +
			"it unpacks Ironic and the disk of a server from Debian's packages into bin/")
	}
	errs := []error{stack.Missing(bin), stack.MissingForTenant(bin), missingServer(bin)}
	for _, missing := range more {
		errs = append(errs, missing(bin))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("this cannot run:\n%v\n`make e2e-metal` builds what can be built; without it, run `make test`, `make demo`, or "+
			"./test/metal itself, "+
			"in which no server boots", err)
	}
}

func missingServer(bin string) error {
	var errs []error
	if _, err := os.Stat(filepath.Join(bin, container)); err != nil {
		errs = append(errs, errors.New("bin/boot-server is missing: run `make boot-server`"))
	}
	return errors.Join(append(errs, server.Check(server.Options{Server: anyServer(bin)}))...)
}

// anyServer is a server for the check. The loopback interface stands for the bridge, which does not exist yet.
func anyServer(bin string) boot.Server {
	return boot.Server{Dir: bin, Image: filepath.Join(bin, "server-image"), Bridge: "lo"}
}

// setup configures the fixture.
type setup struct {
	// bin is the directory that has the programs, and dir the one where everything goes.
	bin, dir string
	// rack is the file of testdata that has the servers.
	rack string
}

// newFixture starts everything, and stops it at the end of the test.
func newFixture(t *testing.T, s setup) *fixture {
	t.Helper()
	bin, dir := s.bin, s.dir
	w := &fixture{bin: bin, dir: dir, journal: newJournal(t), leftovers: newTraces(t, dir), ids: map[string]string{}}
	// Runs last: finds what is left after everything was stopped.
	t.Cleanup(func() { w.leftovers.checkGone(t, w.journal.logf) })
	w.startNetwork(t)
	rack := loadRack(t, s.rack)
	for _, server := range rack.Servers {
		w.leftovers.marks = append(w.leftovers.marks, server.UUID)
	}
	var err error
	w.Stack, err = stack.Start(t.Context(), stack.Config{
		Dir: dir, Bin: bin, Scenario: writeRack(t, dir, rack), BootCommand: w.writeBootCommand(t, rack),
		AgentTimeout: time.Minute, PowerTimeout: 20 * time.Second, Progress: w.journal.logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		w.journal.logf("everything is stopped")
	})
	if err := w.StartWebhook(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.tenant, err = w.StartTenant(t.Context(), w.network.Address.Addr()); err != nil {
		t.Fatal(err)
	}
	if w.kube, err = kubernetes.NewForConfig(w.tenant.REST); err != nil {
		t.Fatal(err)
	}
	// Before anything is stopped, so that the state is that of the failure.
	t.Cleanup(func() {
		if t.Failed() {
			w.diagnose(t)
		}
	})
	return w
}

// startNetwork makes the network of the servers. Its name and address depend on the process ID, so that two runs can
// share a machine.
func (w *fixture) startNetwork(t *testing.T) {
	t.Helper()
	address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 214, byte(os.Getpid()), 1}), 24)
	var err error
	if w.network, err = network.New(fmt.Sprintf("chain%d", os.Getpid()), address); err != nil {
		t.Fatal(err)
	}
	w.leftovers.noteLinks(t, w.network.Name)
	t.Cleanup(func() {
		if err := w.network.Close(); err != nil {
			t.Error(err)
		}
	})
}

// loadRack reads the scenario, and gives the servers UUIDs that are unique on this machine.
func loadRack(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	rack, err := scenario.Load(filepath.Join("testdata", name))
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

// writeBootCommand writes the boot command of the servers and the hardware of each. They boot as containers.
func (w *fixture) writeBootCommand(t *testing.T, rack *scenario.Scenario) string {
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
	return w.bootBy(t, container)
}

// accelerators returns the IDs of a server's GPUs, by resource name.
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

// until waits until the check returns no error, and fails the test with the last error.
func (w *fixture) until(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, stop := w.Context(t.Context())
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("timed out after %s", waitTimeout))
	defer done()
	if err := controlplane.Await(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}
