// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/holdback"
)

// addIndexes adds the cache indexes that Karpenter's core and our changes to it need to list objects.
func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		value  func(client.Object) string
	}{
		{&corev1.Pod{}, "spec.nodeName", valueOf(func(o *corev1.Pod) string { return o.Spec.NodeName })},
		{&corev1.Pod{}, holdback.NominatedField, valueOf(func(o *corev1.Pod) string { return o.Status.NominatedNodeName })},
		{&corev1.Node{}, "spec.providerID", valueOf(func(o *corev1.Node) string { return o.Spec.ProviderID })},
		{&storagev1.VolumeAttachment{}, "spec.nodeName", valueOf(func(o *storagev1.VolumeAttachment) string { return o.Spec.NodeName })},
		{&karpv1.NodeClaim{}, "status.providerID", valueOf(func(o *karpv1.NodeClaim) string { return o.Status.ProviderID })},
		{&karpv1.NodeClaim{}, "spec.nodeClassRef.group",
			valueOf(func(o *karpv1.NodeClaim) string { return class(o.Spec.NodeClassRef).Group })},
		{&karpv1.NodeClaim{}, "spec.nodeClassRef.kind",
			valueOf(func(o *karpv1.NodeClaim) string { return class(o.Spec.NodeClassRef).Kind })},
		{&karpv1.NodeClaim{}, "spec.nodeClassRef.name",
			valueOf(func(o *karpv1.NodeClaim) string { return class(o.Spec.NodeClassRef).Name })},
		{&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group",
			valueOf(func(o *karpv1.NodePool) string { return class(o.Spec.Template.Spec.NodeClassRef).Group })},
		{&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind",
			valueOf(func(o *karpv1.NodePool) string { return class(o.Spec.Template.Spec.NodeClassRef).Kind })},
		{&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.name",
			valueOf(func(o *karpv1.NodePool) string { return class(o.Spec.Template.Spec.NodeClassRef).Name })},
	} {
		values := func(object client.Object) []string { return []string{index.value(object)} }
		if err := indexer.IndexField(ctx, index.object, index.field, values); err != nil {
			return fmt.Errorf("indexing %T by %s, %w", index.object, index.field, err)
		}
	}
	return nil
}

func valueOf[T client.Object](value func(T) string) func(client.Object) string {
	return func(object client.Object) string {
		if typed, ok := object.(T); ok {
			return value(typed)
		}
		return ""
	}
}

func class(reference *karpv1.NodeClassReference) karpv1.NodeClassReference {
	if reference == nil {
		return karpv1.NodeClassReference{}
	}
	return *reference
}
