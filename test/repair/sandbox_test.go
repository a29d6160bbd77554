// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stmcginnis/gofish/schemas"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/repairs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// training is a pod on a sandbox of two servers, either of which it fills. Each has a BMC.
type training struct {
	management, tenant client.Client
	servers            map[string]*server
	// What follows is where the pod runs.
	pod       *corev1.Pod
	nodeClaim *karpv1.NodeClaim
	host      string
}

// TestNVSentinelAndTenant: NVSentinel's labels are a client's writes, and all else is by the programs. The reboot label is one reset, and
// goes. The terminate label has the server replaced, and so has the tenant's report, and a fault by core's former repair, which reboots
// nothing, also not for the conditions that the newer one reboots for. The servers are held, with the words.
func TestNVSentinelAndTenant(t *testing.T) {
	system.Only(t)
	w := newTraining(t, "--feature-gates=NodeRepair=true", "--fault-toleration=1s")
	pod, node, first := w.pod.UID, w.pod.Spec.NodeName, w.host
	boot := w.bootID(t)
	w.labelNode(t, repairs.DefaultLabels().Reboot)
	poll.Eventually(t, "the reboot is over", func(ctx context.Context) error {
		return cmp.Or(w.rebooted(ctx), w.unlabelled(ctx, repairs.DefaultLabels().Reboot))
	})
	w.mustHaveResets(t, first, 1)
	if w.find(t); w.pod.UID != pod || w.host != first || w.bootID(t) == boot {
		t.Errorf("after the reboot pod %s runs on %s, which has boot %s; want %s, %s and another boot than before",
			w.pod.UID, w.host, w.bootID(t), pod, first)
	}

	w.labelNode(t, repairs.DefaultLabels().Terminate)
	w.mustMove(t, "node "+node+" has the label "+repairs.DefaultLabels().Terminate)
	w.endQuarantine(t, first)

	const words = "GPU 3 is half as fast as the others"
	w.patch(t, w.tenant, w.nodeClaim, func() {
		w.nodeClaim.Annotations[v1alpha1.ReportIssueAnnotationKey] = words
	})
	w.mustMove(t, words)
	if w.host != first {
		t.Errorf("the pod runs on %s, want %s", w.host, first)
	}

	for other := range w.servers {
		if other != first {
			w.endQuarantine(t, other)
		}
	}
	w.breakMemory(t)
	w.mustMove(t, brokenMemory)
	w.mustHaveResets(t, first, 1)
}

// brokenMemory is the message of a condition for which core's newer repair reboots a server.
const brokenMemory = "row remapping has failed"

// breakMemory plays NVSentinel: it reports a fault of the pod's node.
func (w *training) breakMemory(t *testing.T) {
	t.Helper()
	node := &corev1.Node{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: w.pod.Spec.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	before := node.DeepCopy()
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "GpuMemWatch", Status: corev1.ConditionTrue,
		Reason: "GpuMemWatchIsNotHealthy", Message: brokenMemory, LastTransitionTime: metav1.Now()})
	if err := w.tenant.Status().Patch(t.Context(), node, client.StrategicMergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// endQuarantine plays the operator, who has repaired a server.
func (w *training) endQuarantine(t *testing.T, server string) {
	t.Helper()
	host := hostOf(t.Context(), t, w.management, hostKeyOf(server))
	w.patch(t, w.management, host, func() { delete(host.Annotations, v1alpha1.QuarantinedAnnotationKey) })
}

// TestEscalation: a fault outlasts two reboots by core's newer repair, which replaces the server then.
func TestEscalation(t *testing.T) {
	system.Only(t)
	w := newTraining(t, "--feature-gates=NodeRepair=true", "--legacy-node-repair=false", "--fault-toleration=1s")
	sick := w.host
	w.breakMemory(t)
	for reboots := 1; reboots <= 2; reboots++ {
		poll.Eventually(t, fmt.Sprintf("the server is reset %d times", reboots), func(context.Context) error {
			if got := w.servers[sick].count(); got != reboots {
				return fmt.Errorf("%d times", got)
			}
			return nil
		})
		poll.Eventually(t, "core sees the reboot", w.rebooted)
	}
	w.mustMove(t, brokenMemory)
	w.mustHaveResets(t, sick, 2)
}

// newTraining starts a sandbox, and has the pod run.
func newTraining(t *testing.T, providerArgs ...string) *training {
	t.Helper()
	config := sandbox.Config{Dir: filepath.Join(t.TempDir(), "sandbox"), ProviderArgs: providerArgs,
		Binaries: cluster.Binaries{filepath.Join("..", "..", "bin")}}
	w := &training{servers: map[string]*server{"gpu-1": {}, "gpu-2": {}}}
	whole := env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")
	for name := range w.servers {
		config.Fleet = append(config.Fleet, fleet.Server{Name: name, Capacity: whole,
			Labels: map[string]string{"gpu-model": "h100", "gpu-count": "8", "datacenter": "us-east-1"}})
	}
	box, err := sandbox.Up(t.Context(), config)
	if err != nil {
		t.Fatalf("starting a sandbox (run `make tools build` first), %v", err)
	}
	t.Cleanup(box.Close)
	if w.management, err = client.New(box.ManagementConfig(), client.Options{Scheme: env.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if w.tenant, err = client.New(box.TenantConfig(), client.Options{Scheme: env.Scheme()}); err != nil {
		t.Fatal(err)
	}
	for name, server := range w.servers {
		server.boot = func() { box.Reset(name) }
		playReboots(t, w.management, hostKeyOf(name), server)
	}
	if _, err := examples.Apply(t.Context(), w.management, examples.ManagementFile); err != nil {
		t.Fatal(err)
	}
	if _, err := examples.Apply(t.Context(), w.tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "training"}
	if err := w.tenant.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "training"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/main:1",
					Resources: corev1.ResourceRequirements{Limits: env.Resources("nvidia.com/gpu", "8")}}}}}},
	}); err != nil {
		t.Fatal(err)
	}
	w.find(t)
	return w
}

