// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

func newRights(karpenter *karpenteroptions.Options) *operator.Rights {
	// Without the rights for resource claims and for policies, everything else works.
	rights := operator.NewRights(resourcev1.GroupName, admissionregistrationv1.GroupName)
	for _, read := range optionalReads(karpenter) {
		rights.NeededFor(read.option, read.group, read.resources...)
	}
	return rights
}

// optionalRead names resources that Karpenter's core reads in the tenant cluster only with one of its options.
type optionalRead struct {
	option, group string
	resources     []string
}

// optionalReads returns the reads that the enabled options of core add.
func optionalReads(karpenter *karpenteroptions.Options) (reads []optionalRead) {
	if spreadsByDefault(karpenter) {
		const option = "--" + schedulerConfig + " (or " + schedulerConfigEnvironment + ")"
		reads = append(reads,
			optionalRead{option, corev1.GroupName, []string{"services", "replicationcontrollers"}},
			optionalRead{option, appsv1.GroupName, []string{"replicasets", "statefulsets"}})
	}
	if karpenter.FeatureGates.CapacityBuffer {
		const option = "the feature gate CapacityBuffer"
		reads = append(reads,
			optionalRead{option, autoscalingv1beta1.Group, []string{"capacitybuffers"}},
			optionalRead{option, corev1.GroupName, []string{"podtemplates"}},
			optionalRead{option, appsv1.GroupName, []string{"deployments", "replicasets", "statefulsets"}})
	}
	if karpenter.FeatureGates.NodeOverlay {
		reads = append(reads, optionalRead{"the feature gate NodeOverlay", karpenterapis.Group, []string{"nodeoverlays"}})
	}
	return reads
}

// spreadsByDefault reports whether core spreads pods that have no constraints of their own.
func spreadsByDefault(karpenter *karpenteroptions.Options) bool {
	config := karpenter.SchedulerConfig
	return config != nil && config.PodTopologySpread != nil && len(config.PodTopologySpread.DefaultConstraints) > 0
}

// watchOptional starts the informers of the kinds that core reads only with some options. Core itself would start
// them with the first pod that it plans: the first pass would wait, and a missing right would be found only then.
// Core panics if it cannot list resource claims.
func watchOptional(ctx context.Context, informers cache.Cache) error {
	karpenter := karpenteroptions.FromContext(ctx)
	var objects []client.Object
	if !karpenter.IgnoreDRARequests {
		objects = append(objects, &resourcev1.ResourceClaim{}, &resourcev1.ResourceSlice{}, &resourcev1.DeviceClass{})
	}
	if spreadsByDefault(karpenter) {
		objects = append(objects, &corev1.Service{}, &corev1.ReplicationController{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{})
	}
	for _, object := range objects {
		if _, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T in the %s, %w", object, tenantName, err)
		}
	}
	return nil
}
