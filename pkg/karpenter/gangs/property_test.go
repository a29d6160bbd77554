// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestNoFewerServersThanCoreAlone: in random worlds, core plans no fewer pods of gangs with the placer than without it.
func TestNoFewerServersThanCoreAlone(t *testing.T) { neverFewer(t, 0, 300) }

// TestMoreWorlds is the same in many more worlds.
func TestMoreWorlds(t *testing.T) {
	system.Only(t)
	neverFewer(t, 300, 2_000)
}

func neverFewer(t *testing.T, first, end uint64) {
	t.Helper()
	var more, some, short int
	for seed := first; seed < end; seed++ {
		message := ""
		alone := func() int { return planned(world(seed).Solve(t)) }
		placed := func() int {
			plan := world(seed)
			gang := slices.IndexFunc(plan.Objects, func(object client.Object) bool { return object.GetLabels()["gang"] != "" })
			results := placing(plan, &message, plan.Objects[gang], Dependencies{}).Solve(t)
			count := planned(results)
			if _, later := perGang(results); len(plan.Types) > 1 {
				// Core reserves a server of each type for each NodeClaim, and plans the rest in the next pass.
				delete(later, "")
				count += lo.Sum(slices.Collect(maps.Values(later)))
			}
			return count
		}
		without, together := alone(), placed()
		// Core takes any domain for the first pod of a gang, and plans another number of pods the next time. The worst of what it plans
		// alone may come once in three times.
		for range 200 {
			if together >= without {
				break
			}
			without, together = min(without, alone()), max(together, placed())
		}
		switch {
		case together < without:
			t.Errorf("seed %d: core plans %d pods of gangs alone, and %d with the placer", seed, without, together)
		case together > without:
			more++
		}
		if together > 0 {
			some++
		}
		if message != "" {
			short++
		}
	}
	// A test in which nothing happens shows nothing.
	if worlds := int(end - first); more < worlds/50 || some < worlds/4 || short < worlds/20 {
		t.Errorf("of %d worlds, %d have more pods planned than core alone, %d have any, and %d a shortage", worlds, more, some, short)
	}
}

// planned counts the pods of gangs that core plans.
func planned(results scheduling.Results) (count int) {
	add := func(pods []*corev1.Pod) {
		for _, pod := range pods {
			if pod.Labels["gang"] != "" {
				count++
			}
		}
	}
	for _, claim := range results.NewNodeClaims {
		add(claim.Pods)
	}
	for _, node := range results.ExistingNodes {
		add(node.Pods)
	}
	return count
}

// world is a fleet with several NodePools and with what the estimate does not know: providers, limits, DaemonSets, taints, quotas, refusals
// and volumes.
func world(seed uint64) planning.Plan {
	random := rand.New(rand.NewPCG(seed, 1))
	chance := func(times int) bool { return random.IntN(times) == 0 }
	domains := []string{"n1", "n2", "n3", "n4"}[:1+random.IntN(4)]
	var plan planning.Plan
	for i, name := range []string{"h100-8x", "b200-8x", "a100-4x"}[:1+random.IntN(3)] {
		var capacity []v1alpha1.DomainCapacity
		for _, domain := range domains {
			if !chance(3) {
				capacity = append(capacity, in(domain, random.Int32N(7)))
			}
		}
		nodeType := planning.NodeType(name, []int{8, 8, 4}[i], capacity...)
		if chance(3) {
			nodeType.OwnerReferences, nodeType.Spec.ProviderRef.Name = env.MadeBy("other"), "other"
		}
		plan.Types = append(plan.Types, nodeType)
	}
	if chance(3) {
		name := "metal3"
		if chance(2) {
			name = "other"
		}
		plan.Class = &v1alpha1.MetalNodeClass{Spec: v1alpha1.MetalNodeClassSpec{ProviderRef: &v1alpha1.NameReference{Name: name}}}
	}
	if chance(4) {
		plan.Quota.Quota = &v1alpha1.Quota{Servers: ptr.To(random.Int64N(8))}
		if chance(2) {
			servers := v1alpha1.ServerCount(random.Int64N(8))
			plan.Quota.Quota = &v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"h100-8x": servers}}
		}
	}
	for i := range 1 + random.IntN(3) {
		change := func(pool *karpv1.NodePool) {
			if chance(3) {
				pool.Spec.Limits = karpv1.Limits{"nodes": *resource.NewQuantity(random.Int64N(5), resource.DecimalSI)}
			}
			if chance(4) {
				pool.Spec.Limits = karpv1.Limits(env.Resources("cpu", fmt.Sprint(64*random.IntN(5))))
			}
			if chance(4) {
				pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: "other", Effect: corev1.TaintEffectNoSchedule}}
			}
		}
		if chance(2) {
			plan.Pools = append(plan.Pools, planning.Pool(fmt.Sprint("all-", i), change))
		} else {
			pool := poolIn(domains[random.IntN(len(domains))], change)
			pool.Name = fmt.Sprint(pool.Name, "-", i)
			plan.Pools = append(plan.Pools, pool)
		}
	}
	for i := range 1 + random.IntN(2) {
		request := []string{"nvidia.com/gpu", fmt.Sprint([]int{8, 4, 2}[random.IntN(3)]), "cpu", fmt.Sprint([]int{1, 32, 16}[random.IntN(3)])}
		plan.Objects = append(plan.Objects, members(fmt.Sprint("train-", i), 1+random.IntN(9), request)...)
	}
	for i := range random.IntN(4) {
		plan.Objects = append(plan.Objects, planning.Pod(fmt.Sprint("single-", i), []string{"nvidia.com/gpu", "4"}))
	}
	if chance(3) {
		plan.Objects = append(plan.Objects, daemonSet([]string{"1", "33", "60"}[random.IntN(3)]))
	}
	for _, pool := range plan.Pools {
		if chance(5) {
			plan.Refused = map[string][]string{pool.Name: {plan.Types[random.IntN(len(plan.Types))].Name}}
		}
	}
	if chance(3) { // the data of a gang is in one domain, or all over the place
		domain := func() string { return domains[random.IntN(len(domains))] }
		if home := domain(); chance(2) {
			domain = func() string { return home }
		}
		for _, object := range plan.Objects {
			if pod, ok := object.(*corev1.Pod); ok && pod.Labels["gang"] == "train-0" {
				plan.Objects = append(plan.Objects, planning.Volume(pod, nvlink, domain())...)
			}
		}
	}
	return plan
}
