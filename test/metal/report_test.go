// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// The parts of the system that a step is attributed to.
const (
	ownerOurs    = "ours"
	ownerMetal3  = "Metal3, Ironic"
	ownerServer  = "the server"
	ownerCluster = "Kubernetes"
)

// A timeline has the steps of a server or a pod, in the order in which they depend on each other.
type timeline struct{ steps []timedStep }

type timedStep struct {
	owner, what string
	time        time.Time
}

func (l *timeline) add(owner, what string, moment time.Time) {
	l.steps = append(l.steps, timedStep{owner: owner, what: what, time: moment})
}

// took returns how long each step took. A step that was seen after the next one took no time.
func (l *timeline) took() map[string]time.Duration {
	took := map[string]time.Duration{}
	last := l.steps[0].time
	for _, step := range l.steps {
		took[step.what] = max(step.time.Sub(last), 0)
		if step.time.After(last) {
			last = step.time
		}
	}
	return took
}

// addReached adds the time at which an object was first seen in a state.
func (w *stackFixture) addReached(t *testing.T, l *timeline, owner, what, object, step string) {
	t.Helper()
	moment, seen := w.journal.when(object, step)
	if !seen {
		t.Errorf("%s: %s was never %s", what, object, step)
		return
	}
	l.add(owner, what, moment)
}

// addBoot adds the steps of a server from the request to Metal3 until its Node can run a pod.
func (w *stackFixture) addBoot(t *testing.T, l *timeline, host, node string) {
	t.Helper()
	booted, err := os.Stat(filepath.Join(w.dir, "servers", host, "booted"))
	if err != nil {
		t.Fatalf("when server %s has booted, %v", host, err)
	}
	l.add(ownerMetal3, "image is written, server boots it", booted.ModTime())
	w.addReached(t, l, ownerServer, "Node has joined", "Node "+node, stepObserved)
	w.addReached(t, l, ownerServer, "Node is ready", "Node "+node, stepReady)
	w.addReached(t, l, ownerServer, "Node advertises GPUs", "Node "+node, stepAdvertises)
}

// reportSteps prints when a pod reached each step, which part of the system took the time, and how long the step took
// on the server that Metal3 installed alone, if there is one.
func (w *stackFixture) reportSteps(t *testing.T, name string, bare *timeline) {
	t.Helper()
	node := w.nodeOf(t, name)
	machine := w.machineOf(t, node)
	claim := ""
	for _, object := range w.journal.list() {
		if found, is := object.(*karpv1.NodeClaim); is && found.Status.ProviderID == machine.Status.ProviderID {
			claim = found.Name
		}
	}
	l := &timeline{}
	w.addReached(t, l, "", "pod is created", "Pod "+name, stepObserved)
	w.addReached(t, l, ownerOurs, "NodeClaim", "NodeClaim "+claim, stepObserved)
	w.addReached(t, l, ownerOurs, "Machine", "Machine "+machine.Name, stepObserved)
	w.addReached(t, l, ownerOurs, "server is claimed", "Machine "+machine.Name, stepClaimed)
	w.addReached(t, l, ownerOurs, "Metal3 is asked for it", "Machine "+machine.Name, stepAsked)
	w.addBoot(t, l, machine.Status.HostRef.Name, node)
	w.addReached(t, l, ownerCluster, "pod is bound to it", "Pod "+name, stepBound)
	w.addReached(t, l, ownerServer, "pod runs", "Pod "+name, stepRunning)
	w.logf("how pod %s came to run on server %s, in seconds:\n%s", name, machine.Status.HostRef.Name, l.table(bare))
}

// table prints the steps beside those of another timeline, and the time by part of the system.
func (l *timeline) table(bare *timeline) string {
	var text strings.Builder
	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(writer, format, args...) } // a write to memory does not fail
	line("at\ttook\tMetal3 alone\tpart\t step\n")
	took, without := l.took(), map[string]time.Duration{}
	if bare != nil {
		without = bare.took()
	}
	shares, bareShares := map[string]time.Duration{}, map[string]time.Duration{}
	seconds := func(durations map[string]time.Duration, what string) string {
		if duration, ok := durations[what]; ok {
			return fmt.Sprintf("%.1f", duration.Seconds())
		}
		return "-"
	}
	for _, step := range l.steps {
		shares[step.owner] += took[step.what]
		if duration, ok := without[step.what]; ok {
			bareShares[step.owner] += duration
		}
		line("%.1f\t%s\t%s\t%s\t %s\n", step.time.Sub(l.steps[0].time).Seconds(), seconds(took, step.what), seconds(without, step.what),
			step.owner, step.what)
	}
	for _, owner := range []string{ownerOurs, ownerMetal3, ownerServer, ownerCluster} {
		line("\t%s\t%s\t%s\t in all\n", seconds(shares, owner), seconds(bareShares, owner), owner)
	}
	_ = writer.Flush()
	return text.String()
}
