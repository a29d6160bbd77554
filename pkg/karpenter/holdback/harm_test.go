// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package holdback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakes "sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	// patience is how many rounds a pod may have no server once nothing stands in the way.
	patience = 6
	// pluginTaint is of a network plugin that nobody has declared.
	pluginTaint = "node.cilium.io/agent-not-ready"
)

// booting is how far a server is.
type booting int

const (
	launched booting = iota
	registered
	initialized
)

// server is a NodeClaim, as the world knows it. Times are rounds.
type server struct {
	name string
	booting
	// next is when it gets further, tainted until when the network plugin keeps pods off it, and away until when its kubelet
	// is silent, or a person has cordoned it.
	next, tainted, away int
	// agent is whether the network plugin runs.
	agent bool
	pod   *job
}

// job is a pod, as the world knows it.
type job struct {
	*corev1.Pod
	// gang is whose pods start together, empty for none, and volume how many rounds its volume takes on the node.
	gang   string
	volume int
	// waits is how many rounds kube-scheduler takes for it, and node the one that it is nominated for or bound to.
	waits   int
	node    *server
	running bool
}

// history is what happens to pods and servers that are all healthy. Each pod fills a server.
type history struct {
	*tenantWorld
	seed       uint64
	random     *rand.Rand
	connection *faults.Connection
	keeps      bool // empty nodes, as consolidateAfter says
	down       bool // the API server
	round      int
	// late is the last round in which core did not see what there is, and lacking for how many others pods have no server.
	late, lacking int
	busy          int // until when core takes for a plan
	servers       []*server
	jobs          []*job
	gone, ended   []string // nodes and pods
	// empties are the nodes that core has found empty, by how many rounds in a row.
	empties map[string]int
	log     []string
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{tenantWorld: newTenantWorld(t, nil), seed: seed, random: rand.New(rand.NewPCG(seed, 56))}
	h.keeps = h.random.IntN(2) == 0
	h.start(false)
	return h
}

// start starts a provider that may die after some of its writes.
func (h *history) start(dies bool) {
	h.t.Helper()
	h.connection = &faults.Connection{}
	if dies {
		h.connection = &faults.Connection{Kind: faults.Crash, At: h.random.IntN(4)}
	}
	reach := func() error {
		if h.down {
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	}
	h.provider = fakes.NewClient(h.connection.Client(h.api), fakes.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := reach(); err != nil {
				return err
			}
			return next.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := reach(); err != nil {
				return err
			}
			return next.List(ctx, list, options...)
		},
	})
	h.empties = nil
	h.connect()
}

func (h *history) note(format string, arguments ...any) {
	h.log = append(h.log, fmt.Sprintf("%3d ", h.round)+fmt.Sprintf(format, arguments...))
}

func (h *history) fail(format string, arguments ...any) {
	h.t.Helper()
	h.t.Fatalf("seed %d: %s, after:\n%s", h.seed, fmt.Sprintf(format, arguments...), strings.Join(h.log, "\n"))
}

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.fail("%v", err)
	}
}

// change edits a node.
func (h *history) change(s *server, change func(*corev1.Node)) {
	h.t.Helper()
	node := &corev1.Node{}
	h.must(h.api.Get(h.ctx, client.ObjectKey{Name: s.name}, node))
	change(node)
	changed := node.DeepCopy()
	h.must(h.api.Update(h.ctx, node))
	node.Status = changed.Status
	h.must(h.api.Status().Update(h.ctx, node))
}

func (h *history) claims() []karpv1.NodeClaim {
	h.t.Helper()
	nodeClaims := &karpv1.NodeClaimList{}
	h.must(h.api.List(h.ctx, nodeClaims))
	return nodeClaims.Items
}

