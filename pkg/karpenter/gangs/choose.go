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
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
)

const (
	// maxAsked is how many domains of a gang core is asked about per list of pending pods. Each plans all pods once.
	maxAsked = 8
	// maxQuestions limits the questions about gangs without room for all. The others wait for the next list.
	maxQuestions = 2 * maxAsked
	// askPeriod is how often core is asked about a gang that waits for capacity, while no more servers get free.
	askPeriod = time.Minute
	// movePeriod is how long core must plan no server for some pods of a gang with servers before the gang moves to
	// another domain. Each move throws installations away, so the period doubles after each move, up to maxMovePeriod.
	movePeriod, maxMovePeriod = 2 * time.Minute, 24 * time.Hour
)

// choose decides in which domain each gang is planned, or that it waits. Core is asked in the order of this package's
// estimate, which knows no classes, limits, DaemonSets or volumes.
//
// A gang with servers stays in their domain. A gang with a stated size is planned in the first domain where core plans
// all that it needs. If there is none, it waits. Any other gang is planned in the first domain where core plans all of
// its pods, or else in the first where core plans as many as without a requirement.
func (p *Placer) choose(ctx context.Context, pending []corev1.Pod, gangs []*gang, snapshot *snapshot) error {
	q := questions{Placer: p, ctx: ctx, pending: pending, gangs: gangs}
	var open, sized []*gang
	for _, gang := range gangs {
		home := gang.home()
		switch {
		case gang.isWaiting():
		case gang.fixed != nil:
			if gang.group.key != "" { // no affinity tells core
				gang.chosen = &domain{keys: gang.keys, values: lo.Map(gang.keys, func(key string, _ int) string { return gang.fixed[key] })}
			}
		case home != nil:
			gang.chosen = home
			if known := slices.IndexFunc(gang.domains, func(d *domain) bool { return slices.Equal(d.values, home.values) }); known >= 0 {
				gang.chosen = gang.domains[known]
			}
		case gang.started():
		case gang.minCount > 0:
			sized = append(sized, gang)
		case len(gang.domains) == 0:
		case slices.ContainsFunc(gang.domains[0].nodes, func(f fit[*node]) bool { return f.server.booting }):
			// Core does not know the topology of servers that boot, and would plan others in another domain.
			gang.chosen = gang.domains[0]
		default:
			gang.chosen = gang.domains[0]
			open = append(open, gang)
		}
	}
	if err := q.whole(sized, snapshot.text()); err != nil {
		return err
	}
	if err := q.most(open); err != nil {
		return err
	}
	for _, gang := range gangs {
		if err := q.move(gang); err != nil {
			return err
		}
	}
	return nil
}

// questions are questions to core about the gangs among the pending pods.
type questions struct {
	*Placer
	ctx     context.Context
	pending []corev1.Pod
	gangs   []*gang
	count   int
}

// candidates returns the domains to ask core about, the best estimate first. Nil: ask without a requirement.
func (g *gang) candidates() []*domain {
	if len(g.domains) == 0 {
		return []*domain{nil}
	}
	return g.domains[:min(len(g.domains), maxAsked)]
}

func (g *gang) hold() {
	g.chosen, g.waits = nil, explain.Explanation{Reason: explain.ReasonInsufficientDomainCapacity}
}

// try reports whether core plans all gangs that do not wait if this gang is in the domain.
func (q *questions) try(g *gang, candidate *domain, sized []*gang) (bool, error) {
	g.chosen, g.waits = candidate, explain.Explanation{}
	planned, err := q.ask()
	if err != nil {
		return false, err
	}
	if candidate != nil {
		candidate.pods = min(candidate.pods, int64(planned[g].now+planned[g].later))
	}
	whole := areWhole(sized, planned)
	if whole {
		claimTogether(sized, planned)
	}
	return whole, nil
}

// claimTogether makes whole gangs claim their servers in one decision, unless a server is for several gangs.
func claimTogether(gangs []*gang, planned map[*gang]answer) {
	for _, gang := range gangs {
		if gang.together = 0; !planned[gang].shared {
			gang.together = planned[gang].servers
		}
	}
}

