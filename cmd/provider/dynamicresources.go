// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cli"
)

const (
	ignoreDRA            = "ignore-dra-requests"
	ignoreDRAEnvironment = "IGNORE_DRA_REQUESTS"
)

// defaultDynamicResources has Karpenter look at resource claims, which core leaves alone by default. Only who names the
// flag has another will.
func (k karpenterFlags) defaultDynamicResources() {
	flag := k.flags.Lookup(ignoreDRA)
	if flag == nil || os.Getenv(ignoreDRAEnvironment) != "" {
		return
	}
	flag.DefValue = "false"
	// A flag of this type takes any boolean.
	_ = flag.Value.Set(flag.DefValue)
}

// checkDynamicResources turns off what core does with resource claims if the tenant's API server does not have them:
// core would wait for them until it gives up, and with it everything else.
func (o *options) checkDynamicResources(ctx context.Context, tenant *rest.Config, karpenter *karpenteroptions.Options) error {
	if karpenter.IgnoreDRARequests || !o.runs(karpenterControllers) {
		return nil
	}
	const remedy = "it comes with Kubernetes 1.34"
	version := resourcev1.SchemeGroupVersion
	err := cli.RequireKinds(tenant, tenantName,
		kind(version.Group, version.Version, "ResourceClaim", remedy),
		kind(version.Group, version.Version, "ResourceSlice", remedy),
		kind(version.Group, version.Version, "DeviceClass", remedy),
	)
	var missing *cli.MissingKindsError
	if !errors.As(err, &missing) {
		return err
	}
	log.FromContext(ctx).Info("Pods with resource claims get no servers: the tenant has no Dynamic Resource Allocation", "tenant", tenant.Host, "missing", err.Error())
	karpenter.IgnoreDRARequests = true
	return nil
}

// watchDynamicResources has the cache filled with what core reads of resource claims before any controller starts. Core
// lists claims as soon as it runs and takes it for certain that this cannot fail: it panics if it does.
func watchDynamicResources(ctx context.Context, informers cache.Cache) error {
	for _, object := range []client.Object{&resourcev1.ResourceClaim{}, &resourcev1.ResourceSlice{}, &resourcev1.DeviceClass{}} {
		if _, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T in the %s, %w", object, tenantName, err)
		}
	}
	return nil
}
