// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Environment variables that say what is different about clusters that are no sandbox. docs/testing.md tells users of them.
const (
	managementVariable = "E2E_MANAGEMENT_KUBECONFIG"
	tenantVariable     = "E2E_TENANT_KUBECONFIG"
	// fleetVariable is a folder with a management.yaml and a tenant.yaml to apply instead of those of the reference fleet.
	fleetVariable = "E2E_FLEET"
	// podImageVariable is the image of all pods: nodes must have it, or be able to pull it.
	podImageVariable = "E2E_POD_IMAGE"
	// allServersVariable says whether the clusters have the servers of test/e2e/servers beside those of the reference fleet.
	allServersVariable = "E2E_ALL_SERVERS"
	// parallelVariable is how many groups of tests run at the same time, on clusters that have all servers.
	parallelVariable = "E2E_PARALLEL"
	// managementDownVariable and managementUpVariable are commands for sh that stop the API server of the management cluster and start
	// it again.
	managementDownVariable = "E2E_MANAGEMENT_DOWN"
	managementUpVariable   = "E2E_MANAGEMENT_UP"
	// rackVariable is the URL of the API by which a rack of emulated servers takes faults (test/emulator/admin).
	rackVariable = "E2E_RACK"

	// No emulated server looks for this image.
	defaultPodImage = "registry.example.com/main:1"
	// Servers that boot need cores; the reference group and one other keep two of them busy.
	defaultParallel = 2
	// On a sandbox, tests wait for other tests of their group and not for cores.
	sandboxParallel = 64

	fleetProvider = "metal3-provider"
)

// settings are what the environment says.
type settings struct {
	podImage   string
	allServers bool
	// slots has room for as many tests as run at the same time.
	slots                        chan struct{}
	managementDown, managementUp string
	// rack is empty if there is none that takes faults.
	rack string
	// management and tenant are the objects that describe the fleet, for either cluster.
	management, tenant []*unstructured.Unstructured
}

func readSettings() (settings, error) {
	s := settings{
		podImage: cmp.Or(os.Getenv(podImageVariable), defaultPodImage), rack: os.Getenv(rackVariable),
		managementDown: os.Getenv(managementDownVariable), managementUp: os.Getenv(managementUpVariable),
	}
	var err error
	if given := os.Getenv(allServersVariable); given != "" {
		if s.allServers, err = strconv.ParseBool(given); err != nil {
			return s, fmt.Errorf("%s is %q: it must be true or false", allServersVariable, given)
		}
	}
	parallel := defaultParallel
	if given := os.Getenv(parallelVariable); given != "" {
		if parallel, err = strconv.Atoi(given); err != nil || parallel < 1 {
			return s, fmt.Errorf("%s is %q: it must be a number from 1 on", parallelVariable, given)
		}
	} else if os.Getenv(managementVariable) == "" {
		parallel = sandboxParallel
	}
	s.slots = make(chan struct{}, parallel)
	if (s.managementDown == "") != (s.managementUp == "") {
		return s, fmt.Errorf("set both %s and %s, or neither", managementDownVariable, managementUpVariable)
	}
	for file, objects := range map[string]*[]*unstructured.Unstructured{examples.ManagementFile: &s.management,
		examples.TenantFile: &s.tenant} {
		if *objects, err = manifests(os.Getenv(fleetVariable), file); err != nil {
			return s, err
		}
	}
	return s, nil
}

// manifests are the objects in a file of the reference fleet, or in the file of that name of a folder, if one is given.
func manifests(folder, file string) ([]*unstructured.Unstructured, error) {
	if folder == "" {
		return examples.Objects(file)
	}
	file = filepath.Join(folder, path.Base(file))
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the fleet that %s names, %w", fleetVariable, err)
	}
	return examples.Parse(file, content)
}

// describeFleet applies the objects that describe the fleet to both clusters.
func (w *fixture) describeFleet(ctx context.Context) error {
	if err := examples.ApplyAll(ctx, w.management, w.settings.management); err != nil {
		return err
	}
	return examples.ApplyAll(ctx, w.tenant, w.settings.tenant)
}

// needsServers skips a test about servers beside the reference fleet on clusters that do not have them.
func (w *fixture) needsServers(t *testing.T) {
	t.Helper()
	if !w.settings.allServers {
		t.Skip("this test needs the servers of test/e2e/servers beside the reference fleet, and " + allServersVariable + " is not true")
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
		Name: "main", Image: w.settings.podImage,
		Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks},
	}
}

// fleetProperties are those of the NodeProvider of the fleet: whatever is of its servers needs them, such as an image that
// there really is.
func (w *fixture) fleetProperties(t *testing.T) map[string]string {
	t.Helper()
	provider := &v1alpha1.NodeProvider{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: fleetProvider}, provider); err != nil {
		t.Fatal(err)
	}
	return provider.Spec.Properties
}

// imageURL is that of the fleet's OSImage.
func (w *fixture) imageURL(t *testing.T) string {
	t.Helper()
	image := &v1alpha1.OSImage{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: w.fleetProperties(t)[v1alpha1.PropertyOSImage]}, image); err != nil {
		t.Fatal(err)
	}
	return properties.PublicURL(v1alpha1.Value(image.Spec.Properties, v1alpha1.PropertyImageURL))
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
		"AllServers": {"it says nothing of which servers there are", allServersVariable, "all",
			`E2E_ALL_SERVERS is "all": it must be true or false`},
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
