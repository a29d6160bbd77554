// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// fleeting are kinds whose objects come and go by themselves, or that are deprecated.
var fleeting = []string{"events", "leases", "componentstatuses", "endpoints"}

// Objects returns the names of all objects of the API server, except events and leases.
func (c *Cluster) Objects(t testing.TB) []string {
	t.Helper()
	found, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := found.ServerPreferredResources()
	if err != nil {
		t.Fatalf("listing kinds, %v", err)
	}
	reader, err := metadata.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(fleeting, kind.Name) || strings.Contains(kind.Name, "/") {
				continue
			}
			list, err := reader.Resource(version.WithResource(kind.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %s, %v", kind.Name, err)
			}
			for _, object := range list.Items {
				names = append(names, kind.Name+" "+object.Namespace+"/"+object.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
