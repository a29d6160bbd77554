// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestAnyMetadata makes Machines for NodeClaims and MetalNodeClasses with anything in their labels, annotations, finalizers, owner
// references, requirements and properties, as a tenant's administrator could write with definitions of another version. Nothing panics; a
// Machine is stored, or its refusal names it.
func TestAnyMetadata(t *testing.T) {
	api := env.Fake(t)
	options := Options{Namespace: api.Namespace(t), TenantCluster: "tenant"}
	provider := &CloudProvider{management: &Management{Client: api.Client, Live: api.Client}, options: options}
	stored, refused := 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 11))
		nodeClaim := &karpv1.NodeClaim{ObjectMeta: anyMetadata(random)}
		nodeClaim.Name = fmt.Sprintf("claim-%d", seed)
		for key, value := range anyMap(random) {
			nodeClaim.Spec.Requirements = append(nodeClaim.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
				Key: key, Operator: corev1.NodeSelectorOperator(anyText(random)), Values: []string{value, anyText(random)}})
			nodeClaim.Spec.Taints = append(nodeClaim.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(anyText(random))})
		}
		class := &v1alpha1.MetalNodeClass{ObjectMeta: anyMetadata(random)}
		class.Spec.Properties = anyMap(random)
		_, err := provider.createMachine(t.Context(), machineFor(nodeClaim, class, nil, func(string) bool { return seed%2 == 0 }, options))
		var noMachine *noMachineError
		switch {
		case err == nil:
			stored++
		case errors.As(err, &noMachine) && strings.Contains(err.Error(), nodeClaim.Name):
			refused++
		default:
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if stored == 0 || refused == 0 {
		t.Errorf("%d Machines were stored and %d refused: the test tests nothing", stored, refused)
	}
}

func anyMetadata(random *rand.Rand) metav1.ObjectMeta {
	metadata := metav1.ObjectMeta{Labels: anyMap(random), Annotations: anyMap(random), UID: types.UID(anyText(random))}
	metadata.Annotations[karpv1.DRADriversAnnotationKey] = anyText(random)
	for range random.IntN(4) {
		metadata.Finalizers = append(metadata.Finalizers, anyText(random))
		metadata.OwnerReferences = append(metadata.OwnerReferences, metav1.OwnerReference{Kind: anyText(random), Name: anyText(random)})
	}
	return metadata
}

func anyMap(random *rand.Rand) map[string]string {
	all := map[string]string{}
	for range random.IntN(4) {
		all[anyText(random)] = anyText(random)
	}
	return all
}

// anyText is a key that means something here, or nothing that does.
func anyText(random *rand.Rand) string {
	texts := []string{"", "/", "a", ",", " , ,", "\x00", "-1", "99999999999999999999", "€",
		strings.Repeat("x", 400), strings.Repeat(",", 2000),
		"karpenter.metal3.io/server-name", v1alpha1.NodeClaimLabelKey, v1alpha1.ClaimUIDAnnotationKey, v1alpha1.TenantPoolLabelKey,
		karpv1.NodePoolLabelKey, corev1.LabelInstanceTypeStable, corev1.LabelHostname, "In", "Gte", "Lte", "Exists"}
	return texts[random.IntN(len(texts))]
}
