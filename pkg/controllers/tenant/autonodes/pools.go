// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

const (
	never = "Never"
	// defaultConsolidateAfter is about the time that a big server needs to be available again. A server that was idle
	// for less is kept for the next pod.
	defaultConsolidateAfter = "30m"
	// defaultBudget is Karpenter's, which is rounded up: one node of up to ten.
	defaultBudget = "10%"
	nodeClassKind = "MetalNodeClass"
)

// pool is one entry of autoNodes as it is in the tenant.
type pool struct {
	// where it is written: "autoNodes[0].static[1] (gpu-nodes)".
	where     string
	nodePool  *karpv1.NodePool
	nodeClass *v1alpha1.MetalNodeClass
	// problem is why it cannot be written. The two objects above are incomplete then.
	problem string
}

// name is the name of the NodePool and of the MetalNodeClass.
func (p *pool) name() string { return p.nodePool.Name }

// servers is what decides whether a selector can match any of them.
type servers struct {
	// capacityType of all servers.
	capacityType string
	// advertises returns whether some NodeType has a label.
	advertises func(key string) bool
}

// poolsOf returns the pools of a TenantCluster in the order of its spec, including those that cannot be written.
func poolsOf(tenant *v1alpha1.TenantCluster, servers servers) []pool {
	if !tenant.DeletionTimestamp.IsZero() || tenant.Spec.PrivateNodes == nil || !ptr.Deref(tenant.Spec.PrivateNodes.Enabled, true) {
		return nil
	}
	var pools []pool
	seen := map[string]string{}
	add := func(where string, entry *v1alpha1.AutoNodes, template *v1alpha1.NodesTemplate, complete func(*pool)) {
		p := newPool(fmt.Sprintf("%s (%s)", where, template.Name), tenant, entry, template, servers)
		complete(&p)
		if first, taken := seen[template.Name]; taken {
			p.problem = fmt.Sprintf("the name %q is that of %s already: give each pool of the tenant a name of its own", template.Name, first)
		} else {
			seen[template.Name] = where
		}
		pools = append(pools, p)
	}
	for i := range tenant.Spec.PrivateNodes.AutoNodes {
		entry := &tenant.Spec.PrivateNodes.AutoNodes[i]
		for j := range entry.Static {
			static := &entry.Static[j]
			add(fmt.Sprintf("autoNodes[%d].static[%d]", i, j), entry, &static.NodesTemplate, func(p *pool) { p.makeStatic(static) })
		}
		for j := range entry.Dynamic {
			dynamic := &entry.Dynamic[j]
			add(fmt.Sprintf("autoNodes[%d].dynamic[%d]", i, j), entry, &dynamic.NodesTemplate, func(p *pool) { p.makeDynamic(dynamic) })
		}
	}
	return pools
}

func newPool(where string, tenant *v1alpha1.TenantCluster, entry *v1alpha1.AutoNodes, template *v1alpha1.NodesTemplate,
	servers servers) pool {
	labels := map[string]string{v1alpha1.TenantPoolLabelKey: OwnerLabel(types.NamespacedName{Namespace: tenant.Namespace, Name: tenant.Name})}
	p := pool{
		where: where,
		nodeClass: &v1alpha1.MetalNodeClass{
			ObjectMeta: metav1.ObjectMeta{Name: template.Name, Labels: labels},
			Spec: v1alpha1.MetalNodeClassSpec{
				ProviderRef: &v1alpha1.NameReference{Name: entry.Provider},
				Properties:  merged(entry.Properties, template.Properties),
			},
		},
		nodePool: &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: template.Name, Labels: maps.Clone(labels)}},
	}
	requirements, problem := requirementsOf(template.NodeTypeSelector, servers)
	p.problem = problem
	spec := &p.nodePool.Spec
	spec.Limits = karpv1.Limits(template.Limits.DeepCopy())
	spec.Disruption = disruptionOf(template.Disruption)
	spec.Template.Labels = maps.Clone(template.NodeLabels)
	spec.Template.Spec = karpv1.NodeClaimTemplateSpec{
		Taints:                 append([]corev1.Taint(nil), template.Taints...),
		Requirements:           requirements,
		NodeClassRef:           &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: nodeClassKind, Name: template.Name},
		TerminationGracePeriod: template.TerminationGracePeriod.DeepCopy(),
	}
	expireAfter := cmp.Or(template.ExpireAfter, never)
	var err error
	if spec.Template.Spec.ExpireAfter, err = duration(expireAfter); err != nil {
		p.problem = fmt.Sprintf("expireAfter is %q, which is no duration: write it like 720h, or Never", expireAfter)
	}
	if spec.Disruption.ConsolidateAfter, err = duration(consolidateAfter(template.Disruption)); err != nil {
		p.problem = fmt.Sprintf("disruption.consolidateAfter is %q, which is no duration: write it like 10m, or Never",
			template.Disruption.ConsolidateAfter)
	}
	return p
}

