// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/whatif"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const (
	// planTime is how long a plan may take, including the wait for another plan.
	planTime = 30 * time.Second
	// maxQuestion is the longest question, as a query in a URL, in bytes.
	maxQuestion = 16 << 10
	// maxPods is how many pods the page plans with.
	maxPods = 10_000
)

// bounds limits the pods of a question. Any reader may ask, and all readers would lose the page if a question took
// all memory.
var bounds = whatif.Bounds{Pods: maxPods, Values: 200_000}

// answer is the answer to a question of the form.
type answer struct {
	// Asked are the form's fields, as they were written.
	Asked url.Values
	// Wrong is what is wrong with the question; empty if it was answered.
	Wrong      string
	Prediction *whatif.Prediction
	Rollout    *whatif.Rollout
	// missing are the kinds that planning needs but could not read.
	missing []view.Missing
	// servers and machines are drawn. changes says what becomes of a server, by its namespace and name.
	servers  []view.Server
	machines map[string]view.Machine
	changes  map[string]string
}

// Ask is the kind of the question; empty if none was asked.
func (a *answer) Ask() string { return a.Asked.Get("ask") }

// field returns a field of a question, without spaces around it. The error names the field as the form does.
func (a *answer) field(name, words, example string) (string, error) {
	if value := strings.TrimSpace(a.Asked.Get(name)); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("the field %s is empty: write it, as in %s", words, example)
}

func (a *answer) number(name, words string, most int) (int, error) {
	value, err := a.field(name, words, "2")
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < 1 || number > most {
		return 0, fmt.Errorf("the field %s is %q: it must be a number from 1 to %d", words, value, most)
	}
	return number, nil
}

// changesAsked are the changes of the fleet that a question can ask for.
var changesAsked = map[string]func(*answer) (whatif.Change, error){
	"drain": func(a *answer) (whatif.Change, error) {
		host, err := a.field("host", "Server", "server-07")
		return whatif.Drain(host), err
	},
	"add": func(a *answer) (whatif.Change, error) {
		number, wrong := a.number("number", "Servers", maxPods)
		nodeType, err := a.field("type", "NodeType", "h100-8x")
		return whatif.Add(number, nodeType), cmp.Or(wrong, err)
	},
	"without": func(a *answer) (whatif.Change, error) {
		written, err := a.field("labels", "Labels", "rack=r2")
		if err != nil {
			return nil, err
		}
		selector, err := labels.Parse(written)
		if err != nil || selector.Empty() {
			return nil, fmt.Errorf("the field Labels is %q, which does not select labels: write KEY=VALUE, as in rack=r2", written)
		}
		return whatif.Without(selector), nil
	},
}

// workload returns the pods that the form asks for, in its fields or as YAML.
func (a *answer) workload() ([]corev1.Pod, error) {
	if written := a.Asked.Get("yaml"); strings.TrimSpace(written) != "" {
		pods, err := whatif.Workload(strings.NewReader(written), metav1.NamespaceDefault, nil, bounds)
		if err != nil {
			return nil, fmt.Errorf("reading the YAML, %w", err)
		}
		return pods, nil
	}
	number, err := a.number("pods", "Pods", maxPods)
	if err != nil {
		return nil, err
	}
	needs, err := a.field("needs", "Each needs", "nvidia.com/gpu=8, cpu=16")
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "what-if"}}
	requests := corev1.ResourceList{}
	for need := range strings.SplitSeq(needs, ",") {
		name, written, _ := strings.Cut(strings.TrimSpace(need), "=")
		quantity, err := resource.ParseQuantity(written)
		if err != nil || quantity.Sign() <= 0 || name == "" {
			return nil, fmt.Errorf("the field Each needs has %q: write RESOURCE=QUANTITY, as in nvidia.com/gpu=8", need)
		}
		requests[corev1.ResourceName(name)] = quantity
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}}
	if written := strings.TrimSpace(a.Asked.Get("selector")); written != "" {
		if pod.Spec.NodeSelector, err = labels.ConvertSelectorToLabelsMap(written); err != nil {
			return nil, fmt.Errorf("the field On nodes with is %q: write KEY=VALUE, as in rack=r2", written)
		}
	}
	document, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	return whatif.Workload(bytes.NewReader(document), metav1.NamespaceDefault, &number, bounds)
}

