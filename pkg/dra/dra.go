// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra keeps the objects of Dynamic Resource Allocation in sync between the host, which is the management cluster,
// and a tenant whose pods run on the host's nodes: the device classes that the tenant may ask for flow to it, its claims
// and templates flow to the host, and the status of the claims flows back.
//
// The packages below: policy, which classes a tenant may ask for; names, the names and annotations on the host; classes,
// the controller of DeviceClasses; claims, those of ResourceClaims and ResourceClaimTemplates.
//
// # Rights
//
// In the management cluster: get, list and watch DeviceClasses; get the namespace kube-system; in the tenant's namespace
// get, list and watch the TenantCluster and pods, patch tenantclusters/status, and all of get, list, watch, create, patch,
// delete for ResourceClaims and ResourceClaimTemplates.
//
// In the tenant: get the namespace kube-system; get, list, watch, create, update, delete DeviceClasses; get, list, watch,
// create, patch, delete ResourceClaims; get, list, watch, patch, delete ResourceClaimTemplates; update
// resourceclaims/status and resourceclaims/binding and, for Kubernetes 1.36 and later, arbitrary-node:update
// resourceclaims/driver; get, list and watch pods; create and patch events.
package dra

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/controller"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/classes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
)

// Controllers returns what to run for a tenant: one controller, which starts the others when the TenantCluster enables the
// sync. Until then they watch nothing, so that a tenant without Dynamic Resource Allocation costs nothing and need not serve
// it. The recorder is that of the tenant cluster. The scheme of both clusters must have resource.k8s.io/v1, core/v1 and our
// own kinds. The controllers add the indexes that they need. Others are started with them.
func Controllers(clusters tenant.Clusters, clk clock.PassiveClock, recorder events.Recorder,
	others ...controller.Controller) []controller.Controller {
	return []controller.Controller{NewController(clk, clusters, append([]controller.Controller{
		classes.NewController(clusters, recorder),
		claims.NewClaimController(clusters, recorder),
		claims.NewTemplateController(clusters, recorder),
		claims.NewGeneratedController(clusters, recorder),
	}, others...)...)}
}

// precondition is what the condition of the TenantCluster will be.
type precondition struct {
	reason, message string
	// canRun is whether the controllers can run, whatever the settings let them do.
	canRun bool
}

// check returns whether the sync can run, and whether anything is enabled.
func (c *Controller) check(ctx context.Context, cluster *v1alpha1.TenantCluster) (precondition, error) {
	if err := names.CheckTenant(cluster.Name); err != nil {
		return precondition{reason: v1alpha1.ReasonInvalidName, message: sentence(err.Error())}, nil
	}
	for _, cluster := range []struct {
		name   string
		client client.Client
	}{{"management cluster", c.clusters.Management.Client}, {"tenant cluster", c.clusters.Tenant.Client}} {
		missing, err := notServed(cluster.client)
		if err != nil {
			return precondition{}, fmt.Errorf("reading which APIs the %s serves, %w", cluster.name, err)
		}
		if missing != "" {
			return precondition{reason: v1alpha1.ReasonAPINotServed, message: fmt.Sprintf(
				"The %s does not serve %s %s: it needs Kubernetes 1.34 or later with that API enabled", cluster.name, resourcev1.SchemeGroupVersion,
				missing)}, nil
		}
	}
	same, err := c.sameCluster(ctx)
	if err != nil {
		return precondition{}, err
	}
	if same {
		return precondition{reason: v1alpha1.ReasonSameCluster,
			message: "The tenant cluster is the management cluster: there is nothing to sync, disable spec.sync"}, nil
	}
	if !cluster.Spec.Sync.Enabled() {
		return precondition{reason: v1alpha1.ReasonSyncDisabled, message: "Nothing is enabled in spec.sync. What has been synced stays",
			canRun: true}, nil
	}
	if s := policy.Of(cluster); s.SelectorError != nil {
		return precondition{reason: v1alpha1.ReasonInvalidSelector, message: sentence(s.SelectorError.Error()), canRun: true}, nil
	}
	return precondition{reason: v1alpha1.ReasonSynced, message: "In sync: " + strings.Join(enabled(&cluster.Spec.Sync), ", "), canRun: true},
		nil
}

// notServed returns the first kind that a cluster does not serve, or nothing. Every cluster serves pods; they are checked
// because the controllers watch them, so that the mapper knows them when the API server is away for a moment.
func notServed(c client.Client) (string, error) {
	for _, kind := range []schema.GroupVersionKind{
		resourcev1.SchemeGroupVersion.WithKind("DeviceClass"), resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
		resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), claims.PodKind,
	} {
		_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return kind.Kind, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func enabled(sync *v1alpha1.Sync) []string {
	var kinds []string
	if sync.FromHost.DeviceClasses.Enabled {
		kinds = append(kinds, "deviceClasses")
	}
	if sync.ToHost.ResourceClaims.Enabled {
		kinds = append(kinds, "resourceClaims")
	}
	if sync.ToHost.ResourceClaimTemplates.Enabled {
		kinds = append(kinds, "resourceClaimTemplates")
	}
	return kinds
}

// sentence returns the text with a capital letter, as messages of conditions have it.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
