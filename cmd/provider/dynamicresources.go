// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

const (
	ignoreDRA            = "ignore-dra-requests"
	ignoreDRAEnvironment = "IGNORE_DRA_REQUESTS"
)

// checkDynamicResources makes core ignore resource claims if the tenant's API server does not serve them. Otherwise
// core would wait for them until it fails, and block everything else.
func (o *options) checkDynamicResources(ctx context.Context, tenant *rest.Config, karpenter *karpenteroptions.Options) error {
	if karpenter.IgnoreDRARequests || !o.runs(karpenterControllers) {
		return nil
	}
	const remedy = "it comes with Kubernetes 1.34"
	version := resourcev1.SchemeGroupVersion
	err := operator.RequireKinds(tenant, tenantName,
		kind(version.Group, version.Version, "ResourceClaim", remedy),
		kind(version.Group, version.Version, "ResourceSlice", remedy),
		kind(version.Group, version.Version, "DeviceClass", remedy),
	)
	var missing *operator.MissingKindsError
	if !errors.As(err, &missing) {
		return err
	}
	log.FromContext(ctx).Info("Pods with resource claims get no servers: the tenant has no Dynamic Resource Allocation", "tenant", tenant.Host,
		"missing", err.Error())
	karpenter.IgnoreDRARequests = true
	return nil
}
