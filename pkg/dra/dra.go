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
	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/classes"
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