// makeStatic completes a pool of a fixed number of servers.
func (p *pool) makeStatic(static *v1alpha1.StaticNodes) {
	p.nodePool.Spec.Replicas = ptr.To(int64(static.Quantity))
	for name := range static.Limits {
		if name != corev1.ResourceName("nodes") {
			p.problem = fmt.Sprintf("limits hold %s, and a static pool has no limit but nodes: remove it", name)
		}
	}
	if pinned := p.nodeClass.Spec.Properties[v1alpha1.PropertyServerName]; pinned != "" && static.Quantity > 1 {
		p.problem = fmt.Sprintf("%s pins it to server %s, and its quantity is %d: a pinned pool has one server, so set the quantity to 1 and "+
			"make a pool for each server",
			v1alpha1.PropertyServerName, pinned, static.Quantity)
	}
}

// makeDynamic completes a pool that follows the pods.
func (p *pool) makeDynamic(dynamic *v1alpha1.DynamicNodes) {
	p.nodePool.Spec.Weight = dynamic.Weight
	if pinned := p.nodeClass.Spec.Properties[v1alpha1.PropertyServerName]; pinned != "" {
		p.problem = fmt.Sprintf("%s pins it to server %s, and a dynamic pool may have many servers: make it a static pool of quantity 1",
			v1alpha1.PropertyServerName, pinned)
	}
}

// OwnerLabel is the value of the label on every object that is written for a TenantCluster.
func OwnerLabel(tenant types.NamespacedName) string {
	value := tenant.Namespace + "." + tenant.Name
	if len(value) <= validation.LabelValueMaxLength {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// merged returns both maps in one, the second winning, and nil if both are empty.
func merged(general, specific map[string]string) map[string]string {
	if len(general)+len(specific) == 0 {
		return nil
	}
	return lo.Assign(general, specific)
}

// disruptionOf translates everything but consolidateAfter. Defaults are written out, so that what the API server would
// fill in does not look like an edit. By default only empty servers are released: packing pods onto fewer servers
// interrupts them, and a server that is released too early takes long to be available again.
func disruptionOf(from *v1alpha1.NodesDisruption) karpv1.Disruption {
	disruption := karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty}
	if from != nil && from.ConsolidationPolicy != "" {
		disruption.ConsolidationPolicy = karpv1.ConsolidationPolicy(from.ConsolidationPolicy)
	}
	if from == nil || len(from.Budgets) == 0 {
		disruption.Budgets = []karpv1.Budget{{Nodes: defaultBudget}}
		return disruption
	}
	disruption.Budgets = lo.Map(from.Budgets, func(budget v1alpha1.DisruptionBudget, _ int) karpv1.Budget { return budgetOf(budget) })
	return disruption
}

func budgetOf(from v1alpha1.DisruptionBudget) karpv1.Budget {
	budget := karpv1.Budget{Nodes: cmp.Or(from.Nodes, defaultBudget), Duration: from.Duration.DeepCopy()}
	if from.Schedule != "" {
		budget.Schedule = ptr.To(from.Schedule)
	}
	for _, reason := range from.Reasons {
		budget.Reasons = append(budget.Reasons, karpv1.DisruptionReason(reason))
	}
	return budget
}

func consolidateAfter(from *v1alpha1.NodesDisruption) string {
	return cmp.Or(ptr.Deref(from, v1alpha1.NodesDisruption{}).ConsolidateAfter, defaultConsolidateAfter)
}

// duration reads what a NodePool takes for a duration: Go's, or Never.
func duration(text string) (karpv1.NillableDuration, error) {
	result := karpv1.NillableDuration{}
	if err := json.Unmarshal(fmt.Appendf(nil, "%q", text), &result); err != nil {
		return karpv1.NillableDuration{}, fmt.Errorf("reading duration %q, %w", text, err)
	}
	return result, nil
}

// requirementsOf translates a nodeTypeSelector, or returns what is wrong with it.
//
// A property that no NodeType has needs care, unless Karpenter knows the label. Karpenter accepts any value of a label that
// an instance type does not mention, so a typing error would get the tenant any server. In and Exists of such a property
// match nothing, which a NodePool cannot express, so the NodePool is not written. NotIn and NotExists match everything and
// are left out.
func requirementsOf(
	selector []v1alpha1.NodeTypeSelectorRequirement, servers servers,
) ([]karpv1.NodeSelectorRequirementWithMinValues, string) {
	requirements := []karpv1.NodeSelectorRequirementWithMinValues{{
		Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{servers.capacityType},
	}}
	for i, entry := range selector {
		path := field.NewPath("nodeTypeSelector").Index(i)
		one, err := matching.NodeTypeSelector(path, entry)
		if err != nil {
			return nil, err.Error()
		}
		selects := one.Operator == corev1.NodeSelectorOpIn || one.Operator == corev1.NodeSelectorOpExists
		switch {
		case servers.advertises(one.Key), karpv1.WellKnownLabels.Has(one.Key):
			requirements = append(requirements,
				karpv1.NodeSelectorRequirementWithMinValues{Key: one.Key, Operator: one.Operator, Values: one.Values})
		case selects:
			return nil, fmt.Sprintf("%s: no NodeType has the property %s: correct it, or give it to the NodeTypes that are meant", path, one.Key)
		}
	}
	return requirements, ""
}
