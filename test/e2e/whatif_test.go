// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Environment variables of TestWhatIf: how many workloads, and from which seed on.
const (
	roundsVariable = "E2E_WHAT_IF_ROUNDS"
	seedVariable   = "E2E_WHAT_IF_SEED"
)

// sixteen are the servers of the reference fleet and of the group nvlink: four types in four racks and two NodePools. The tests that use
// it run alone.
var sixteen = &group{
	namespace: "what-if", pools: []string{"default", "nvl"}, types: []string{"h100-8x", "a100-4x", "cpu", "nvl"},
	servers: []string{"server-", "nvl-"},
}

// tenantScheduler is the process that binds pods, in a sandbox.
const tenantScheduler = "tenant-kube-scheduler"

// kubectl metal3 what-if predicts what the clusters then do with random workloads, on a fleet of which random servers are in maintenance:
// which servers are taken, and how many pods of each kind find none.
//
// Two things are free, and not compared. Which of several pods that are alike finds none. And what Karpenter draws lots for: of racks that
// are equally empty it takes any. Where it differs, the same snapshot is asked again, and one of its answers must be what happened.
//
// Pods that are spread over racks are left out: Karpenter draws lots anew each time that it plans, until all of them have a server, and
// that may take more servers than any one plan. A round does not count if a busy machine has Karpenter plan for some of the pods before
// kube-scheduler has seen the others: what-if is about pods that are created at the same time. Another round takes its place.
//
// kube-scheduler is stopped once it has found no node for the pods: it binds them where it likes, and not where Karpenter planned them,
// and servers that are taken because of that are its choice.
func TestWhatIf(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, sixteen)
	if w.sandbox == nil {
		t.Skip("this test needs the servers and the --topology-labels of a sandbox")
	}
	if err := w.clusters.DescribeFleet(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.consolidateAfter(t, "Never") // nothing is bound, so all nodes are empty
	w.createPool(t, "nvl", 10, resources("cpu", "16", "memory", "64Gi", gpu, "8"), nil)
	w.eventually(t, "all servers are free", w.fleetIsReady)

	rounds, first := fromEnvironment(t, roundsVariable, 10), fromEnvironment(t, seedVariable, 1)
	var lots, differed, uncounted []int
	for seed := first; seed < first+rounds+len(uncounted) && len(uncounted) <= 2*rounds; seed++ {
		began := time.Now()
		random := rand.New(rand.NewPCG(uint64(seed), 18))
		out := w.maintain(t, random)
		kinds := w.workload(random)
		workload, snapshot := w.question(t, kinds)
		predicted := w.predict(t, workload, snapshot)
		happened, open := w.plan(t, kinds, predicted)
		verdict := "as predicted"
		if !cmp.Equal(predicted, happened) && w.plannedTooSoon(t) {
			t.Logf("seed %d: not counted, Karpenter planned before kube-scheduler had seen all pods", seed)
			uncounted = append(uncounted, seed)
			w.freeAll(t, out)
			continue
		}
		if !cmp.Equal(predicted, happened) {
			verdict = "as predicted at another time"
			predicted = w.anotherAnswer(t, workload, snapshot, happened)
			lots = append(lots, seed)
		}
		if diff := cmp.Diff(predicted, happened); diff != "" || open != "" {
			verdict, lots, differed = "differs", slices.DeleteFunc(lots, func(lot int) bool { return lot == seed }), append(differed, seed)
			t.Errorf("seed %d: open: %q; workload:\n%s\nwithout %v (-predicted +happened):\n%s\n%s", seed, open, describe(kinds), out, diff,
				w.claimsMade(t))
		}
		t.Logf("seed %d: %d kinds, %d servers in maintenance, %d taken, %d pods without one, %v: %s", seed, len(kinds), len(out),
			len(happened.Servers), happened.unfit(), time.Since(began).Round(time.Second), verdict)
		w.freeAll(t, out)
	}
	if len(uncounted) > 2*rounds {
		t.Errorf("%d rounds were not counted: the test has not compared %d predictions", len(uncounted), rounds)
	}
	t.Logf("%d predictions: %d differed %v; Karpenter drew other lots in %d %v; not counted %d %v", rounds, len(differed), differed, len(lots),
		lots, len(uncounted), uncounted)
}