// areWhole reports whether core plans all that the gangs need, apart from waiting gangs.
func areWhole(gangs []*gang, planned map[*gang]answer) bool {
	return lo.EveryBy(gangs, func(gang *gang) bool { return gang.isWaiting() || planned[gang].now >= gang.need() })
}

// whole plans gangs as a whole, or lets them wait. free describes the free servers.
func (q *questions) whole(sized []*gang, free string) error {
	var next []*gang
	for _, gang := range sized {
		gang.chosen = gang.candidates()[0]
		if gang.free == free && q.Clock.Since(gang.asked) < askPeriod {
			gang.hold()
			continue
		}
		next = append(next, gang)
	}
	if len(next) == 0 {
		return nil
	}
	planned, err := q.ask()
	if err != nil {
		return err
	}
	if areWhole(next, planned) {
		claimTogether(next, planned)
		return nil
	}
	// There is not room for all. Try one gang after the other, the one that core was asked about longest ago first.
	for _, gang := range next {
		gang.hold()
	}
	slices.SortStableFunc(next, func(a, b *gang) int { return a.asked.Compare(b.asked) })
	for _, gang := range next {
		candidates := gang.candidates()
		if q.count+len(candidates) > maxQuestions && q.count > 1 {
			return nil
		}
		for _, candidate := range candidates {
			whole, err := q.try(gang, candidate, sized)
			if err != nil {
				return err
			}
			if whole {
				break
			}
			gang.hold()
		}
		gang.asked, gang.free = q.Clock.Now(), free
	}
	return nil
}