func hostKeyOf(server string) client.ObjectKey {
	return client.ObjectKey{Namespace: sandbox.HostNamespace, Name: server}
}

// find waits until the pod runs, on a node that core has initialized, and finds out where that is.
func (w *training) find(t *testing.T) {
	t.Helper()
	poll.Eventually(t, "the pod runs", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := w.tenant.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning || !pods.Items[0].DeletionTimestamp.IsZero() {
			return fmt.Errorf("there are %d pods, %+v", len(pods.Items), pods.Items)
		}
		w.pod = &pods.Items[0]
		claims := &karpv1.NodeClaimList{}
		if err := w.tenant.List(ctx, claims); err != nil {
			return err
		}
		for i := range claims.Items {
			claim := &claims.Items[i]
			if claim.Status.NodeName == w.pod.Spec.NodeName && claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
				w.nodeClaim = claim
				_, w.host, _, _ = v1alpha1.ParseProviderID(claim.Status.ProviderID)
				return nil
			}
		}
		return fmt.Errorf("no NodeClaim of node %s is initialized", w.pod.Spec.NodeName)
	})
}

// mustMove waits until the pod runs on the other server, and the one before is free and quarantined with the words.
func (w *training) mustMove(t *testing.T, words string) {
	t.Helper()
	left, claim := w.host, w.nodeClaim.Name
	poll.Eventually(t, "server "+left+" is free, and held", func(ctx context.Context) error {
		host := hostOf(ctx, t, w.management, hostKeyOf(left))
		quarantine := host.Annotations[v1alpha1.QuarantinedAnnotationKey]
		for _, part := range []string{v1alpha1.ReasonNodeUnhealthy, words, claim} {
			if !strings.Contains(quarantine, part) {
				return fmt.Errorf("its quarantine is %q, without %q", quarantine, part)
			}
		}
		if host.Spec.ConsumerRef != nil || host.Status.Provisioning.State != bmov1alpha1.StateAvailable {
			return fmt.Errorf("its consumer is %v, and it is %s", host.Spec.ConsumerRef, host.Status.Provisioning.State)
		}
		return nil
	})
	if w.find(t); w.host == left {
		t.Errorf("the pod runs on server %s again, by NodeClaim %s", left, w.nodeClaim.Name)
	}
}

// labelNode plays NVSentinel: it puts a label on the pod's node.
func (w *training) labelNode(t *testing.T, label string) {
	t.Helper()
	node := &corev1.Node{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: w.pod.Spec.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	key, value, _ := strings.Cut(label, "=")
	w.patch(t, w.tenant, node, func() { node.Labels[key] = value })
}

func (*training) patch(t *testing.T, c client.Client, object client.Object, change func()) {
	t.Helper()
	before := object.DeepCopyObject().(client.Object)
	change()
	if err := c.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// unlabelled returns an error while the pod's node has the label, or the note of the boot in which it got that.
func (w *training) unlabelled(ctx context.Context, label string) error {
	node := &corev1.Node{}
	if err := w.tenant.Get(ctx, client.ObjectKey{Name: w.pod.Spec.NodeName}, node); err != nil {
		return err
	}
	key, _, _ := strings.Cut(label, "=")
	_, labelled := node.Labels[key]
	if _, begun := node.Annotations[v1alpha1.RebootBootIDAnnotationKey]; labelled || begun {
		return fmt.Errorf("the node has labels %v and annotations %v", node.Labels, node.Annotations)
	}
	return nil
}

// rebooted returns an error until core says that the last reboot has succeeded.
func (w *training) rebooted(ctx context.Context) error {
	if err := w.tenant.Get(ctx, client.ObjectKeyFromObject(w.nodeClaim), w.nodeClaim); err != nil {
		return err
	}
	switch reboot := w.nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRebooting); {
	case reboot == nil:
		return errors.New("no reboot is requested")
	case reboot.Reason != karpv1.RebootReasonSucceeded:
		return fmt.Errorf("the reboot is %s: %s", reboot.Reason, reboot.Message)
	}
	return nil
}

func (w *training) bootID(t *testing.T) string {
	t.Helper()
	node := &corev1.Node{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: w.pod.Spec.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	return node.Status.NodeInfo.BootID
}

// mustHaveResets checks what the BMC of a server was asked for, and that the other one was asked for nothing.
func (w *training) mustHaveResets(t *testing.T, sick string, want int) {
	t.Helper()
	for name, server := range w.servers {
		resets, forced := server.count(), 0
		for _, kind := range server.resets {
			if kind == schemas.ForceRestartResetType {
				forced++
			}
		}
		if name != sick && resets != 0 || name == sick && (resets != want || forced != want) {
			t.Errorf("the BMC of %s has served %v; %s is sick, and is to be reset %d times", name, server.resets, sick, want)
		}
	}
}