// boot has servers get further: a node registers, is ready and initialized, and the network plugin starts at any time in
// between or later.
func (h *history) boots() {
	h.t.Helper()
	for _, nodeClaim := range h.claims() {
		if nodeClaim.Status.ProviderID == "" {
			h.launch(nodeClaim.Name)
			h.note("%s is launched", nodeClaim.Name)
			h.servers = append(h.servers, &server{name: nodeClaim.Name, next: h.round + h.random.IntN(8), away: -1})
		}
	}
	for _, s := range h.servers {
		if s.booting != initialized && s.next <= h.round {
			nodeClaim := &karpv1.NodeClaim{}
			h.must(h.api.Get(h.ctx, client.ObjectKey{Name: s.name}, nodeClaim))
			if s.booting++; s.booting == registered {
				s.next = h.round + 1 + h.random.IntN(3)
				s.tainted = s.next + h.random.IntN(6) - 3
				if h.keeps && h.random.IntN(4) == 0 { // longer than a node starts: its pod is held back
					s.tainted += 12
				}
				nodeClaim.Status.NodeName = s.name
				nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
				node := h.nodeOf(nodeClaim)
				delete(node.Labels, karpv1.NodeInitializedLabelKey)
				node.OwnerReferences = []metav1.OwnerReference{
					{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: nodeClaim.Name, UID: nodeClaim.UID}}
				node.Status.Conditions[0].Status = corev1.ConditionFalse
				node.Spec.Taints = []corev1.Taint{{Key: pluginTaint, Effect: corev1.TaintEffectNoSchedule}}
				h.must(h.api.Create(h.ctx, node))
			} else {
				h.initialize(nodeClaim)
				h.change(s, func(node *corev1.Node) {
					node.Labels[karpv1.NodeInitializedLabelKey] = "true"
					node.Status.Conditions[0].Status = corev1.ConditionTrue
				})
			}
			h.must(h.api.Status().Update(h.ctx, nodeClaim))
			h.note("%s gets as far as %d, its taint goes in round %d", s.name, s.booting, s.tainted)
		}
		if s.booting != launched && !s.agent && s.tainted <= h.round {
			s.agent = true
			h.change(s, func(node *corev1.Node) { node.Spec.Taints = without(node.Spec.Taints, pluginTaint) })
		}
		if s.away == h.round {
			h.change(s, func(node *corev1.Node) {
				node.Spec.Unschedulable, node.Status.Conditions[0].Status = false, corev1.ConditionTrue
				node.Spec.Taints = without(node.Spec.Taints, corev1.TaintNodeNotReady, corev1.TaintNodeUnschedulable)
			})
		}
	}
}

// initialize has core say that a node is initialized.
func (h *history) initialize(nodeClaim *karpv1.NodeClaim) {
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
	for i := range nodeClaim.Status.Conditions {
		if condition := &nodeClaim.Status.Conditions[i]; condition.Type == karpv1.ConditionTypeInitialized {
			condition.LastTransitionTime = metav1.NewTime(h.clock.Now())
		}
	}
}

func without(taints []corev1.Taint, keys ...string) []corev1.Taint {
	return slices.DeleteFunc(taints, func(taint corev1.Taint) bool { return slices.Contains(keys, taint.Key) })
}

// takes returns whether kube-scheduler may place a pod on a server.
func (h *history) takesPods(s *server) bool {
	return s.booting == initialized && s.tainted <= h.round && s.away <= h.round && s.pod == nil
}

// schedules plays kube-scheduler.
func (h *history) schedules() {
	h.t.Helper()
	free := slices.DeleteFunc(slices.Clone(h.servers), func(s *server) bool { return !h.takesPods(s) })
	h.random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	waiting := map[string]int{}
	for _, j := range h.jobs {
		if !j.running && j.node == nil {
			waiting[j.gang]++
		}
	}
	for _, j := range slices.Clone(h.jobs) {
		switch {
		case j.running:
		case j.node != nil && h.random.IntN(8) == 0: // the volume cannot be made there
			h.note("%s is not bound to %s after all", j.Name, j.node.name)
			j.node.pod, j.node = nil, nil
			j.Status.NominatedNodeName = ""
			h.must(h.api.Status().Update(h.ctx, j.Pod))
		case j.node != nil:
			if j.volume--; j.volume <= 0 {
				h.place(j, j.node)
			}
		case len(free) == 0, j.gang != "" && waiting[j.gang] > len(free):
		case j.waits > 0:
			j.waits--
		case j.volume > 0:
			s := free[0]
			free = free[1:]
			h.note("%s is nominated for %s", j.Name, s.name)
			j.node, s.pod = s, j
			j.Status.NominatedNodeName = s.name
			h.must(h.api.Status().Update(h.ctx, j.Pod))
		default:
			waiting[j.gang]--
			h.place(j, free[0])
			free = free[1:]
		}
	}
}

// place binds a pod.
func (h *history) place(j *job, s *server) {
	h.t.Helper()
	h.note("%s runs on %s", j.Name, s.name)
	j.node, j.running, s.pod = s, true, j
	j.Spec.NodeName = s.name
	h.must(h.api.Update(h.ctx, j.Pod))
	j.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	h.must(h.api.Status().Update(h.ctx, j.Pod))
}

