// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// addIndexes makes the indexes by which Karpenter's core lists from the cache.
func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		value  func(client.Object) string
	}{
		{&corev1.Pod{}, "spec.nodeName", of(func(o *corev1.Pod) string { return o.Spec.NodeName })},
		{&corev1.Node{}, "spec.providerID", of(func(o *corev1.Node) string { return o.Spec.ProviderID })},
		{&storagev1.VolumeAttachment{}, "spec.nodeName", of(func(o *storagev1.VolumeAttachment) string { return o.Spec.NodeName })},
		{&karpenterv1.NodeClaim{}, "status.providerID", of(func(o *karpenterv1.NodeClaim) string { return o.Status.ProviderID })},
		{&karpenterv1.NodeClaim{}, "spec.nodeClassRef.group",
			of(func(o *karpenterv1.NodeClaim) string { return class(o.Spec.NodeClassRef).Group })},
		{&karpenterv1.NodeClaim{}, "spec.nodeClassRef.kind",
			of(func(o *karpenterv1.NodeClaim) string { return class(o.Spec.NodeClassRef).Kind })},
		{&karpenterv1.NodeClaim{}, "spec.nodeClassRef.name",
			of(func(o *karpenterv1.NodeClaim) string { return class(o.Spec.NodeClassRef).Name })},
		{&karpenterv1.NodePool{}, "spec.template.spec.nodeClassRef.group",
			of(func(o *karpenterv1.NodePool) string { return class(o.Spec.Template.Spec.NodeClassRef).Group })},
		{&karpenterv1.NodePool{}, "spec.template.spec.nodeClassRef.kind",
			of(func(o *karpenterv1.NodePool) string { return class(o.Spec.Template.Spec.NodeClassRef).Kind })},
		{&karpenterv1.NodePool{}, "spec.template.spec.nodeClassRef.name",
			of(func(o *karpenterv1.NodePool) string { return class(o.Spec.Template.Spec.NodeClassRef).Name })},
	} {
		values := func(object client.Object) []string { return []string{index.value(object)} }
		if err := indexer.IndexField(ctx, index.object, index.field, values); err != nil {
			return fmt.Errorf("indexing %T by %s, %w", index.object, index.field, err)
		}
	}
	return nil
}

func of[T client.Object](value func(T) string) func(client.Object) string {
	return func(object client.Object) string {
		if typed, ok := object.(T); ok {
			return value(typed)
		}
		return ""
	}
}

func class(reference *karpenterv1.NodeClassReference) karpenterv1.NodeClassReference {
	if reference == nil {
		return karpenterv1.NodeClassReference{}
	}
	return *reference
}
