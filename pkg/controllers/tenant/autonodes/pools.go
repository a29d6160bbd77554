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
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/pools"
)

const (
	never = "Never"
	// defaultConsolidateAfter is about the time that a big server needs to be available again. A server that was idle
	// for less is kept for the next pod.
	defaultConsolidateAfter = "30m"
	// defaultBudget is Karpenter's default. Karpenter rounds up: one node of up to ten.
	defaultBudget = "10%"
	nodeClassKind = "MetalNodeClass"
)

// pool is one pool of autoNodes as it is in the tenant. If it has a problem, the two objects are incomplete.
type pool struct {
	pools.Pool
	nodePool  *karpv1.NodePool
	nodeClass *v1alpha1.MetalNodeClass
	// narrowing is the requirements on NodeTypes from its properties. They are not in the NodePool yet.
	narrowing []corev1.NodeSelectorRequirement
}

// poolsOf returns the pools of a TenantCluster in the order of its spec, including the pools that cannot be written.
// existing are the NodePools of the tenant.
func poolsOf(tenant *v1alpha1.TenantCluster, catalog Catalog, existing pools.NodePools) []pool {
	owner, kubelet := OwnerLabel(client.ObjectKeyFromObject(tenant)), compat.ReadKubeletConfig(tenant.Spec.PrivateNodes)
	return lo.Map(pools.PoolsOf(tenant, existing), func(from pools.Pool, _ int) pool {
		return newPool(from, owner, &kubelet, catalog)
	})
}

// nodePoolsOf returns the fields of the NodePools that decide which pool each belongs to.
func nodePoolsOf(owner string, existing ...karpv1.NodePool) pools.NodePools {
	found := pools.NodePools{}
	for i := range existing {
		nodePool := pools.NodePool{Kind: pools.Dynamic, Ours: existing[i].Labels[v1alpha1.TenantPoolLabelKey] == owner}
		if existing[i].Spec.Replicas != nil {
			nodePool.Kind, nodePool.Empty = pools.Static, *existing[i].Spec.Replicas == 0
		}
		found[existing[i].Name] = nodePool
	}
	return found
}

func newPool(from pools.Pool, owner string, kubelet *compat.KubeletConfig, catalog Catalog) pool {
	labels, name := map[string]string{v1alpha1.TenantPoolLabelKey: owner}, from.NodePool
	template := from.Template
	p := pool{
		Pool: from,
		nodeClass: &v1alpha1.MetalNodeClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: v1alpha1.MetalNodeClassSpec{
				ProviderRef: &v1alpha1.NameReference{Name: from.AutoNodes.Provider},
				Properties:  lo.Assign(from.AutoNodes.Properties, template.Properties),
				KubeletArgs: kubelet.With(template.KubeletArgs),
			},
		},
		nodePool: &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(labels)}},
	}
	if template.Profile != "" {
		p.nodePool.Labels[v1alpha1.NodeProfileLabelKey] = template.Profile
	}
	requirements, problem := requirementsOf(template.NodeTypeSelector, from.AutoNodes.Provider, catalog)
	p.Problem = problem
	if err := kubelet.Wrong.ToAggregate(); err != nil {
		p.Problem = err.Error()
	}
	p.narrowing = matching.Narrowing(p.nodeClass.Spec.Properties, catalog.Offered(from.AutoNodes.Provider))
	spec := &p.nodePool.Spec
	spec.Limits = karpv1.Limits(template.Limits.DeepCopy())
	spec.Template.Labels = maps.Clone(template.NodeLabels)
	spec.Template.Spec = karpv1.NodeClaimTemplateSpec{
		Taints:       append([]corev1.Taint(nil), template.Taints...),
		Requirements: requirements,
		NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: nodeClassKind, Name: name},
	}
	disruption := ptr.Deref(template.Disruption, v1alpha1.NodesDisruption{})
	spec.Disruption = p.disruptionOf(&disruption)
	spec.Disruption.ConsolidateAfter = p.duration("disruption.consolidateAfter", cmp.Or(disruption.ConsolidateAfter, defaultConsolidateAfter))
	spec.Template.Spec.ExpireAfter = p.duration("expireAfter", cmp.Or(template.ExpireAfter, never))
	// A NodePool has no Never here: without a period it drains for as long as it takes.
	if period := p.duration("terminationGracePeriod", cmp.Or(template.TerminationGracePeriod, never)); period.Duration != nil {
		spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: *period.Duration}
	}
	if from.Static != nil {
		p.makeStatic(from.Static)
	} else {
		spec.Weight = from.Dynamic.Weight
	}
	p.Problem = cmp.Or(from.Problem, p.Problem)
	return p
}