// answers is how often a snapshot is asked again: a map of Go does not begin with each of its keys equally often.
const answers = 200

// anotherAnswer asks the plugin again, until it answers what happened, and returns its last answer.
func (w *fixture) anotherAnswer(t *testing.T, workload, snapshot string, happened outcome) (answer outcome) {
	t.Helper()
	for range answers {
		if answer = w.predict(t, workload, snapshot); cmp.Equal(answer, happened) {
			break
		}
	}
	return answer
}

func fromEnvironment(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q: it must be a number", variable, text)
	}
	return number
}

// kind is some pods that are alike.
type kind struct {
	name   string
	count  int
	asks   corev1.ResourceList
	change func(*corev1.Pod)
	// constraint is what change does, in words.
	constraint string
}

func describe(kinds []kind) string {
	var lines []string
	for _, kind := range kinds {
		asks, _ := json.Marshal(kind.asks)
		lines = append(lines, fmt.Sprintf("  %d of %s: %s, %s", kind.count, kind.name, asks, kind.constraint))
	}
	return strings.Join(lines, "\n")
}

// workload is random.
func (w *fixture) workload(random *rand.Rand) []kind {
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	var kinds []kind
	for i := range 1 + random.IntN(3) {
		drawn := kind{name: fmt.Sprintf("kind%d", i), count: 1 + random.IntN(5), constraint: "anywhere", change: func(*corev1.Pod) {}}
		drawn.asks = resources("cpu", strconv.Itoa(1+random.IntN(24)), "memory", fmt.Sprintf("%dGi", 1+random.IntN(100)))
		if gpus := pick("0", "1", "2", "4", "8", "8", "16"); gpus != "0" {
			drawn.asks = resources("cpu", strconv.Itoa(1+random.IntN(12)), "memory", fmt.Sprintf("%dGi", 1+random.IntN(48)), gpu, gpus)
		}
		own := map[string]string{"what-if": drawn.name}
		together := []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: own}}}
		switch random.IntN(6) {
		case 0:
			rack := pick("rack-a", "rack-b", "r1", "r2")
			drawn.constraint = "in rack " + rack
			drawn.change = func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{v1alpha1.RackLabelKey: rack} }
		case 1:
			together[0].TopologyKey = corev1.LabelHostname
			drawn.constraint = "each on a server of its own"
			drawn.change = func(pod *corev1.Pod) {
				pod.Labels = own
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: together}}
			}
		case 2:
			together[0].TopologyKey = pick(v1alpha1.RackLabelKey, v1alpha1.NVLinkDomainLabelKey)
			drawn.constraint = "all in one " + together[0].TopologyKey
			drawn.change = func(pod *corev1.Pod) {
				pod.Labels = own
				pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: together}}
			}
		}
		kinds = append(kinds, drawn)
	}
	return kinds
}

// maintain takes random servers out of the pool, and returns their names once the NodeTypes show it.
func (w *fixture) maintain(t *testing.T, random *rand.Rand) []string {
	t.Helper()
	hosts, err := w.hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, host := range hosts {
		if random.IntN(3) == 0 {
			w.annotateHost(t, host.Name, "what-if")
			out = append(out, host.Name)
		}
	}
	w.eventually(t, "the NodeTypes show that servers are in maintenance", w.available(len(out)))
	return out
}

func (w *fixture) annotateHost(t *testing.T, name, why string) {
	t.Helper()
	value := "null"
	if why != "" {
		value = strconv.Quote(why)
	}
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.MaintenanceAnnotationKey, value)
	host := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: name}}
	if err := w.management.Patch(t.Context(), host, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// available is a condition: all servers of the types are, but those that are out. One is of no type.
func (w *fixture) available(out int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		hosts, err := w.hosts(ctx)
		if err != nil {
			return "", err
		}
		missing := 0
		for _, host := range hosts {
			if host.Annotations[v1alpha1.MaintenanceAnnotationKey] == "" && host.Labels["tenant"] == "" {
				missing++
			}
		}
		for _, name := range w.group.types {
			nodeType := &v1alpha1.NodeType{}
			if err := w.management.Get(ctx, client.ObjectKey{Name: name}, nodeType); err != nil {
				return "", err
			}
			missing -= int(nodeType.Status.Capacity.Available)
		}
		if missing != 0 {
			return fmt.Sprintf("%d servers differ, with %d in maintenance", missing, out), nil
		}
		return "", nil
	}
}