// serveWhatIf answers the question in a URL. The page shows one version and does not follow the fleet.
func (s *Screen) serveWhatIf(w http.ResponseWriter, r *http.Request) {
	v := s.present()
	a := &answer{Asked: r.URL.Query()}
	var err error
	switch {
	case len(r.URL.RawQuery) > maxQuestion:
		a.Asked = url.Values{"ask": {"workload"}}
		err = fmt.Errorf("the question is longer than an address of %d KiB: ask it by kubectl metal3 what-if -f FILE", maxQuestion>>10)
	case a.Ask() != "":
		err = s.plan(r.Context(), v, a)
	}
	if err != nil {
		a.Wrong = err.Error()
	}
	v.mu.Lock()
	shown, err := s.draw(v, page{View: "whatif"}, a)
	v.mu.Unlock()
	status := http.StatusOK
	if a.Wrong != "" {
		status = http.StatusBadRequest
	}
	write(w, shown, err, status)
}

// plan answers a question. It answers one question at a time.
func (s *Screen) plan(ctx context.Context, v *version, a *answer) error {
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	select {
	case s.planning <- struct{}{}:
		defer func() { <-s.planning }()
	case <-ctx.Done():
		return errors.New("another question is being answered: ask again in a moment")
	}
	err := s.predict(ctx, v, a)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("planning takes longer than %s, and was given up: ask for less, or by kubectl metal3 what-if, which takes its time",
			planTime)
	}
	return err
}

func (s *Screen) predict(ctx context.Context, v *version, a *answer) (err error) {
	question := whatif.Question{Topology: s.topology}
	switch change := changesAsked[a.Ask()]; {
	case a.Ask() == "rollout":
		return s.predictRollout(ctx, v, a)
	case a.Ask() == "workload" && v.snapshot.Tenant == nil:
		return whatif.ErrNoTenant // before any pod is built
	case a.Ask() == "workload":
		question.Pods, err = a.workload()
	case change != nil:
		question.Change, err = change(a)
	default:
		err = fmt.Errorf("%q cannot be asked: choose one of the questions below", a.Ask())
	}
	if err != nil {
		return err
	}
	snapshot, err := s.forPlanning(ctx, v, a)
	if err != nil {
		return err
	}
	if a.Prediction, err = whatif.Predict(ctx, snapshot, question); err != nil {
		return err
	}
	after := view.New(a.Prediction.After())
	a.servers, a.changes = compare(v.servers, after.Servers())
	a.machines = machinesOf(after)
	return nil
}

// forPlanning returns the snapshot of a version for the tenant cluster in the question. It adds what planning needs
// and the source does not follow.
func (s *Screen) forPlanning(ctx context.Context, v *version, a *answer) (*view.Snapshot, error) {
	completed, number := *v.snapshot, 0
	if len(v.snapshot.More) > 0 {
		choices := choicesOf(v.snapshot)
		names := strings.Join(slices.Sorted(maps.Keys(choices)), ", ")
		asked, err := a.field("tenant", "TenantCluster", names)
		if err != nil {
			return nil, err
		}
		known := false
		if number, known = choices[asked]; !known {
			return nil, fmt.Errorf("the field TenantCluster is %q: choose one whose cluster was read, as %s", asked, names)
		}
		completed = *v.snapshot.PerTenant()[number]
	}
	if s.complete == nil {
		return &completed, nil
	}
	if completed.Tenant != nil {
		tenant := *completed.Tenant
		completed.Tenant = &tenant
	}
	completed.Missing = nil
	if err := s.complete(ctx, &completed, number); err != nil {
		return nil, err
	}
	a.missing = completed.Missing
	completed.Missing = slices.Concat(v.snapshot.Missing, a.missing)
	return &completed, nil
}

func (s *Screen) predictRollout(ctx context.Context, v *version, a *answer) error {
	nodeType, wrong := a.field("type", "NodeType", "h100-8x")
	image, err := a.field("image", "OSImage", "noble-2")
	if err := cmp.Or(wrong, err); err != nil {
		return err
	}
	snapshot, err := s.forPlanning(ctx, v, a)
	if err != nil {
		return err
	}
	if a.Rollout, err = whatif.PredictRollout(ctx, snapshot, nodeType, image, s.topology); err != nil {
		return err
	}
	a.servers, a.machines, a.changes = v.servers, v.machines, map[string]string{}
	for _, replacement := range a.Rollout.Replacements {
		if replacement.Way != whatif.Stays {
			a.changes[replacement.Server] = string(replacement.Way)
		}
		if replacement.By != "" {
			a.changes[replacement.By] = "taken"
		}
	}
	return nil
}