// makeStatic completes a pool of a fixed number of servers.
func (p *pool) makeStatic(static *v1alpha1.StaticNodes) {
	p.nodePool.Spec.Replicas = ptr.To(int64(static.Quantity))
	for name := range static.Limits {
		if name != corev1.ResourceName("nodes") {
			p.Problem = fmt.Sprintf("limits hold %s, and a static pool has no limit but nodes: remove it", name)
		}
	}
}

// OwnerLabel returns the value of the label on every object that is written for a TenantCluster.
func OwnerLabel(tenant types.NamespacedName) string {
	value := tenant.Namespace + "." + tenant.Name
	if len(value) <= validation.LabelValueMaxLength {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// disruptionOf translates all fields but consolidateAfter. It writes out the defaults, so that a default from the API
// server does not look like an edit. By default Karpenter releases only empty servers: packing pods onto fewer servers
// interrupts them, and a server that is released too early takes long to be available again.
func (p *pool) disruptionOf(from *v1alpha1.NodesDisruption) karpv1.Disruption {
	disruption := karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty}
	if from.ConsolidationPolicy != "" {
		disruption.ConsolidationPolicy = karpv1.ConsolidationPolicy(from.ConsolidationPolicy)
	}
	for i := range from.Budgets {
		disruption.Budgets = append(disruption.Budgets, p.budgetOf(&from.Budgets[i], fmt.Sprintf("disruption.budgets[%d].duration", i)))
	}
	if len(from.Budgets) == 0 {
		disruption.Budgets = []karpv1.Budget{{Nodes: defaultBudget}}
	}
	return disruption
}

func (p *pool) budgetOf(from *v1alpha1.DisruptionBudget, duration string) karpv1.Budget {
	budget := karpv1.Budget{Nodes: cmp.Or(from.Nodes, defaultBudget)}
	if from.Duration != "" {
		budget.Duration = &metav1.Duration{Duration: ptr.Deref(p.duration(duration, from.Duration).Duration, 0)}
	}
	if from.Schedule != "" {
		budget.Schedule = ptr.To(from.Schedule)
	}
	for _, reason := range from.Reasons {
		budget.Reasons = append(budget.Reasons, karpv1.DisruptionReason(reason))
	}
	return budget
}

// duration reads a duration as a NodePool does: Go's format, or Never. The schema admits some that are too long for Go.
func (p *pool) duration(field, text string) (result karpv1.NillableDuration) {
	if err := json.Unmarshal(fmt.Appendf(nil, "%q", text), &result); err != nil {
		p.Problem = fmt.Sprintf("%s is %q, which is no duration: write it like 10m or 720h, or Never", field, text)
		return karpv1.NillableDuration{}
	}
	return result
}

// requirementsOf translates a nodeTypeSelector, or returns the problem with it.
//
// A property that no NodeType has needs care, unless Karpenter knows the label. Karpenter accepts any value of a label
// that an instance type does not mention, so a typing error would get the tenant any server. In and Exists of an
// unknown property match nothing. A NodePool cannot express that, so it is not written. NotIn and NotExists match
// everything and are left out.
func requirementsOf(
	selector []v1alpha1.NodeTypeSelectorRequirement, provider string, catalog Catalog,
) ([]karpv1.NodeSelectorRequirementWithMinValues, string) {
	entries, err := selectorEntries(selector, provider, catalog)
	if err != nil {
		return nil, err.Error()
	}
	requirements, problem := capacityTypeOf(entries)
	if problem != "" {
		return nil, problem
	}
	for i, entry := range entries {
		path := field.NewPath("nodeTypeSelector").Index(i)
		selects := entry.Operator == corev1.NodeSelectorOpIn || entry.Operator == corev1.NodeSelectorOpExists
		switch {
		case catalog.Advertises(entry.Key), karpv1.WellKnownLabels.Has(entry.Key):
			requirements = append(requirements,
				karpv1.NodeSelectorRequirementWithMinValues{Key: entry.Key, Operator: entry.Operator, Values: entry.Values})
		case selects && v1alpha1.IsTypeLabel(entry.Key):
			return nil, fmt.Sprintf("%s: no server matches this NodeType and another one too: label the BareMetalHosts that are meant", path)
		case selects:
			return nil, fmt.Sprintf("%s: no NodeType has the property %s: correct it, or give it to the NodeTypes that are meant", path, entry.Key)
		}
	}
	return requirements, ""
}
