// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/e2e/clusters"
)

// Environment variables for clusters that are no sandbox, beside those of package clusters. docs/testing.md tells users of them.
const (
	// parallelVariable is how many groups of tests run at the same time, on clusters that have all servers.
	parallelVariable = "E2E_PARALLEL"
	// managementDownVariable and managementUpVariable are commands for sh that stop the API server of the management cluster and start
	// it again.
	managementDownVariable = "E2E_MANAGEMENT_DOWN"
	managementUpVariable   = "E2E_MANAGEMENT_UP"
	// rackVariable is the URL of the API by which a rack of emulated servers takes faults (test/emulator/admin).
	rackVariable = "E2E_RACK"

	// Servers that boot need cores; the reference group and one other keep two of them busy.
	defaultParallel = 2
	// On a sandbox, tests wait for other tests of their group and not for cores.
	sandboxParallel = 64
)

// settings are what the environment says.
type settings struct {
	// slots has room for as many tests as run at the same time.
	slots                        chan struct{}
	managementDown, managementUp string
	// rack is empty if there is none that takes faults.
	rack string
}

func readSettings() (settings, error) {
	s := settings{
		rack: os.Getenv(rackVariable), managementDown: os.Getenv(managementDownVariable), managementUp: os.Getenv(managementUpVariable),
	}
	var err error
	parallel := defaultParallel
	if given := os.Getenv(parallelVariable); given != "" {
		if parallel, err = strconv.Atoi(given); err != nil || parallel < 1 {
			return s, fmt.Errorf("%s is %q: it must be a number from 1 on", parallelVariable, given)
		}
	} else if os.Getenv(clusters.ManagementVariable) == "" {
		parallel = sandboxParallel
	}
	s.slots = make(chan struct{}, parallel)
	if (s.managementDown == "") != (s.managementUp == "") {
		return s, fmt.Errorf("set both %s and %s, or neither", managementDownVariable, managementUpVariable)
	}
	return s, nil
}

// needsServers skips a test about servers beside the reference fleet on clusters that do not have them.
func (w *fixture) needsServers(t *testing.T) {
	t.Helper()
	if !w.clusters.AllServers {
		t.Skip("this test needs the servers of test/e2e/servers beside the reference fleet, and " + clusters.AllServersVariable + " is not true")
	}
}

// needsFaults skips a test about servers that fail where none can be made to.
func (w *fixture) needsFaults(t *testing.T) {
	t.Helper()
	w.needsServers(t)
	if w.sandbox == nil && w.settings.rack == "" {
		t.Skip("this test needs a rack whose servers can be given faults, and " + rackVariable + " does not name one")
	}
}

// needsDrivers skips a test that needs nodes on which DRA drivers publish what the servers gpu-40 and gpu-80 say.
func (w *fixture) needsDrivers(t *testing.T) {
	t.Helper()
	if w.sandbox == nil {
		t.Skip("this test needs nodes with the DRA drivers gpu.example.com and nic.example.com, which only emulated nodes have")
	}
}

// needsOutage skips a test that stops the management API where it cannot.
func (w *fixture) needsOutage(t *testing.T) {
	t.Helper()
	if w.sandbox == nil && w.settings.managementDown == "" {
		t.Skipf("this test needs commands that stop the API server of the management cluster and start it again, in %s and %s",
			managementDownVariable, managementUpVariable)
	}
}

// atEnd undoes what was changed for all tests.
var atEnd = func() error { return nil }

// allowMachines has the tenant's namespace take Machines of the tests: without a TenantCluster, and pinned to servers.
func (w *fixture) allowMachines(ctx context.Context) (undo func() error, err error) {
	tenant := &v1alpha1.TenantCluster{}
	if err := w.management.Get(ctx, client.ObjectKey{Namespace: tenantNamespace, Name: tenantNamespace}, tenant); err != nil {
		return nil, fmt.Errorf("reading the TenantCluster of the tests, %w", err)
	}
	before := tenant.DeepCopy()
	tenant.Spec.StandAloneMachines = v1alpha1.StandAloneAllowed
	if tenant.Spec.TenantProperties == nil {
		tenant.Spec.TenantProperties = &v1alpha1.TenantProperties{}
	}
	// A run that was killed has left it there.
	if keys := &tenant.Spec.TenantProperties.Keys; !slices.Contains(*keys, "*") && !slices.Contains(*keys, v1alpha1.PropertyServerName) {
		*keys = append(*keys, v1alpha1.PropertyServerName)
	}
	if err := w.management.Patch(ctx, tenant, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("allowing the Machines of the tests, %w", err)
	}
	return func() error {
		undone := tenant.DeepCopy()
		undone.Spec.StandAloneMachines, undone.Spec.TenantProperties = before.Spec.StandAloneMachines, before.Spec.TenantProperties
		return w.management.Patch(context.Background(), undone, client.MergeFrom(tenant))
	}, nil
}

// container is the one of a pod that asks for resources.
func (w *fixture) container(asks corev1.ResourceList) corev1.Container {
	return corev1.Container{
		Name: "main", Image: w.clusters.PodImage,
		Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks},
	}
}

// fleetProperties are those of the NodeProvider of the fleet.
func (w *fixture) fleetProperties(t *testing.T) map[string]string {
	t.Helper()
	properties, err := w.clusters.FleetProperties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return properties
}

// imageURL is that of the fleet's OSImage.
func (w *fixture) imageURL(t *testing.T) string {
	t.Helper()
	image := &v1alpha1.OSImage{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: w.fleetProperties(t)[v1alpha1.PropertyOSImage]}, image); err != nil {
		t.Fatal(err)
	}
	return properties.PublicURL(image.Spec.Properties[v1alpha1.PropertyImageURL])
}

// newImage makes an OSImage that is the fleet's under another name, and takes it away after the test.
func (w *fixture) newImage(t *testing.T, name string) {
	t.Helper()
	image := &v1alpha1.OSImage{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: w.fleetProperties(t)[v1alpha1.PropertyOSImage]}, image); err != nil {
		t.Fatal(err)
	}
	renamed := &v1alpha1.OSImage{Spec: image.Spec}
	renamed.Name = name
	w.make(t, w.management, renamed)
}

func TestReadSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, variable, value, want string
	}{
		"Parallel": {"no test would ever run", parallelVariable, "0", `E2E_PARALLEL is "0": it must be a number from 1 on`},
		"DownOnly": {"a test would leave the cluster without its API server", managementDownVariable, "true",
			"set both E2E_MANAGEMENT_DOWN and E2E_MANAGEMENT_UP, or neither"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(managementUpVariable, "")
			t.Setenv(tc.variable, tc.value)
			if _, err := readSettings(); err == nil || err.Error() != tc.want {
				t.Errorf("%s: got %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}