// asks has somebody create pods of one size.
func (h *history) asks() {
	h.t.Helper()
	drawn := job{waits: h.random.IntN(5)}
	count, name := 1+h.random.IntN(3), fmt.Sprintf("job-%d", len(h.log))
	switch h.random.IntN(3) {
	case 0:
		drawn.gang = name
	case 1:
		drawn.volume = 1 + h.random.IntN(6)
	}
	h.note("%d pods %s, which start together: %v, wait for a volume for %d rounds and for kube-scheduler for %d", count, name,
		drawn.gang != "", drawn.volume, drawn.waits)
	for n := range count {
		j := drawn
		j.Pod = whole(fmt.Sprintf("%s-%d", name, n), planning.Selecting("team", "blue"))
		j.UID = types.UID(j.Name)
		h.pend(j.Pod)
		h.jobs = append(h.jobs, &j)
	}
}

// ends has a pod end, or be deleted by somebody.
func (h *history) ends(j *job) {
	h.t.Helper()
	h.note("%s ends", j.Name)
	if j.node != nil {
		j.node.pod = nil
	}
	h.must(h.api.Delete(h.ctx, j.Pod))
	h.jobs, h.ended = slices.DeleteFunc(h.jobs, func(other *job) bool { return other == j }), append(h.ended, j.Name)
}

// delivers has the watches of the provider say what there is, in any order, and some of them late.
func (h *history) delivers() {
	h.t.Helper()
	if h.down {
		return
	}
	nodes, pods := informer.NewNodeController(h.reads, h.core.Cluster), informer.NewPodController(h.reads, h.core.Cluster)
	for _, kind := range h.random.Perm(3) {
		if h.random.IntN(6) == 0 {
			h.late = h.round
			continue
		}
		switch kind {
		case 0:
			claims := h.claims()
			for i := range claims {
				h.core.Cluster.UpdateNodeClaim(&claims[i])
			}
			for _, name := range h.gone {
				h.core.Cluster.DeleteNodeClaim(name)
			}
		case 1:
			for _, s := range h.servers {
				if s.booting == launched {
					continue
				}
				_, err := nodes.Reconcile(h.ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: s.name}})
				h.must(err)
			}
			for _, name := range h.gone {
				h.core.Cluster.DeleteNode(name)
			}
		default:
			for _, j := range h.jobs {
				result, err := pods.Reconcile(h.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(j)})
				h.must(err)
				if result.RequeueAfter == 0 { // core does not know its node yet
					h.late = h.round
				}
			}
			for _, name := range h.ended {
				h.core.Cluster.DeletePod(types.NamespacedName{Namespace: "default", Name: name})
			}
		}
	}
}

// plans has core plan for the pods that wait, and take away nodes that it finds empty for more than 15 seconds.
func (h *history) plans() {
	h.t.Helper()
	if h.connection.Dead() {
		h.note("the provider starts again")
		h.start(false)
	}
	h.delivers()
	if h.down || !h.core.Cluster.Synced(h.ctx) {
		h.late, h.empties = h.round, nil
		return
	}
	if h.round < h.busy {
		h.late = h.round
	} else if results, err := h.planner.Schedule(h.ctx); err == nil {
		_, err = h.planner.CreateNodeClaims(h.ctx, results.NewNodeClaims)
		if err == nil && len(results.NewNodeClaims) > 0 {
			h.note("core asks for %d more", len(results.NewNodeClaims))
			h.checkMost()
		}
	}
	found, err := h.findEmpty()
	if err != nil {
		h.empties = nil
		return
	}
	before := h.empties
	h.empties = map[string]int{}
	for _, name := range found {
		if h.empties[name] = before[name] + 1; h.empties[name] == 3 && !h.keeps {
			h.takesAway(name)
		}
	}
}

