// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
)

// Environment variables that say what is different about clusters that are no sandbox. docs/testing.md tells users of them.
const (
	ManagementVariable = "E2E_MANAGEMENT_KUBECONFIG"
	TenantVariable     = "E2E_TENANT_KUBECONFIG"
	// AllServersVariable says whether the clusters have the servers of test/e2e/servers beside those of the reference fleet.
	AllServersVariable = "E2E_ALL_SERVERS"
	// fleetVariable is a folder with a management.yaml and a tenant.yaml to apply instead of those of the reference fleet.
	fleetVariable = "E2E_FLEET"
	// podImageVariable is the image of all pods: nodes must have it, or be able to pull it.
	podImageVariable = "E2E_POD_IMAGE"

	// No emulated server looks for this image.
	defaultPodImage = "registry.example.com/main:1"
)

// read returns what the environment says.
func read() (*Clusters, error) {
	c := &Clusters{ManagementKubeconfig: os.Getenv(ManagementVariable), TenantKubeconfig: os.Getenv(TenantVariable),
		PodImage: cmp.Or(os.Getenv(podImageVariable), defaultPodImage)}
	if (c.ManagementKubeconfig == "") != (c.TenantKubeconfig == "") {
		return nil, fmt.Errorf("set both %s and %s, or neither", ManagementVariable, TenantVariable)
	}
	var err error
	if given := os.Getenv(AllServersVariable); given != "" {
		if c.AllServers, err = strconv.ParseBool(given); err != nil {
			return nil, fmt.Errorf("%s is %q: it must be true or false", AllServersVariable, given)
		}
	}
	if c.management, err = manifests(examples.ManagementFile); err != nil {
		return nil, err
	}
	c.tenant, err = manifests(examples.TenantFile)
	return c, err
}

// manifests are the objects in a file of the reference fleet, or in the file of that name of the folder that the environment names.
func manifests(file string) ([]*unstructured.Unstructured, error) {
	folder := os.Getenv(fleetVariable)
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
