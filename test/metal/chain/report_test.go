// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Those who take the time of a step.
const (
	byUs      = "ours"
	byMetal3  = "Metal3, Ironic"
	byServer  = "the server"
	byCluster = "Kubernetes"
)

// reportSteps shows when each step was reached that a pod had to wait for, since the pod was created, and whose work it was.
// What the server takes from being switched on to being ready is what the same boot takes without us: no part of ours is
// asked in between.
func (w *world) reportSteps(t *testing.T, name string) {
	t.Helper()
	machine := w.machineOf(t, w.nodeOf(t, name))
	claim := ""
	for _, object := range w.journal.list() {
		if found, is := object.(*karpv1.NodeClaim); is && found.Status.ProviderID == machine.Status.ProviderID {
			claim = found.Name
		}
	}
	host, node := machine.Status.HostRef.Name, w.nodeOf(t, name)
	booted, err := os.Stat(filepath.Join(w.dir, "servers", host, "booted"))
	if err != nil {
		t.Fatalf("when server %s has booted, %v", host, err)
	}
	var steps []timedStep
	add := func(what, who, object, step string) {
		at, seen := w.journal.when(object, step)
		if !seen {
			t.Errorf("%s: %s was never %s", what, object, step)
			return
		}
		steps = append(steps, timedStep{what, who, at})
	}
	add("pod is created", "", "Pod "+name, stepSeen)
	add("NodeClaim", byUs, "NodeClaim "+claim, stepSeen)
	add("Machine", byUs, "Machine "+machine.Name, stepSeen)
	add("server "+host+" is claimed", byUs, "BareMetalHost "+host, stepClaimed)
	steps = append(steps, timedStep{"image is written, server boots it", byMetal3, booted.ModTime()})
	add("Node has joined", byServer, "Node "+node, stepSeen)
	add("Node is ready", byServer, "Node "+node, stepReady)
	add("Node advertises GPUs", byServer, "Node "+node, stepAdvertises)
	add("pod runs", byCluster, "Pod "+name, stepRunning)
	w.journal.say("how pod %s came to run:\n%s", name, table(steps))
}

// A timedStep is a step of the way of a pod.
type timedStep struct {
	what, who string
	at        time.Time
}

// table shows steps in the order of their times, and how much of it was whose.
func table(steps []timedStep) string {
	var text strings.Builder
	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(writer, format, args...) } // to memory, which takes everything
	shares := map[string]time.Duration{}
	last := steps[0].at
	for _, step := range steps {
		// What was seen too late took no time: it had to be there for the step before.
		took := max(step.at.Sub(last), 0)
		shares[step.who] += took
		line("%.1fs\t+%.1fs\t%s\t %s\t\n", step.at.Sub(steps[0].at).Seconds(), took.Seconds(), step.who, step.what)
		if step.at.After(last) {
			last = step.at
		}
	}
	for _, who := range []string{byUs, byMetal3, byServer, byCluster} {
		line("\t%.1fs\t%s\t in all\t\n", shares[who].Seconds(), who)
	}
	_ = writer.Flush()
	return text.String()
}

// diagnose shows the last words of all programs, and of the servers that have booted.
func (w *world) diagnose(t *testing.T) {
	t.Helper()
	events := &corev1.EventList{}
	if err := w.tenant.Client.List(t.Context(), events); err == nil {
		for _, event := range events.Items {
			t.Logf("event: %s %s, %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
		}
	}
	for _, pattern := range []string{byUs, byMetal3, byServer, byCluster} {
		files, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			t.Error(err)
		}
		for _, file := range files {
			lines, err := lastLines(file)
			t.Logf("the last of %s (%v):\n%s", file, err, lines)
		}
	}
}