// most plans as many pods as possible of gangs without a stated size. If core would plan fewer pods of all gangs
// together than without requirements, it adds no requirements.
func (q *questions) most(open []*gang) error {
	if len(open) == 0 {
		return nil
	}
	var planned map[*gang]answer
	var err error
	asked := map[*gang][]int{} // how many pods core plans, by the index of the domain
	for range maxAsked {
		if planned, err = q.ask(); err != nil {
			return err
		}
		again := false
		for _, gang := range open {
			next := slices.Index(gang.domains, gang.chosen) + 1
			asked[gang] = append(asked[gang][:next-1], planned[gang].now)
			if fit := planned[gang].now + planned[gang].later; fit < len(gang.pods) { // not asked about future pods
				gang.chosen.pods = min(gang.chosen.pods, int64(fit))
			}
			if planned[gang].now < len(gang.pods) && next < len(gang.domains) {
				gang.chosen, again = gang.domains[next], true
			}
		}
		if !again {
			break
		}
	}
	whole := func(gang *gang) bool { return planned[gang].now == len(gang.pods) }
	if lo.EveryBy(open, whole) {
		return nil
	}
	chosen := lo.SliceToMap(open, func(gang *gang) (string, *domain) { return gang.id, gang.chosen })
	require := func(domainOf func(*gang) *domain) (map[*gang]answer, error) {
		for _, gang := range open {
			gang.chosen = domainOf(gang)
		}
		return q.ask()
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

// move gives the servers of a gang back if core has planned none for some of its pods for a while, none has become a
// node yet, and all pods could be planned in another domain. From the next list on, the gang is planned there.
func (q *questions) move(g *gang) error {
	planned := lo.CountBy(g.pods, func(pod *corev1.Pod) bool { return q.NodeClaimOf(client.ObjectKeyFromObject(pod)) != "" })
	if len(g.keys) == 0 || g.isWaiting() || len(g.servers) == 0 || len(g.running) > 0 || g.minCount == 0 || planned >= g.need() {
		g.stuck = time.Time{}
		return nil
	}
	if g.stuck.IsZero() {
		g.stuck = q.Clock.Now()
	}
	if q.Clock.Since(g.stuck) < movePeriod || q.Clock.Since(g.moved) < g.stays ||
		slices.ContainsFunc(g.servers, func(nodeClaim *karpv1.NodeClaim) bool {
			return nodeClaim.Status.NodeName != "" || len(v1alpha1.GangsOf(nodeClaim)) > 1
		}) {
		return nil
	}
	g.stuck = q.Clock.Now()
	defer func() { g.together = 0 }() // of servers that it has
	home := g.chosen
	for _, candidate := range append([]*domain{home}, g.candidates()...) {
		whole, err := q.try(g, candidate, []*gang{g})
		if err != nil {
			return err
		}
		if !whole {
			continue
		}
		if candidate == home {
			break
		}
		for _, nodeClaim := range g.servers {
			if err := client.IgnoreNotFound(q.Client.Delete(q.ctx, nodeClaim, client.Preconditions{UID: &nodeClaim.UID})); err != nil {
				return fmt.Errorf("giving back the servers of a gang, %w", err)
			}
		}
		g.moved, g.stays = q.Clock.Now(), min(max(2*g.stays, 2*movePeriod), maxMovePeriod)
		g.waits = explain.Explanation{Reason: explain.ReasonGangIncomplete,
			Message: "the servers of the gang are given back, because not all of its pods have room beside them; it gets others elsewhere"}
		return nil
	}
	g.chosen = home
	return nil
}

// answer is how many pods of a gang core plans now, and how many it leaves for a later pass because this pass has
// reserved the servers that fit them.
type answer struct {
	now, later int
	// servers counts the new servers; shared is true if one of them is also for another gang.
	servers int32
	shared  bool
}

func sum(answers map[*gang]answer) (planned int) {
	for _, answer := range answers {
		planned += answer.now
	}
	return planned
}

// ask returns what core plans for the gangs that do not wait, if each must be in its chosen domain.
func (q *questions) ask() (map[*gang]answer, error) {
	q.count++
	members := map[client.ObjectKey]*gang{}
	for _, gang := range q.gangs {
		for _, pod := range gang.pods {
			members[client.ObjectKeyFromObject(pod)] = gang
		}
	}
	var pods []*corev1.Pod
	for i := range q.pending {
		gang := members[client.ObjectKeyFromObject(&q.pending[i])]
		if !podutils.IsProvisionable(&q.pending[i]) || gang != nil && gang.isWaiting() {
			continue
		}
		pod := q.pending[i].DeepCopy() // core relaxes preferences in place
		if gang != nil {
			gang.require(pod) // without the mark, which would cost core time
		}
		pods = append(pods, pod)
	}
	results, err := q.Plan(q.ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("planning gangs, %w", err)
	}
	answers := map[*gang]answer{}
	count := func(pod *corev1.Pod, now, later int) {
		if gang := members[client.ObjectKeyFromObject(pod)]; gang != nil {
			answer := answers[gang]
			answer.now, answer.later = answer.now+now, answer.later+later
			answers[gang] = answer
		}
	}
	types := map[*gang]sets.Set[string]{} // that each new server of a gang may have
	for _, claim := range results.NewNodeClaims {
		own := sets.New[*gang]()
		for _, pod := range claim.Pods {
			count(pod, 1, 0)
			if gang := members[client.ObjectKeyFromObject(pod)]; gang != nil {
				own.Insert(gang)
			}
		}
		for gang := range own {
			answer := answers[gang]
			answer.servers, answer.shared = answer.servers+1, answer.shared || len(own) > 1
			answers[gang] = answer
			names := sets.New[string]()
			for _, instanceType := range claim.InstanceTypeOptions {
				names.Insert(instanceType.Name)
			}
			if types[gang] != nil {
				names = names.Intersection(types[gang])
			}
			types[gang] = names
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
	for gang, answer := range answers {
		// Core reserves a server of each type for each NodeClaim, and plans the rest of the pods in the next pass.
		if answer.later > 0 && gang.chosen != nil && gang.chosen.count(types[gang])-len(results.NewNodeClaims) >= answer.later {
			answer.now, answer.later = answer.now+answer.later, 0
			answers[gang] = answer
		}
	}
	return answers, nil
}

// Simulation asks core what it would plan.
type Simulation struct {
	Provisioner *provisioning.Provisioner
	Cluster     *state.Cluster
	Client      client.Client
	Clock       clock.Clock
}

// Plan returns what the provisioner would plan for these pending pods. It follows Schedule of core's provisioner, which
// takes no pods as an argument, but records nothing.
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

// silent drops events, because a simulated event does not happen.
type silent struct{}

// Publish implements events.Recorder.
func (silent) Publish(...events.Event) {}