// compare returns all servers of two fleets, and what becomes of the servers that change.
func compare(before, after []view.Server) (all []view.Server, changes map[string]string) {
	was := make(map[string]*view.Server, len(before))
	for i := range before {
		was[before[i].Key().String()] = &before[i]
	}
	changes = map[string]string{}
	for i := range after {
		now, key := &after[i], after[i].Key().String()
		then := was[key]
		delete(was, key)
		switch {
		case then == nil && now.Machine != "":
			changes[key] = "new, taken"
		case then == nil:
			changes[key] = "new"
		case then.Machine != now.Machine && now.Machine != "":
			changes[key] = "taken"
		case then.State != now.State:
			changes[key] = "was " + string(then.State)
		}
	}
	all = after
	for key, then := range was {
		changes[key] = "gone"
		all = append(all, *then)
	}
	slices.SortFunc(all, view.CompareServers)
	return all, changes
}

// whatIf draws the form, and the answer if there is one.
func (d *drawing) whatIf() error {
	if err := d.add("top", "ask", d); err != nil || d.Answer.Wrong != "" || d.Answer.Ask() == "" {
		return err
	}
	if err := d.add("main", cmp.Or(map[bool]string{true: "rollout"}[d.Answer.Rollout != nil], "prediction"), d); err != nil {
		return err
	}
	drawn, left := d.Answer.servers, 0
	if len(drawn) > maxTiles {
		changing := map[string]bool{}
		for i := range drawn {
			if d.Answer.changes[drawn[i].Key().String()] != "" {
				changing[rackKey(drawn[i])] = true
			}
		}
		drawn = slices.DeleteFunc(slices.Clone(drawn), func(server view.Server) bool { return !changing[rackKey(server)] })
		left = len(d.Answer.servers) - len(drawn)
	}
	return cmp.Or(d.add("main", "would", map[string]any{"Left": left, "Changes": len(d.Answer.changes),
		"Now": d.Answer.Rollout != nil}),
		d.racks(drawn, d.Answer.machines, d.Answer.changes))
}

// Assumes are the assumptions of an answer.
func (d *drawing) Assumes() []string {
	all := []string{}
	if d.Answer.Rollout != nil {
		all = append(all, d.Answer.Rollout.Assumes...)
	} else {
		all = append(all, d.Answer.Prediction.Assumes...)
	}
	for _, missing := range d.Answer.missing {
		all = append(all, missing.String())
	}
	return all
}

// choicesOf returns the numbers of the tenant clusters that were read, by the namespace and name of their
// TenantCluster. It is empty for a single tenant cluster. A tenant cluster whose TenantCluster is unknown is no
// choice.
func choicesOf(snapshot *view.Snapshot) map[string]int {
	choices := map[string]int{}
	if len(snapshot.More) == 0 {
		return choices
	}
	for number, part := range snapshot.PerTenant() {
		if tenant := part.TenantCluster(); tenant != nil {
			choices[client.ObjectKeyFromObject(tenant).String()] = number
		}
	}
	return choices
}

// Tenants are the tenant clusters to choose from.
func (d *drawing) Tenants() []string { return slices.Sorted(maps.Keys(choicesOf(d.snapshot))) }

// Types are the names of the NodeTypes.
func (d *drawing) Types() (all []string) {
	for i := range d.snapshot.Management.NodeTypes {
		all = append(all, d.snapshot.Management.NodeTypes[i].Name)
	}
	slices.Sort(all)
	return all
}

// In is how far away a moment is, in words.
func (d *drawing) In(moment *metav1.Time) string {
	switch {
	case moment == nil:
		return "–"
	case moment.After(d.Now):
		return "in " + duration.HumanDuration(moment.Sub(d.Now))
	}
	return "now"
}

// Took formats a number of seconds.
func (d *drawing) Took(seconds int64) string {
	if seconds == 0 {
		return "–"
	}
	return duration.HumanDuration(time.Duration(seconds) * time.Second)
}

// Some lists the first names, and says how many more there are.
func (d *drawing) Some(names []string) string { return conditions.List(names, maxNames) }