// takesAway has core give an empty node back.
func (h *history) takesAway(name string) {
	h.t.Helper()
	i := slices.IndexFunc(h.servers, func(s *server) bool { return s.name == name })
	if i < 0 { // the state of core is behind
		return
	}
	s := h.servers[i]
	if s.pod != nil && !s.pod.running {
		h.fail("%s is taken away, and kube-scheduler has chosen it for %s", name, s.pod.Name)
	}
	if s.pod != nil {
		return // core reads the pods of a node again before it drains it
	}
	h.note("%s is empty and taken away", name)
	h.servers, h.gone = slices.Delete(h.servers, i, i+1), append(h.gone, name)
	h.must(h.api.Delete(h.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	nodeClaim := &karpv1.NodeClaim{}
	h.must(h.api.Get(h.ctx, client.ObjectKey{Name: name}, nodeClaim))
	nodeClaim.Finalizers = nil
	h.must(h.api.Update(h.ctx, nodeClaim))
	h.must(h.api.Delete(h.ctx, nodeClaim))
	planned := slices.DeleteFunc(slices.Clone(h.jobs), func(j *job) bool {
		return !j.running && h.core.Cluster.PodNodeClaimMapping(client.ObjectKeyFromObject(j.Pod)) == ""
	})
	if left := len(h.claims()); left < len(planned) {
		h.fail("%s is taken away, and %d servers are left for %d pods that run or that core has planned", name, left, len(planned))
	}
}

// checkMost fails if core has asked for more servers than pods need. It may ask for one in the place of a node that is away.
func (h *history) checkMost() {
	h.t.Helper()
	there := len(h.claims())
	for _, s := range h.servers {
		if s.away > h.round || s.booting == initialized && s.tainted > h.round && h.round > s.next+5 {
			there--
		}
	}
	if there > len(h.jobs) && h.late < h.round {
		h.fail("%d servers are there for %d pods", there, len(h.jobs))
	}
}

// passes has time pass, in which everything goes on.
func (h *history) goesOn(rounds int) {
	h.t.Helper()
	for range rounds {
		h.round++
		h.clock.Step(betweenPasses)
		h.boots()
		h.schedules()
		h.plans()
		stands := false // something in the way
		for _, s := range h.servers {
			stands = stands || s.booting == initialized && (s.tainted > h.round || s.away > h.round)
		}
		switch {
		case stands, len(h.claims()) >= len(h.jobs):
			h.lacking = 0
		case h.late < h.round:
			h.lacking++
		}
		if h.lacking > patience {
			h.fail("%d servers are there for %d pods, and nothing stands in the way", len(h.claims()), len(h.jobs))
		}
	}
}

// happens has something happen.
func (h *history) happens() {
	h.t.Helper()
	switch h.random.IntN(13) {
	case 0, 1, 2:
		if len(h.jobs) < 8 {
			h.asks()
		}
	case 3:
		if len(h.jobs) > 0 {
			h.ends(h.jobs[h.random.IntN(len(h.jobs))])
		}
	case 4:
		h.note("the provider is restarted")
		h.start(h.random.IntN(2) == 0)
	case 5:
		h.ahead = time.Duration(h.random.IntN(121)-60) * time.Minute
		h.note("the clock of the API server is ahead by %v", h.ahead)
	case 6:
		h.note("the API server is down")
		h.down = true
		h.goesOn(1 + h.random.IntN(5))
		h.down = false
	case 7:
		if len(h.servers) == 0 {
			return
		}
		if s := h.servers[h.random.IntN(len(h.servers))]; s.booting == initialized && s.away <= h.round {
			h.leaves(s)
		}
	case 8:
		h.busy = h.round + h.random.IntN(8)
		h.note("core does not plan before round %d", h.busy)
	default:
		h.goesOn(1 + h.random.IntN(5))
	}
}

// leaves has the kubelet of a node be silent for a while, or a person cordon or label the node.
func (h *history) leaves(s *server) {
	h.t.Helper()
	until := h.round + 1 + h.random.IntN(4)
	switch h.random.IntN(3) {
	case 0:
		h.note("%s is labelled", s.name)
		h.change(s, func(node *corev1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, "touched", strconv.Itoa(h.round)) })
	case 1:
		h.note("%s is cordoned until round %d", s.name, until)
		s.away = until
		h.change(s, func(node *corev1.Node) {
			node.Spec.Unschedulable = true
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		})
	default:
		h.note("%s is not ready until round %d", s.name, until)
		s.away = until
		h.change(s, func(node *corev1.Node) {
			node.Status.Conditions[0].Status = corev1.ConditionFalse
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
		})
	}
}

// TestNoHistoryKeepsPodsWaiting plays random histories of pods and servers that are all healthy: servers boot at different
// speeds, with the taint of a network plugin; pods start together, or wait for volumes; kube-scheduler takes its time; the
// provider is stopped, the API server is down, its clock is set, watches are late; people cordon nodes and label them. Core
// asks for no more servers than pods need, takes none away that a pod waits for, and has no pod wait for a server once nothing
// stands in the way.
func TestNoHistoryKeepsPodsWaiting(t *testing.T) {
	ran, held := 0, 0
	for seed := range system.Histories(t, 15) {
		h := newHistory(t, seed)
		for range 30 {
			h.happens()
		}
		h.note("nothing more happens")
		for range 20 {
			h.goesOn(patience)
			if !slices.ContainsFunc(h.jobs, func(j *job) bool { return !j.running }) {
				break
			}
		}
		for _, j := range h.jobs {
			if !j.running {
				h.fail("%s does not run", j.Name)
			}
		}
		if ran += len(h.gone) + len(h.servers); h.told("PodNotPlaced") {
			held++
		}
	}
	t.Logf("%d servers were asked for, pods were held back in %d histories", ran, held)
}