// outcome is what is compared.
type outcome struct {
	Servers []string
	// Unfit is how many pods of each kind have no node.
	Unfit map[string]int
}

func (o outcome) unfit() (sum int) {
	for _, count := range o.Unfit {
		sum += count
	}
	return sum
}

// question writes files with the workload, and with the fleet as it is now.
func (w *fixture) question(t *testing.T, kinds []kind) (workload, snapshot string) {
	t.Helper()
	var documents bytes.Buffer
	for _, kind := range kinds {
		for i := range kind.count {
			pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: fmt.Sprintf("%s-%d", kind.name, i)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{w.container(kind.asks)}}}
			kind.change(pod)
			w.group.place(&pod.Spec)
			content, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&documents, "---\n%s\n", content)
		}
	}
	workload, snapshot = filepath.Join(t.TempDir(), "workload.yaml"), filepath.Join(t.TempDir(), "fleet.json")
	if err := os.WriteFile(workload, documents.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, code, err := w.plugin(t.Context(), t, "snapshot", snapshot); err != nil || code != 0 {
		t.Fatalf("kubectl metal3 snapshot ended with %d, %v:\n%s", code, err, output)
	}
	return workload, snapshot
}

// predict asks the plugin about a file.
func (w *fixture) predict(t *testing.T, workload, snapshot string) outcome {
	t.Helper()
	output, code, err := w.plugin(t.Context(), t, "what-if", "-f", workload, "-o", "json", "--snapshot", snapshot,
		"--topology-labels", strings.Join(topologyLabels, ","))
	if err != nil || code > 1 {
		t.Fatalf("kubectl metal3 what-if ended with %d, %v:\n%s", code, err, output)
	}
	var list struct {
		Items []struct{ Servers, Unfit []named }
	}
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	return outcomeOf(list.Items[0].Servers, list.Items[0].Unfit)
}

// named is a server or a pod of a prediction.
type named struct{ Name string }

func outcomeOf(servers, unfit []named) outcome {
	predicted := outcome{Servers: []string{}, Unfit: map[string]int{}}
	for _, server := range servers {
		predicted.Servers = append(predicted.Servers, server.Name)
	}
	for _, pod := range unfit {
		name, _, _ := strings.Cut(pod.Name, "-")
		predicted.Unfit[name]++
	}
	slices.Sort(predicted.Servers)
	return predicted
}

// plan creates the pods and waits until Karpenter has decided about each and all NodeClaims are nodes, and for a while until it is as
// predicted. It returns what is open if that does not come.
func (w *fixture) plan(t *testing.T, kinds []kind, predicted outcome) (happened outcome, open string) {
	t.Helper()
	for _, kind := range kinds {
		w.createPods(t, kind.name, kind.count, kind.asks, kind.change)
	}
	w.eventually(t, "kube-scheduler has seen all pods", w.podsAreSeen)
	start, err := w.programs.stop(t.Context(), tenantScheduler)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var decided time.Time
	err = poll.Await(t.Context(), "Karpenter has decided about all pods", func(ctx context.Context) error {
		var err error
		if happened, open, err = w.decisions(ctx, t, kinds); err != nil || open != "" {
			decided = time.Time{}
			return errors.Join(err, errors.New(open))
		}
		if decided.IsZero() {
			decided = time.Now()
		}
		if !cmp.Equal(predicted, happened) && time.Since(decided) <= mindChanges {
			return errors.New("it may change its mind")
		}
		return nil
	})
	if err != nil && open == "" {
		open = err.Error()
	}
	return happened, open
}

