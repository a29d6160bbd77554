// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	provisioning "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// ServesPods returns why Karpenter makes no server of a NodePool for pods, nil if it does.
func ServesPods(pool *karpv1.NodePool) error {
	reference := pool.Spec.Template.Spec.NodeClassRef
	switch {
	case reference == nil || reference.Group != v1alpha1.Group:
		return errors.New("its nodes are no servers of Metal3")
	case pool.Spec.Replicas != nil:
		return errors.New("it is static: it makes no nodes for pods")
	case !pool.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted")
	}
	if ready := conditions.Find(pool.Status.Conditions, status.ConditionReady); ready.Status == metav1.ConditionFalse {
		return fmt.Errorf("it is not ready: %s", ready.Message)
	}
	return nil
}

// PoolFits returns the requirements of a pod and a NodePool together, if a node of the pool could be for the pod: once
// for each reading of the pod by Karpenter's scheduler, which drops alternatives and preferences one after the other.
// The error says why no reading fits. A pool may leave open the labels in serverLabels, which the server decides.
//
// It does not check whether a type has a server like that, or whether one is free.
func PoolFits(pool *karpv1.NodePool, pod *corev1.Pod, serverLabels sets.Set[string]) ([]scheduling.Requirements, error) {
	if err := ServesPods(pool); err != nil {
		return nil, err
	}
	if err := pool.Spec.Limits.ExceededBy(pool.Status.Resources); err != nil {
		return nil, err
	}
	offered := provisioning.NewNodeClaimTemplate(pool).Requirements
	taints := scheduling.Taints(pool.Spec.Template.Spec.Taints)
	preferences := provisioning.Preferences{ToleratePreferNoSchedule: slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectPreferNoSchedule
	})}
	silent := log.IntoContext(context.Background(), logr.Discard()) // core has its own log of what it relaxes
	var fits []scheduling.Requirements
	var why error
	for relaxed := pod.DeepCopy(); ; {
		wanted := scheduling.NewPodRequirements(relaxed)
		if why = taints.ToleratesPod(relaxed); why == nil {
			why = offered.Compatible(wanted, func(options *scheduling.CompatibilityOptions) {
				options.AllowUndefined = serverLabels
			})
		}
		if why == nil {
			wanted.Add(offered.Values()...)
			fits = append(fits, wanted)
		}
		if !preferences.Relax(silent, relaxed) {
			break
		}
	}
	if len(fits) > 0 {
		return fits, nil
	}
	return nil, why
}

// ServerLabels returns the labels that tenants select servers by: labels of the NodeTypes, and labels that Karpenter
// was told to leave to the servers, even if no server has them.
func ServerLabels(nodeTypes []v1alpha1.NodeType) sets.Set[string] {
	known := sets.New(v1alpha1.Spellings(v1alpha1.NodeTypeLabelKey)...)
	known.Insert(corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelOSStable)
	for key := range karpv1.WellKnownLabels {
		if Selectable(key) {
			known.Insert(key)
		}
	}
	for i := range nodeTypes {
		for _, offered := range nodeTypes[i].Status.Requirements {
			known.Insert(v1alpha1.Spellings(offered.Key)...)
		}
	}
	return known
}

// WithCoreOperator returns the requirement with an operator of Kubernetes: NodePools have two more, which compare with
// a whole number. A bound that every value of a label meets becomes Exists: the number beside it is no value of a
// label. The requirement does not change if its value is no number.
func WithCoreOperator(from corev1.NodeSelectorRequirement) corev1.NodeSelectorRequirement {
	operator, step, met := corev1.NodeSelectorOpGt, int64(-1), int64(0)
	switch from.Operator {
	case karpv1.NodeSelectorOpGte:
	case karpv1.NodeSelectorOpLte:
		operator, step, met = corev1.NodeSelectorOpLt, 1, math.MaxInt64
	default:
		return from
	}
	values := slices.Clone(from.Values)
	for i, value := range values {
		number, err := strconv.ParseInt(value, 10, 64)
		if err == nil && number == met {
			return corev1.NodeSelectorRequirement{Key: from.Key, Operator: corev1.NodeSelectorOpExists}
		}
		if err == nil {
			values[i] = strconv.FormatInt(number+step, 10)
		}
	}
	return corev1.NodeSelectorRequirement{Key: from.Key, Operator: operator, Values: values}
}
