// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Core copies only the requirements of pods to the NodeClaims that it creates for them. So a pod of a gang requires
// that the node does not have a label made of the gang's ID. No node has it. In the write that creates a NodeClaim, an
// annotation replaces the requirement. So a provider that was killed knows which servers belong to a gang.

const markPrefix = "gang." + v1alpha1.Group + "/planned-"

func (g *gang) mark() corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: markOf(g.id), Operator: corev1.NodeSelectorOpDoesNotExist}
}

func markOf(id string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id))
	return fmt.Sprintf("%s%016x", markPrefix, hash.Sum64())
}

// Mark replaces the requirements by the annotation on a NodeClaim that core creates.
func (p *Placer) Mark(nodeClaim *karpv1.NodeClaim) {
	var gangs []v1alpha1.MachineGang
	nodeClaim.Spec.Requirements = slices.DeleteFunc(nodeClaim.Spec.Requirements, func(r karpv1.NodeSelectorRequirementWithMinValues) bool {
		if !strings.HasPrefix(r.Key, markPrefix) {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if known := p.marks[r.Key]; known != "" {
			gangs = append(gangs, v1alpha1.MachineGang{Name: known, MinCount: p.last[known].together})
		}
		return true
	})
	if len(gangs) == 0 {
		return
	}
	slices.SortFunc(gangs, func(a, b v1alpha1.MachineGang) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.Marshal(gangs)
	if err != nil {
		panic(err) // strings and numbers can be written
	}
	metav1.SetMetaDataAnnotation(&nodeClaim.ObjectMeta, v1alpha1.GangsAnnotationKey, string(text))
}

// takeServers finds the NodeClaims that were planned for the pods of the gangs, rather than for earlier pods of the
// same name. It skips NodeClaims that are being deleted: a gang must not wait for them, which could be for ever.
func takeServers(gangs []*gang, nodeClaims []karpv1.NodeClaim) {
	byID := map[string][]*karpv1.NodeClaim{}
	for i := range nodeClaims {
		if !nodeClaims[i].DeletionTimestamp.IsZero() {
			continue
		}
		for _, gang := range v1alpha1.GangsOf(&nodeClaims[i]) {
			byID[gang.Name] = append(byID[gang.Name], &nodeClaims[i])
		}
	}
	for _, gang := range gangs {
		for _, nodeClaim := range byID[gang.id] {
			if !nodeClaim.CreationTimestamp.Before(&gang.pods[0].CreationTimestamp) {
				gang.servers = append(gang.servers, nodeClaim)
			}
		}
	}
}

// home returns the domain that the NodeClaims of a gang must be in, nil if they may be anywhere.
func (g *gang) home() *domain {
	for _, nodeClaim := range g.servers {
		values := make([]string, 0, len(g.keys))
		for _, key := range g.keys {
			for _, requirement := range nodeClaim.Spec.Requirements {
				if requirement.Key == key && requirement.Operator == corev1.NodeSelectorOpIn && len(requirement.Values) == 1 {
					values = append(values, requirement.Values[0])
					break
				}
			}
		}
		if len(values) == len(g.keys) && len(values) > 0 {
			return &domain{keys: g.keys, values: values}
		}
	}
	return nil
}
