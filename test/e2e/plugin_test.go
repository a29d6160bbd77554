// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// kubectl finds the plugin in the PATH, and it says what the clusters say: of a pod that runs, of one that never can, and of the servers.
func TestPlugin(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.createPod(t, "sixteen-gpus", resources("cpu", "4", gpu, "16"))
	w.untilRuns(t, "one-gpu")
	machine := w.machineOf(t, "one-gpu")

	for _, tc := range []struct {
		arguments []string
		code      int
		want      []string
	}{
		{[]string{"explain", "pod", w.group.namespace + "/one-gpu"}, 0,
			[]string{"is Running on node " + machine.Name, "Machine tenant-a/" + machine.Name + " is Joined"}},
		{[]string{"explain", "pod", w.group.namespace + "/sixteen-gpus"}, 1,
			[]string{"no NodeType fits", "a100-4x: too small: asks nvidia.com/gpu 16, has 4"}},
		{[]string{"explain", "host", machine.Status.HostRef.Name}, 0, []string{"is Joined, as Machine tenant-a/" + machine.Name}},
		{[]string{"hosts", "--state", "joined", "-o", "name"}, 0, []string{"baremetalhost.metal3.io/" + machine.Status.HostRef.Name}},
		{[]string{"machines"}, 0, []string{machine.Name}},
		{[]string{"capacity"}, 0, []string{"a100-4x", "tenant-a/tenant-a"}},
		{[]string{"timeline", "machine", machine.Name}, 0, []string{"from the claim to the node"}},
		{[]string{"report", "--from", "1h"}, 0, []string{"tenant-a/tenant-a"}},
	} {
		w.says(t, tc.code, tc.want, tc.arguments...)
	}
}

// says runs kubectl metal3 until it says all texts and ends with that exit code.
func (w *fixture) says(t *testing.T, code int, texts []string, arguments ...string) {
	t.Helper()
	command := "kubectl metal3 " + strings.Join(arguments, " ")
	w.eventually(t, command+" says it", func(ctx context.Context) (string, error) {
		output, ended, err := w.plugin(ctx, t, arguments...)
		if err != nil {
			return "", err
		}
		if missing := containsAll(output, texts...); missing != "" || ended != code {
			return fmt.Sprintf("it ended with %d and does not say %q:\n%s", ended, missing, output), nil
		}
		t.Logf("%s\n%s", command, output)
		return "", nil
	})
}

