// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

// maxAsked is how many domains of a gang core is asked about each time that it lists the pending pods. Each question plans all pods once.
const maxAsked = 8

// choose asks core which domain can hold each gang. The estimate of the gang's domains is the order in which core is asked: it knows no
// classes, limits, DaemonSets or volumes. The first domain is chosen in which core plans all pods of the gang. If
// there is none, the first is chosen in which core plans as many as it would without a requirement. If core would plan fewer pods of all
// gangs together than without requirements, none is added. A gang stays in a domain where servers boot for it, and core is not asked: then
// it may have fewer servers than core alone would plan, in two domains.
func (p *Placer) choose(ctx context.Context, pending []corev1.Pod, gangs []*gang) error {
	var open []*gang
	kept := map[*gang]bool{}
	for _, gang := range gangs {
		switch {
		case gang.fixed != nil || len(gang.domains) == 0:
			continue
		case slices.ContainsFunc(gang.domains[0].nodes, func(f fit[*node]) bool { return f.server.booting }):
			// Core does not know the topology of servers that boot, and would plan others in another domain.
			gang.chosen, kept[gang] = gang.domains[0], true
		default:
			open = append(open, gang)
		}
	}
	if len(open) == 0 {
		return nil
	}
	var planned map[*gang]answer
	var err error
	asked := map[*gang][]int{} // how many pods core plans, by the domain's place in the order
	for _, gang := range open {
		gang.chosen = gang.domains[0]
	}
	for range maxAsked {
		if planned, err = p.ask(ctx, pending, gangs); err != nil {
			return err
		}
		again := false
		for _, gang := range open {
			next := slices.Index(gang.domains, gang.chosen) + 1
			asked[gang] = append(asked[gang][:next-1], planned[gang].now)
			gang.chosen.pods = min(gang.chosen.pods, int64(planned[gang].now+planned[gang].later))
			if planned[gang].now < len(gang.pods) && next < len(gang.domains) {
				gang.chosen, again = gang.domains[next], true
			}
		}
		if !again {
			break
		}
	}
	whole := func(gang *gang) bool { return planned[gang].now == len(gang.pods) }
	if lo.EveryBy(gangs, func(gang *gang) bool { return kept[gang] || whole(gang) }) {
		return nil
	}
	chosen := lo.SliceToMap(open, func(gang *gang) (string, *domain) { return gang.id, gang.chosen })
	require := func(domainOf func(*gang) *domain) (map[*gang]answer, error) {
		for _, gang := range open {
			gang.chosen = domainOf(gang)
		}
		return p.ask(ctx, pending, gangs)
	}
	alone, err := require(func(*gang) *domain { return nil })
	if err != nil {
		return err
	}
	together, err := require(func(gang *gang) *domain {
		if whole(gang) {
			return chosen[gang.id]
		}
		best := slices.IndexFunc(asked[gang], func(n int) bool { return n > 0 && n >= alone[gang].now })
		if best < 0 {
			return nil
		}
		return gang.domains[best]
	})
	if err != nil {
		return err
	}
	if sum(together) < sum(alone) {
		for _, gang := range open {
			gang.chosen = nil
		}
	}
	return nil
}

// answer is how many pods of a gang core plans now, and how many it leaves for a later pass because servers that fit them are reserved in
// this one.
type answer struct{ now, later int }

func sum(answers map[*gang]answer) (planned int) {
	for _, answer := range answers {
		planned += answer.now
	}
	return planned
}

// ask returns what core plans for the gangs if they are required to be in the chosen domains.
func (p *Placer) ask(ctx context.Context, pending []corev1.Pod, gangs []*gang) (map[*gang]answer, error) {
	members := map[client.ObjectKey]*gang{}
	for _, gang := range gangs {
		for _, pod := range gang.pods {
			members[client.ObjectKeyFromObject(pod)] = gang
		}
	}
	var pods []*corev1.Pod
	for i := range pending {
		if !podutils.IsProvisionable(&pending[i]) {
			continue
		}
		pod := pending[i].DeepCopy() // core relaxes preferences in place
		if gang := members[client.ObjectKeyFromObject(pod)]; gang != nil {
			gang.require(pod)
		}
		pods = append(pods, pod)
	}
	results, err := p.Plan(ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("planning gangs, %w", err)
	}
	answers := map[*gang]answer{}
	count := func(pod *corev1.Pod, now, later int) {
		if gang := members[client.ObjectKeyFromObject(pod)]; gang != nil {
			answers[gang] = answer{answers[gang].now + now, answers[gang].later + later}
		}
	}
	for _, claim := range results.NewNodeClaims {
		for _, pod := range claim.Pods {
			count(pod, 1, 0)
		}
	}
	for _, node := range results.ExistingNodes {
		for _, pod := range node.Pods {
			count(pod, 1, 0)
		}
	}
	for pod := range results.ReservedOfferingErrors() {
		count(pod, 0, 1)
	}
	return answers, nil
}

// Simulation is core, to ask what it would plan.
type Simulation struct {
	Provisioner *provisioning.Provisioner
	Cluster     *state.Cluster
	Client      client.Client
	Clock       clock.Clock
}

// Plan returns what the provisioner would plan for these pending pods. It follows Schedule of core's provisioner, which takes no pods, and
// leaves out what that records.
func (s Simulation) Plan(ctx context.Context, pending []*corev1.Pod) (scheduling.Results, error) {
	ctx = log.IntoContext(injection.WithControllerName(ctx, "gangs"), logr.Discard())
	nodes := s.Cluster.DeepCopyNodes()
	pods := lo.Filter(pending, func(pod *corev1.Pod, _ int) bool { return s.Provisioner.Validate(ctx, pod) == nil })
	moving, err := nodes.Deleting().CurrentlyReschedulablePods(ctx, s.Client, s.Clock, silent{})
	if err != nil {
		return scheduling.Results{}, err
	}
	settings := options.FromContext(ctx)
	choices := []scheduling.Options{scheduling.DisableReservedCapacityFallback, scheduling.MinValuesPolicy(settings.MinValuesPolicy),
		scheduling.NumConcurrentReconciles(int(settings.CPURequests+999) / 1000)}
	if settings.PreferencePolicy == options.PreferencePolicyIgnore {
		choices = append(choices, scheduling.IgnorePreferences)
	}
	pods = append(pods, moving...)
	scheduler, err := s.Provisioner.NewScheduler(ctx, pods, nodes.Active(),
		sets.New(lo.Map(moving, func(pod *corev1.Pod, _ int) types.UID { return pod.UID })...), choices...)
	if errors.Is(err, provisioning.ErrNodePoolsNotFound) {
		return scheduling.Results{}, nil
	}
	if err != nil {
		return scheduling.Results{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // as core's own passes have
	defer cancel()
	results, err := scheduler.Solve(ctx, pods)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // core goes on with what it has planned
	}
	return results, err
}

// silent drops events: what is simulated does not happen.
type silent struct{}

// Publish implements events.Recorder.
func (silent) Publish(...events.Event) {}
