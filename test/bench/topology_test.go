// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/gangs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// A fleet of 10,000 hosts: 100 NodeTypes with 100 free hosts each, in 50 racks of two.
const (
	planTypes = 100
	planRacks = 50
	planHosts = 100
	planPods  = 100
	// 500 pods in 20 gangs.
	gangPods, gangSize = 500, 25
)

// BenchmarkSchedulingPass has Karpenter's core plan servers for 100 pods, one server each, out of 10,000 hosts of 100
// NodeTypes. It reports how long a pass takes:
//
//	plain-ms      the hosts are in no topology
//	topology-ms   they are in 50 racks, and the pods do not care
//	ratio         the latter over the former
//	rack-ms       each pod selects one of the racks
//	rack-ratio    that over plain
//
// and of 500 pods, one server each, of 20 types in four racks:
//
//	alone-ms      the pods do not care for racks
//	gangs-ms      they are 20 gangs that say their size, each in one rack
//	gangs-ratio   the latter over the former
func BenchmarkSchedulingPass(b *testing.B) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		b.Fatal(err)
	}
	anywhere := func(int) []func(*corev1.Pod) { return nil }
	inRack := func(n int) []func(*corev1.Pod) {
		return []func(*corev1.Pod){planning.Selecting("rack", fmt.Sprintf("r%02d", n%planRacks))}
	}
	ofType := func(n int) []func(*corev1.Pod) {
		return []func(*corev1.Pod){planning.Selecting(corev1.LabelInstanceTypeStable, fmt.Sprintf("type-%03d", n/gangSize))}
	}
	inGang := func(n int) []func(*corev1.Pod) {
		return append(ofType(n), planning.Together(fmt.Sprint("gang-", n/gangSize), "rack"), func(pod *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.GangMinCountAnnotationKey, fmt.Sprint(gangSize))
		})
	}
	plain := schedulingPass(b, planPods, func() []v1alpha1.DomainCapacity {
		return []v1alpha1.DomainCapacity{planning.Domain(planHosts)}
	}, anywhere)
	inRacks := func(count int) func() []v1alpha1.DomainCapacity {
		return func() (domains []v1alpha1.DomainCapacity) {
			for rack := range count {
				domains = append(domains, planning.Domain(int32(planHosts/count), "rack", fmt.Sprintf("r%02d", rack)))
			}
			return domains
		}
	}
	racks, bigRacks := inRacks(planRacks), inRacks(planHosts/gangSize)
	spread, selected := schedulingPass(b, planPods, racks, anywhere), schedulingPass(b, planPods, racks, inRack)
	single, together := schedulingPass(b, gangPods, bigRacks, ofType), schedulingPass(b, gangPods, bigRacks, inGang)

	measure := func(plan func()) time.Duration {
		start := time.Now()
		plan()
		return time.Since(start)
	}
	var without, withTopology, rack, alone, ganged time.Duration
	passes := 0
	for b.Loop() {
		without += measure(plain)
		withTopology += measure(spread)
		rack += measure(selected)
		alone += measure(single)
		ganged += measure(together)
		passes++
	}
	milliseconds := func(total time.Duration) float64 { return total.Seconds() * 1000 / float64(passes) }
	b.ReportMetric(milliseconds(without), "plain-ms")
	b.ReportMetric(milliseconds(withTopology), "topology-ms")
	b.ReportMetric(withTopology.Seconds()/without.Seconds(), "ratio")
	b.ReportMetric(milliseconds(rack), "rack-ms")
	b.ReportMetric(rack.Seconds()/without.Seconds(), "rack-ratio")
	b.ReportMetric(milliseconds(alone), "alone-ms")
	b.ReportMetric(milliseconds(ganged), "gangs-ms")
	b.ReportMetric(ganged.Seconds()/alone.Seconds(), "gangs-ratio")
}

// schedulingPass returns a function that plans once, and fails unless each pod gets a server.
func schedulingPass(b *testing.B, pods int, domains func() []v1alpha1.DomainCapacity, constrain func(n int) []func(*corev1.Pod)) func() {
	b.Helper()
	var simulation gangs.Simulation
	plan := planning.Plan{Decorate: func(c client.Client, catalog *instancetypes.Catalog) client.Client {
		simulation.Client, simulation.Clock = c, clock.RealClock{}
		return interceptor.NewClient(c, gangs.NewPlacer(gangs.Dependencies{
			Client: c, Live: c, Clock: clock.RealClock{},
			FreeServers: func(context.Context) ([]instancetypes.FreeServers, error) {
				return catalog.FreeServers(instancetypes.NewFilter(nil, nil)), nil
			},
			NodeClaimOf: func(types.NamespacedName) string { return "" },
			Plan: func(ctx context.Context, pods []*corev1.Pod) (scheduling.Results, error) {
				return simulation.Plan(ctx, pods)
			},
		}).PendingPods())
	}, Made: func(provisioner *provisioning.Provisioner, cluster *state.Cluster) {
		simulation.Provisioner, simulation.Cluster = provisioner, cluster
	}}
	for n := range planTypes {
		plan.Types = append(plan.Types, planning.NodeType(fmt.Sprintf("type-%03d", n), 8, domains()...))
	}
	for n := range pods {
		plan.Objects = append(plan.Objects,
			client.Object(planning.Pod(fmt.Sprintf("pod-%03d", n), []string{"nvidia.com/gpu", "8"}, constrain(n)...)))
	}
	planner := plan.Planner(b)
	return func() {
		results, err := planner()
		if err != nil || len(results.NewNodeClaims) != pods {
			b.Fatalf("%d NodeClaims for %d pods: %v %v", len(results.NewNodeClaims), pods, err, results.PodErrors)
		}
	}
}