// What the verbs say happens: the manager keeps servers out of the pool and takes them back, and reboots and switches servers.
func TestPluginVerbs(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	a100 := func(name string) {
		w.createPods(t, name, 1, resources("cpu", "4", gpu, "4"), func(pod *corev1.Pod) {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: "a100-4x"}
		})
	}
	a100("first")
	w.untilRuns(t, "first-0")
	machine := w.machineOf(t, "first-0")
	used := machine.Status.HostRef.Name
	free := map[string]string{"server-03": "server-04", "server-04": "server-03"}[used]

	w.says(t, 0, []string{"server metal3-system/" + free + " is in quarantine: GPU 3 falls off the bus"}, "quarantine", free, "--reason",
		"GPU 3 falls off the bus")
	t.Cleanup(func() { w.unquarantine(t, free) })
	if annotation, err := w.quarantine(t.Context(), free); err != nil || annotation != "GPU 3 falls off the bus" {
		t.Errorf("the reason of the quarantine is %q, error %v", annotation, err)
	}
	w.says(t, 1, []string{"server metal3-system/" + free, "is quarantined"}, "explain", "host", free)
	a100("second")
	w.says(t, 1, []string{"no server is available for it", "1 claimed", "1 quarantined", free + " (", "is quarantined"}, "explain", "pod",
		w.group.namespace+"/second-0")

	w.says(t, 0, []string{"is in maintenance: DIMM 3", "node " + machine.Status.NodeName + ", keeps it"}, "maintenance", used, "--reason",
		"DIMM 3")
	w.says(t, 0, []string{"removed from server metal3-system/" + used + ": karpenter.metal3.io/maintenance (DIMM 3)", "is Joined"}, "return",
		used)
	w.says(t, 0, []string{"removed from server metal3-system/" + free + ": karpenter.metal3.io/quarantined"}, "return", free)
	w.untilRuns(t, "second-0")
	if got := w.machineOf(t, "second-0").Status.HostRef.Name; got != free {
		t.Errorf("the pod runs on %s, want the released server %s", got, free)
	}

	w.says(t, 2, []string{"node " + machine.Status.NodeName + " runs on server " + used + ", and this reboots it: confirm it by --yes"},
		"reboot", machine.Name)
	w.says(t, 0, []string{"Metal3 will be told to reboot the server of Machine tenant-a/" + machine.Name}, "reboot", machine.Name, "--yes",
		"--reason", "GPU driver hangs")
	now := &v1alpha1.Machine{}
	w.eventually(t, "Metal3 has been told to reboot it", func(ctx context.Context) (string, error) {
		if err := w.management.Get(ctx, client.ObjectKeyFromObject(machine), now); err != nil {
			return "", err
		}
		if _, is := now.Annotations[v1alpha1.RebootAnnotationKey]; is || now.Status.Power == nil || now.Status.Power.LastReboot == nil {
			return fmt.Sprintf("annotations %v, status.power %+v", now.Annotations, now.Status.Power), nil
		}
		return "", nil
	})
	if got := now.Annotations[v1alpha1.ReasonAnnotationKey]; got != "GPU driver hangs" {
		t.Errorf("the reason on the Machine is %q", got)
	}
	w.says(t, 2, []string{"and this switches it off: confirm it by --yes"}, "power", machine.Name, "off")
	for _, state := range []string{"off", "on"} {
		w.says(t, 0, []string{"spec.power.state of Machine tenant-a/" + machine.Name}, "power", machine.Name, state, "--yes", "--reason", "heat")
		w.eventually(t, "its server is "+state, func(ctx context.Context) (string, error) {
			host := &bmov1alpha1.BareMetalHost{}
			err := w.management.Get(ctx, client.ObjectKey{Namespace: hostNamespace, Name: used}, host)
			if err == nil && (host.Spec.Online != (state == "on") || host.Status.PoweredOn != host.Spec.Online) {
				return fmt.Sprintf("spec.online %v, status.poweredOn %v", host.Spec.Online, host.Status.PoweredOn), nil
			}
			return "", err
		})
	}
}

// explain finds the cause of each of these, and the exit code says that something is wrong.
func TestPluginExplains(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	create := func(name, gpus string, change func(*corev1.Pod)) string {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
			Spec: corev1.PodSpec{Containers: []corev1.Container{w.container(resources("cpu", "4", gpu, gpus))}}}
		w.group.place(&pod.Spec)
		if change != nil {
			change(pod)
		}
		if err := w.tenant.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		return w.group.namespace + "/" + name
	}
	explains := func(kind, name string, texts ...string) {
		t.Helper()
		w.says(t, 1, texts, "explain", kind, name)
	}
	annotate := func(server, key, value string) {
		w.editHost(t, server, func(host *bmov1alpha1.BareMetalHost) { host.Annotations[key] = value })
		t.Cleanup(func() { w.editHost(t, server, func(host *bmov1alpha1.BareMetalHost) { delete(host.Annotations, key) }) })
	}
	create("runs", "4", nil)
	w.untilRuns(t, "runs")

	explains("pod", create("too-big", "16", nil), "no NodeType fits", "h100-8x: too small: asks nvidia.com/gpu 16, has 8")
	explains("pod", create("wrong-rack", "4", func(pod *corev1.Pod) { pod.Spec.NodeSelector["rack"] = "rack-z" }),
		"a100-4x, h100-8x: does not match nodeSelector/affinity rack In [rack-z]")
	explains("pod", create("gated", "4", func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/budget"}}
	}), "the scheduling gate example.com/budget holds it")
	explains("host", "server-06", "matches no NodeType")
	annotate("server-05", v1alpha1.MaintenanceAnnotationKey, "DIMM 3")
	explains("host", "server-05", "is in maintenance")
	annotate("server-01", v1alpha1.LastTenantAnnotationKey, "tenant-b")
	explains("host", "server-01", "was not cleaned after its last tenant", "erase its disks")
	annotate("server-02", bmov1alpha1.PausedAnnotation, "")
	explains("host", "server-02", "is paused")
	w.failHost(t, "server-02", bmov1alpha1.PowerManagementError, "the BMC does not answer")
	t.Cleanup(func() { w.failHost(t, "server-02", "", "") })
	explains("host", "server-02", "is in error (power management error): the BMC does not answer")
	explains("nodetype", "h100-8x", "2 servers match", "server-01", "server-02")
	explains("pod", create("none-free", "8", nil), "no server is available for it", "server-01", "was not cleaned", "server-02", "is in error")

	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "explicit"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "missing"}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	if err := w.tenant.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.remove(t, w.tenant, pool) })
	explains("pod", create("no-class", "4", func(pod *corev1.Pod) { pod.Spec.NodeSelector[karpv1.NodePoolLabelKey] = pool.Name }),
		"no NodePool can have a node for it", "NodePool explicit: it is not ready")

	w.quota(t, v1alpha1.Quota{Servers: ptr.To(int64(1))})
	waits := create("waits", "4", nil)
	explains("pod", waits, "TenantCluster tenant-a/tenant-a has 1 servers and its spec.quota.servers is 1")
	limited := &karpv1.NodePool{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: "default"}, limited); err != nil {
		t.Fatal(err)
	}
	before := limited.DeepCopy()
	limited.Spec.Limits = karpv1.Limits(resources(gpu, "1"))
	if err := w.tenant.Patch(t.Context(), limited, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		after := limited.DeepCopy()
		after.Spec.Limits = before.Spec.Limits
		if err := w.tenant.Patch(context.Background(), after, client.MergeFrom(limited)); err != nil {
			t.Error(err)
		}
	})
	explains("pod", waits, "NodePool default: resource usage exceeds limit")
}

