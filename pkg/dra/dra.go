// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra keeps the objects of Dynamic Resource Allocation in sync between the host, which is the management cluster,
// and a tenant whose pods run on the host's nodes: the device classes that the tenant may ask for flow to it, its claims
// and templates flow to the host, and the status of the claims flows back.
//
// The packages below know one thing each: settings, what the platform has decided; devices, which classes are allowed and
// what of them is seen; vcluster, the names and marks on the host; claimstatus, what the tenant sees of a status. The
// controllers are in deviceclasses, tohost and generated.
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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/deviceclasses"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/generated"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/tohost"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controllers are all there is to run for a tenant: one controller, which starts the others when the TenantCluster asks
// for them. Until then they watch nothing, so a tenant without Dynamic Resource Allocation costs nothing and need not
// serve it. The recorder is that of the tenant cluster. The scheme of both planes must have resource.k8s.io/v1, core/v1
// and our own kinds. The controllers make the indexes that they need by themselves. Others are started with them.
func Controllers(planes tenant.Planes, clk clock.PassiveClock, recorder events.Recorder, others ...controller.Controller) []controller.Controller {
	return []controller.Controller{NewController(clk, planes, append([]controller.Controller{
		deviceclasses.NewController(planes, recorder),
		tohost.NewClaimController(planes, recorder),
		tohost.NewTemplateController(planes, recorder),
		generated.NewController(planes, recorder),
	}, others...)...)}
}
