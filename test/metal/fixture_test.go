// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vlan"
)

const (
	// enabled is the environment variable that the tests run with.
	enabled = "E2E_METAL"
	// bin has the programs.
	bin = "../../bin"
	// waitTimeout bounds each wait. Metal3's operator polls every 10 seconds, and detects some faults only after a
	// minute.
	waitTimeout = 4 * time.Minute
)

// TestMain lets subtests for all servers run at the same time, on any number of processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// fixture is a stack with a fleet, for one test.
type fixture struct {
	*stack.Stack
	journal *journal
	// lab is the switch that servers are moved by, nil if there is none.
	lab     *vlan.Lab
	started time.Time
	say     func(format string, args ...any)
}

// newFixture starts a stack in a directory, or skips the test if it is not enabled.
func newFixture(t *testing.T, dir string) *fixture {
	t.Helper()
	w := &fixture{started: time.Now()}
	w.say = func(format string, args ...any) {
		t.Helper()
		t.Logf("%6.1fs  "+format, append([]any{time.Since(w.started).Seconds()}, args...)...)
	}
	var err error
	flags := w.startLab(t, filepath.Join(dir, "lab"))
	w.Stack, err = stack.Start(t.Context(), stack.Config{
		Dir: dir, Bin: bin, Scenario: filepath.Join("testdata", "rack.yaml"), BootCommand: filepath.Join("testdata", "boot"),
		AgentTimeout: 30 * time.Second, PowerTimeout: 10 * time.Second, Progress: w.say,
		ManagerFlags: flags,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// requirePrerequisites skips the test if it is not enabled, and fails it if a prerequisite is missing.
func requirePrerequisites(t *testing.T) {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skip("servers on a real Ironic: run it with `make e2e-metal`, which unpacks Ironic from Debian's packages into bin/")
	}
	if err := stack.Missing(bin); err != nil {
		t.Fatalf("something is missing; run `make e2e-metal`:\n%v", err)
	}
}

// until waits until the check of a host and a Machine, either of which may be nil, returns an empty string, and fails
// the test with its last answer. It checks again after each change.
func (w *fixture) until(t *testing.T, what, host, machine string, check func(*bmov1alpha1.BareMetalHost, *v1alpha1.Machine) error) {
	t.Helper()
	ctx, stop := w.Context(t.Context())
	defer stop()
	ctx, done := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("timed out after %s", waitTimeout))
	defer done()
	for {
		foundHost, foundMachine, changed := w.journal.look(host, machine)
		err := check(foundHost, foundMachine)
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("waiting for %s, %v (last answer: %v)", what, context.Cause(ctx), err)
		}
	}
}

// createFleet creates the objects of a platform team: an OSImage, and three NodeTypes with it.
func (w *fixture) createFleet(t *testing.T, image stack.Image) {
	t.Helper()
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal"}}
	provider.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "linux"}
	provider.Spec.Metal3.ClusterRef.Namespace = stack.HostsNamespace
	for name, resources := range map[string][]string{
		"gpu":   {"cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "8"},
		"small": {"cpu", "8", "memory", "64Gi"}, "networked": {"cpu", "4", "memory", "32Gi"},
	} {
		template := v1alpha1.NodeTypeTemplate{Name: name}
		template.Resources = env.Resources(resources...)
		template.BareMetalHosts = env.HostsWith(map[string]string{"kind": name})
		provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, template)
	}
	for _, object := range []client.Object{
		&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "linux"}, Spec: v1alpha1.OSImageSpec{Properties: map[string]string{
			v1alpha1.PropertyImageURL: image.URL, v1alpha1.PropertyImageChecksum: image.Checksum,
		}}},
		provider,
	} {
		if err := w.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T, %v", object, err)
		}
	}
}

// newMachine returns a Machine without a tenant. It creates nothing.
func newMachine(name, nodeType string, properties map[string]string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: stack.MachinesNamespace, Name: name}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
	machine.Spec.Properties = properties
	return machine
}

// create creates an object once its API server admits it.
func (w *fixture) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := w.Client.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
	}
}