// A provider that does nothing is named by the plugin and the manager, before anything else about a pod that waits for it, until it is
// back. The manager starts again and finds the silence recorded, so that nobody waits until it has listened for minutes.
func TestPluginNamesSilentProvider(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	const silent = "the tenant's provider has not been heard of since "
	cluster := &v1alpha1.TenantCluster{}
	untilReady := func(reason string) {
		t.Helper()
		w.eventually(t, "the TenantCluster has the reason "+reason, func(ctx context.Context) (string, error) {
			err := w.management.Get(ctx, client.ObjectKey{Namespace: tenantNamespace, Name: tenantNamespace}, cluster)
			ready := conditions.Find(cluster.Status.Conditions, v1alpha1.ConditionReady)
			if err == nil && (ready.Reason != reason || cluster.Status.ProviderRenewTime == nil) {
				return fmt.Sprintf("Ready is %+v, renewed %v", ready, cluster.Status.ProviderRenewTime), nil
			}
			return "", err
		})
	}
	untilReady(v1alpha1.ReasonIdentified)
	resume := w.stop(t, sandboxes.ProviderName)
	resumeManager := w.stop(t, sandboxes.ManagerName)
	w.eventually(t, "the silence is recorded", func(ctx context.Context) (string, error) {
		if err := w.management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return "", err
		}
		before := cluster.DeepCopy()
		conditions.SetReady(&cluster.Status.Conditions, metav1.Condition{Status: metav1.ConditionUnknown,
			Reason: v1alpha1.ReasonProviderSilent}, cluster.Generation, metav1.Now())
		return "", w.management.Status().Patch(ctx, cluster, client.MergeFrom(before))
	})
	resumeManager()
	w.eventually(t, "the manager says it, too", func(ctx context.Context) (string, error) {
		err := w.management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
		if ready := conditions.Find(cluster.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, silent) {
			return fmt.Sprintf("Ready is %+v", ready), err
		}
		return "", err
	})
	w.createPod(t, "waits", resources("cpu", "4", gpu, "1"))
	w.says(t, 1, []string{"is Pending\n", `is blocked: "` + silent}, "explain", "pod", w.group.namespace+"/waits")
	w.says(t, 1, []string{silent}, "issues")
	resume()
	untilReady(v1alpha1.ReasonIdentified)
	w.untilRuns(t, "waits")
}

// plugin runs kubectl metal3 on both clusters, and returns its exit code.
func (w *fixture) plugin(ctx context.Context, t *testing.T, arguments ...string) (output string, code int, err error) {
	t.Helper()
	path, err := binary("kubectl-metal3")
	if err != nil {
		return "", 0, err
	}
	arguments = append([]string{"metal3", "--kubeconfig", w.managementKubeconfig, "--tenant-kubeconfig", w.tenantKubeconfig}, arguments...)
	command := exec.CommandContext(ctx, kubectlPath(t), arguments...)
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(path)+string(os.PathListSeparator)+os.Getenv("PATH"))
	content, err := command.CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ctx.Err() == nil {
		return string(content), ended.ExitCode(), nil
	}
	return string(content), 0, err
}
