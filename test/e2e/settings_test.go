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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Environment variables that say what is different about clusters that are no sandbox. docs/testing.md tells users of them.
const (
	managementVariable = "E2E_MANAGEMENT_KUBECONFIG"
	tenantVariable     = "E2E_TENANT_KUBECONFIG"
	// fleetVariable is a folder with a management.yaml and a tenant.yaml to apply instead of those of the reference fleet.
	fleetVariable = "E2E_FLEET"
	// podImageVariable is the image of all pods: nodes must have it, or be able to pull it.
	podImageVariable = "E2E_POD_IMAGE"
	// timeoutVariable is how long a test waits for anything, such as 40m.
	timeoutVariable = "E2E_TIMEOUT"

	// No emulated server looks for this image.
	defaultPodImage = "registry.example.com/main:1"
	// Far beyond what anything takes on a sandbox, so that only what never happens fails.
	defaultTimeout = 3 * time.Minute

	fleetProvider = "metal3-provider"
)

// settings are what the environment says.
type settings struct {
	podImage string
	timeout  time.Duration
	// management and tenant are the objects that describe the fleet, for either cluster.
	management, tenant []*unstructured.Unstructured
}

func readSettings() (settings, error) {
	s := settings{podImage: cmp.Or(os.Getenv(podImageVariable), defaultPodImage), timeout: defaultTimeout}
	if given := os.Getenv(timeoutVariable); given != "" {
		var err error
		if s.timeout, err = time.ParseDuration(given); err != nil || s.timeout <= 0 {
			return s, fmt.Errorf("%s is %q: it must be a duration, such as 40m", timeoutVariable, given)
		}
	}
	for file, into := range map[string]*[]*unstructured.Unstructured{examples.ManagementFile: &s.management, examples.TenantFile: &s.tenant} {
		var err error
		if *into, err = manifests(os.Getenv(fleetVariable), file); err != nil {
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
