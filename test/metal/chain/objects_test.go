// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// notCounted are kinds whose objects come and go by themselves, or follow a CRD.
var notCounted = []string{"Event", "CertificateSigningRequest", "APIService"}

// metal3Group has the objects of Metal3, which were registered before the charts and stay after them.
const metal3Group = "metal3.io"

// allObjects returns the names of all objects in a cluster, of every kind that its API server can list.
func allObjects(ctx context.Context, config *rest.Config) ([]string, error) {
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := found.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("listing the API resources of a cluster, %w", err)
	}
	quiet := rest.CopyConfig(config)
	quiet.WarningHandler = rest.NoWarnings{} // warnings about deprecated kinds
	reader, err := metadata.NewForConfig(quiet)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		if version.Group == metal3Group {
			continue
		}
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(notCounted, kind.Kind) {
				continue
			}
			objects, err := reader.Resource(version.WithResource(kind.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) {
				continue // the CRD was just deleted, or the kind is not stored
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s, %w", kind.Name, err)
			}
			for _, object := range objects.Items {
				if object.Namespace == corev1.NamespaceNodeLease {
					continue // made for a node, some time after it
				}
				names = append(names, kind.Kind+" "+strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"))
			}
		}
	}
	return names, nil
}

func mustList(t *testing.T, config *rest.Config) map[string]bool {
	t.Helper()
	names, err := allObjects(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 50 {
		t.Fatalf("listed %d objects, fewer than an empty cluster has", len(names))
	}
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// untilUninstalled waits until a cluster has only the objects that it had before the charts, the CRDs, and the custom
// resources. Some objects are garbage-collected after their owners.
func (w *fixture) untilUninstalled(t *testing.T, config *rest.Config, before map[string]bool, made ...string) {
	t.Helper()
	definitions := 0
	w.until(t, "no object of the charts to be left at "+config.Host, func(ctx context.Context) error {
		names, err := allObjects(ctx, config)
		if err != nil {
			return err
		}
		definitions = 0
		var left []string
		for _, name := range names {
			switch {
			case before[name] || slices.Contains(made, name):
			case strings.HasPrefix(name, "CustomResourceDefinition "):
				definitions++
			default:
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("there still is %s", strings.Join(left, ", "))
		}
		return nil
	})
	if definitions == 0 {
		t.Error("no CRD is left, want all of them")
	}
}