// mindChanges is how long Karpenter may take to change its mind, after it has decided about all pods: it plans every ten seconds.
const mindChanges = 25 * time.Second

// decisions are what Karpenter has decided so far, and what is open.
func (w *fixture) decisions(ctx context.Context, t *testing.T, kinds []kind) (now outcome, open string, err error) {
	now = outcome{Servers: slices.Sorted(maps.Keys(w.claimedHosts(ctx, t))), Unfit: map[string]int{}}
	if now.Servers == nil {
		now.Servers = []string{}
	}
	for _, kind := range kinds {
		for i := range kind.count {
			name := fmt.Sprintf("%s-%d", kind.name, i)
			fits, decided, err := w.decision(ctx, name)
			if err != nil {
				return now, "", err
			}
			if !decided {
				return now, "nothing is decided about pod " + name, nil
			}
			if !fits {
				now.Unfit[kind.name]++
			}
		}
	}
	claims, err := w.nodeClaims(ctx)
	for i := range claims {
		if !claims[i].StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			return now, "NodeClaim " + claims[i].Name + " is no node yet", err
		}
	}
	return now, "", err
}

// decision is what the last event on a pod says: Karpenter has a node for it, or it or the provider says why not.
func (w *fixture) decision(ctx context.Context, name string) (fits, decided bool, err error) {
	pod, events := &corev1.Pod{}, &corev1.EventList{}
	if err := w.tenant.Get(ctx, client.ObjectKey{Namespace: w.group.namespace, Name: name}, pod); err != nil {
		return false, false, err
	}
	if err := w.tenant.List(ctx, events, client.InNamespace(w.group.namespace)); err != nil {
		return false, false, err
	}
	var last time.Time
	for _, event := range events.Items {
		if event.InvolvedObject.UID != pod.UID || event.LastTimestamp.Time.Before(last) {
			continue
		}
		switch {
		case event.Reason == "Nominated":
			fits, decided, last = true, true, event.LastTimestamp.Time
		case slices.Contains(refusals, event.Reason),
			event.Reason == "FailedScheduling" && strings.HasPrefix(event.Message, "Failed to schedule pod"):
			fits, decided, last = false, true, event.LastTimestamp.Time
		}
	}
	return fits, decided, nil
}

// refusals are the reasons of the provider's events on pods that get no server.
var refusals = []string{
	explain.ReasonNoServerAvailable, explain.ReasonNoNodeTypeFits, explain.ReasonInsufficientDomainCapacity,
	explain.ReasonQuotaReached, explain.ReasonServerRefused,
}

// plannedTooSoon returns whether a NodeClaim was made before kube-scheduler had seen all pods. Karpenter plans a second after the last.
func (w *fixture) plannedTooSoon(t *testing.T) bool {
	t.Helper()
	claims, err := w.nodeClaims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	if err := w.tenant.List(t.Context(), pods, client.InNamespace(w.group.namespace)); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(claims, func(claim karpv1.NodeClaim) bool {
		return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodScheduled && !condition.LastTransitionTime.Before(&claim.CreationTimestamp)
			})
		})
	})
}

// claimsMade are the NodeClaims, in the order in which they were made, for a reader who asks why it differs.
func (w *fixture) claimsMade(t *testing.T) string {
	t.Helper()
	claims, err := w.nodeClaims(t.Context())
	if err != nil {
		return err.Error()
	}
	slices.SortFunc(claims, func(a, b karpv1.NodeClaim) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var lines []string
	for _, claim := range claims {
		requests, _ := json.Marshal(claim.Spec.Resources.Requests)
		lines = append(lines, fmt.Sprintf("  %s: %s for %s", claim.CreationTimestamp.Format(time.TimeOnly), claim.Status.ProviderID, requests))
	}
	return strings.Join(lines, "\n")
}

// freeAll ends a round.
func (w *fixture) freeAll(t *testing.T, out []string) {
	t.Helper()
	if err := w.deletePods(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.deleteNodeClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range out {
		w.annotateHost(t, name, "")
	}
	w.eventually(t, "all servers are free again", w.leftOver)
	w.eventually(t, "all servers are available again", w.fleetIsReady)
}
