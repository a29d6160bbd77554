// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// lastWords is how many lines of each log are shown when the test fails.
const lastWords = 30

// Those who take the time of a step.
const (
	byUs      = "ours"
	byMetal3  = "Metal3, Ironic"
	byServer  = "the server"
	byCluster = "Kubernetes"
)

// A timeline is the steps of the way of a server or a pod, in the order in which they depend on each other.
type timeline struct{ steps []timedStep }

type timedStep struct {
	who, what string
	at        time.Time
}

func (l *timeline) add(who, what string, at time.Time) {
	l.steps = append(l.steps, timedStep{who: who, what: what, at: at})
}

// took returns how long each step took. What was seen too late took no time: it was there for the step after it.
func (l *timeline) took() map[string]time.Duration {
	took := map[string]time.Duration{}
	last := l.steps[0].at
	for _, step := range l.steps {
		took[step.what] = max(step.at.Sub(last), 0)
		if step.at.After(last) {
			last = step.at
		}
	}
	return took
}

// addSeen adds the time at which an object was first seen in a state.
func (w *world) addSeen(t *testing.T, l *timeline, who, what, object, step string) {
	t.Helper()
	at, seen := w.journal.when(object, step)
	if !seen {
		t.Errorf("%s: %s was never %s", what, object, step)
		return
	}
	l.add(who, what, at)
}

// addBoot adds the steps of a server from when Metal3 was asked for it until it is a Node that can take a pod.
func (w *world) addBoot(t *testing.T, l *timeline, host, node string) {
	t.Helper()
	booted, err := os.Stat(filepath.Join(w.dir, "servers", host, "booted"))
	if err != nil {
		t.Fatalf("when server %s has booted, %v", host, err)
	}
	l.add(byMetal3, "image is written, server boots it", booted.ModTime())
	w.addSeen(t, l, byServer, "Node has joined", "Node "+node, stepSeen)
	w.addSeen(t, l, byServer, "Node is ready", "Node "+node, stepReady)
	w.addSeen(t, l, byServer, "Node advertises GPUs", "Node "+node, stepAdvertises)
}

// reportSteps shows when each step was reached that a pod had to wait for, since the pod was created, whose work it was, and
// how long the same step took for a server that was installed without us, if there is one to compare with.
func (w *world) reportSteps(t *testing.T, name string, bare *timeline) {
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
	w.addSeen(t, l, "", "pod is created", "Pod "+name, stepSeen)
	w.addSeen(t, l, byUs, "NodeClaim", "NodeClaim "+claim, stepSeen)
	w.addSeen(t, l, byUs, "Machine", "Machine "+machine.Name, stepSeen)
	w.addSeen(t, l, byUs, "server is claimed", "Machine "+machine.Name, stepClaimed)
	w.addSeen(t, l, byUs, "Metal3 is asked for it", "Machine "+machine.Name, stepAsked)
	w.addBoot(t, l, machine.Status.HostRef.Name, node)
	w.addSeen(t, l, byCluster, "pod is bound to it", "Pod "+name, stepBound)
	w.addSeen(t, l, byServer, "pod runs", "Pod "+name, stepRunning)
	w.journal.say("how pod %s came to run on server %s, in seconds:\n%s", name, machine.Status.HostRef.Name, l.table(bare))
}

// table shows the steps beside those of another timeline, and how much of the time was whose.
func (l *timeline) table(bare *timeline) string {
	var text strings.Builder
	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(writer, format, args...) } // to memory, which takes everything
	line("at\ttook\twithout us\twhose\t step\n")
	took, without := l.took(), map[string]time.Duration{}
	if bare != nil {
		without = bare.took()
	}
	shares, bareShares := map[string]time.Duration{}, map[string]time.Duration{}
	seconds := func(of map[string]time.Duration, what string) string {
		if duration, ok := of[what]; ok {
			return fmt.Sprintf("%.1f", duration.Seconds())
		}
		return "-"
	}
	for _, step := range l.steps {
		shares[step.who] += took[step.what]
		if duration, ok := without[step.what]; ok {
			bareShares[step.who] += duration
		}
		line("%.1f\t%s\t%s\t%s\t %s\n", step.at.Sub(l.steps[0].at).Seconds(), seconds(took, step.what), seconds(without, step.what), step.who,
			step.what)
	}
	for _, who := range []string{byUs, byMetal3, byServer, byCluster} {
		line("\t%s\t%s\t%s\t in all\n", seconds(shares, who), seconds(bareShares, who), who)
	}
	_ = writer.Flush()
	return text.String()
}

// diagnose shows the last words of all programs, and of the servers that have booted.
func (w *world) diagnose(t *testing.T) {
	t.Helper()
	events := &corev1.EventList{}
	if err := w.tenant.Client.List(context.Background(), events); err == nil {
		for _, event := range events.Items {
			t.Logf("event: %s %s, %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
		}
	}
	for _, pattern := range w.logs() {
		files, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			t.Error(err)
		}
		for _, file := range files {
			lines, err := process.LastLines(file, lastWords)
			t.Logf("the last of %s (%v):\n    %s", file, err, strings.Join(lines, "\n    "))
		}
	}
}

// logs are the files of all programs and servers, as patterns.
func (w *world) logs() []string {
	return []string{
		"log/*.log", "servers/*/console.log", "servers/*/disk/upper/var/log/cloud-init-output.log",
		managementNode + "/console.log", managementNode + "/disk/upper/var/log/cloud-init-output.log",
	}
}
