// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

var (
	// writers are the field managers of what the charts bring, without a prefix that our programs have except for their leases.
	// Helm writes its releases under another name than their objects.
	writers = []string{"helm", "Helm", "manager", "provider", "webhook"}
	// stay are the kinds that the page says stay: the definitions, what a platform team describes its servers with, and the record of
	// who had them.
	stay = []string{"CustomResourceDefinition", "HostUsage", "NodeProvider", "NodeType"}
)

// ours returns the objects in a cluster, of every kind that its API server can list, that are in a namespace of the charts, or that
// Helm or one of our programs has written.
func ours(ctx context.Context, config *rest.Config) ([]string, error) {
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
		for _, kind := range list.APIResources {
			// Servers are the manager's to write, and stay. Events go by themselves.
			if version.Group == bmov1alpha1.GroupVersion.Group || kind.Kind == "Event" || !slices.Contains(kind.Verbs, "list") {
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
				written := slices.ContainsFunc(object.ManagedFields, func(fields metav1.ManagedFieldsEntry) bool {
					return slices.Contains(writers, strings.TrimPrefix(fields.Manager, "karpenter-metal3-"))
				})
				if written || slices.Contains([]string{releaseNamespace, tenantNamespace}, object.Namespace) {
					names = append(names, kind.Kind+" "+strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"))
				}
			}
		}
	}
	return names, nil
}

// checkOursAreFound fails if ours overlooks what is in use: then untilUninstalled would overlook it too.
func (w *fixture) checkOursAreFound(t *testing.T) {
	t.Helper()
	for config, want := range map[*rest.Config][]string{
		w.managementREST: {
			"ClusterRole ", "Deployment karpenter-metal3/", "Lease karpenter-metal3/", "Machine tenant-a/", "Pod tenant-a/",
			"ValidatingWebhookConfiguration ",
		},
		w.tenantREST: {"ClusterRole ", "Lease kube-system/", "Node ", "NodeClaim ", "NodePool ", "ServiceAccount karpenter-metal3/"},
	} {
		names, err := ours(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		for _, prefix := range want {
			if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
				t.Errorf("no object %q of ours was found at %s: leftovers would be missed too", prefix, config.Host)
			}
		}
	}
}

// untilUninstalled waits until both clusters have only what stays. Some objects are garbage-collected after their owners.
func (w *fixture) untilUninstalled(t *testing.T) {
	t.Helper()
	for _, config := range []*rest.Config{w.managementREST, w.tenantREST} {
		definitions := 0
		w.until(t, "no object of the charts to be left at "+config.Host, func(ctx context.Context) error {
			names, err := ours(ctx, config)
			if err != nil {
				return err
			}
			definitions = 0
			var left []string
			for _, name := range names {
				kind, _, _ := strings.Cut(name, " ")
				if kind == "CustomResourceDefinition" {
					definitions++
				}
				if !slices.Contains(stay, kind) {
					left = append(left, name)
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("there still is %s", strings.Join(left, ", "))
			}
			return nil
		})
		if definitions == 0 {
			t.Errorf("no CRD is left at %s, want all of them", config.Host)
		}
	}
}
