// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

func TestServerRunsPod(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w := newFixture(t)
	w.startCluster(ctx, t)
	program := buildCommand(t, "./cmd/boot-server")
	before := w.leftovers(t)
	w.install(t, w.userData(ctx, t))
	since := stopwatch(t)

	server := w.turnOn(t, program)
	node := w.awaitNode(ctx, t, server)
	since("Ready")
	w.checkJoined(t, node, imageSum)
	// hardware.json applies, not the machine's hardware.
	if got := node.Status.Capacity; got.Cpu().Value() != 96 || got.Memory().String() != "768Gi" {
		t.Errorf("the Node has %s processors and memory of %s, want 96 and 768Gi, as in hardware.json", got.Cpu(), got.Memory())
	}

	w.createPod(ctx, t, "steady", nil)
	w.createPod(ctx, t, "work", oneGPU)
	w.awaitPod(ctx, t, server, "work")
	since("pod runs")
	w.awaitPod(ctx, t, server, "steady")
	w.checkLog(ctx, t, "work")

	// A power cut: the disk and the Node stay.
	w.turnOff(ctx, t, server)
	since("off")
	checkNothingLeft(t, before, w.leftovers(t))
	server = w.turnOn(t, program)
	w.await(ctx, t, server, "pod steady to be started again", func(ctx context.Context) error {
		current, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "steady", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if statuses := current.Status.ContainerStatuses; len(statuses) != 1 || statuses[0].RestartCount == 0 || !statuses[0].Ready {
			return &notYet{current.Status.String()}
		}
		return nil
	})
	since("pod runs again")
	// A kubelet that starts does not wait for its device plugins: pods with devices fail, and their owners replace
	// them.
	w.createPod(ctx, t, "more-work", oneGPU)
	w.awaitPod(ctx, t, server, "more-work")
	since("pod with an accelerator runs again")

	// The rack is killed, together with the program that cleans up.
	w.kill(ctx, t, server)
	w.awaitCleanup(ctx, t, before)
	since("killed, and cleaned up")
}

// checkJoined fails if the Node does not match the config drive or the image.
func (w *fixture) checkJoined(t *testing.T, node *corev1.Node, image string) {
	t.Helper()
	if node.Spec.ProviderID != providerID {
		t.Errorf("the Node has provider ID %q, want %q, as in the user data", node.Spec.ProviderID, providerID)
	}
	if node.Labels["rack"] != "r1" {
		t.Errorf("the Node lacks the label of the user data: it has %v", node.Labels)
	}
	if got, want := nodeAddress(node), w.network.Server(9).Addr().String(); got != want {
		t.Errorf("the Node is at %s, want %s, as in the network data of the config drive", got, want)
	}
	if got, want := node.Status.NodeInfo.OSImage, "image "+image; !strings.HasSuffix(got, want) {
		t.Errorf("the Node has osImage %q, want one that ends with %q, the installed image", got, want)
	}
}

// awaitCleanup waits until nothing is left of a server that was killed.
func (w *fixture) awaitCleanup(ctx context.Context, t *testing.T, before map[string][]string) {
	t.Helper()
	err := controlplane.Await(ctx, "nothing to be left", func(context.Context) error {
		if diff := cmp.Diff(before, w.leftovers(t)); diff != "" {
			return &notYet{diff}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestServerRebootAndPowerOff(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w := newFixture(t)
	program := buildCommand(t, "./cmd/boot-server")
	before := w.leftovers(t)
	// runcmd is for the first boot of an installation, and bootcmd is for each.
	w.install(t, []byte("#cloud-config\nbootcmd:\n- [sh, -c, 'if [ -e /var/lib/rebooted ]; then poweroff; fi']\n"+
		"runcmd:\n- [touch, /var/lib/rebooted]\n- [reboot]\n"))
	since := stopwatch(t)
	server := w.turnOn(t, program)
	select {
	case err := <-server.ended:
		if err != nil {
			w.diagnose(t)
			t.Fatalf("the server has ended badly: %v", err)
		}
	case <-ctx.Done():
		w.diagnose(t)
		t.Fatal("the server is still on")
	}
	since("booted twice, and off")
	console, err := os.ReadFile(filepath.Join(w.dir, "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(console), "server server-1 reboots") != 1 {
		t.Errorf("the server has not rebooted once: its console has %q", console)
	}
	checkNothingLeft(t, before, w.leftovers(t))
}

// stopwatch returns a function that logs the time since the start.
func stopwatch(t *testing.T) func(what string) {
	start := clock.RealClock{}.Now()
	return func(what string) {
		t.Helper()
		t.Logf("%s after %s", what, clock.RealClock{}.Since(start).Round(10*time.Millisecond))
	}
}

func buildCommand(t *testing.T, from string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(from))
	if output, err := exec.Command("go", "build", "-o", program, from).CombinedOutput(); err != nil {
		t.Fatalf("building %s, %v: %s", from, err, output)
	}
	return program
}

// await polls until the check succeeds, and fails the test if the server ends before that.
func (w *fixture) await(ctx context.Context, t *testing.T, server *power, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case err := <-server.ended:
			cancel(&endedError{err})
		case <-done:
		}
	}()
	if err := controlplane.Await(ctx, what, check); err != nil {
		w.diagnose(t)
		t.Fatal(err)
	}
}

type endedError struct{ err error }

func (e *endedError) Error() string {
	if e.err == nil {
		return "the server has turned itself off"
	}
	return "the server has ended: " + e.err.Error()
}

func (w *fixture) awaitNode(ctx context.Context, t *testing.T, server *power) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	w.await(ctx, t, server, "node "+nodeName+" to be ready", func(ctx context.Context) (err error) {
		if node, err = w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{}); err != nil {
			return err
		}
		return ready(node)
	})
	return node
}

func ready(node *corev1.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
		if condition.Type == corev1.NodeReady {
			return &notYet{condition.Reason + ": " + condition.Message}
		}
	}
	return &notYet{"no condition"}
}

type notYet struct{ why string }

func (n *notYet) Error() string { return n.why }

func nodeAddress(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

// oneGPU requests one accelerator, and more processors and memory than most test machines have.
var oneGPU = corev1.ResourceList{
	"nvidia.com/gpu": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("40"),
	corev1.ResourceMemory: resource.MustParse("300Gi"),
}

func (w *fixture) createPod(ctx context.Context, t *testing.T, name string, limits corev1.ResourceList) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{{Key: "example.com/new", Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "workload", Image: images.Reference(images.Workload), ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{Limits: limits},
				Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"},
				}}},
			}},
		},
	}
	if err := w.client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
}

func (w *fixture) awaitPod(ctx context.Context, t *testing.T, server *power, name string) {
	t.Helper()
	w.await(ctx, t, server, "pod "+name+" to run", func(ctx context.Context) error {
		current, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if current.Status.Phase != corev1.PodRunning {
			return &notYet{current.Status.String()}
		}
		return nil
	})
}

func (w *fixture) podLog(ctx context.Context, t *testing.T, name string) string {
	t.Helper()
	stream, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	content, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// checkLog reads the log of a pod that was given an accelerator.
func (w *fixture) checkLog(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	log := w.podLog(ctx, t, pod)
	if !strings.Contains(log, "on node "+nodeName+" with accelerators GPU-") {
		t.Errorf("the pod's log, read through the API, is %q: want the node, and one of its accelerators", log)
	}
	t.Logf("log of the pod: %s", strings.TrimSpace(log))
}

// turnOff cuts the server's power, as a rack does.
func (w *fixture) turnOff(ctx context.Context, t *testing.T, server *power) {
	t.Helper()
	if err := server.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-server.ended:
		if err != nil {
			w.diagnose(t)
			t.Fatalf("the server has ended badly: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the server is still on")
	}
	if _, err := os.Stat(filepath.Join(w.dir, "run")); !os.IsNotExist(err) {
		t.Errorf("the run directory of the server is left, or cannot be read: %v", err)
	}
}

// kill ends all processes of the server's process group at once.
func (w *fixture) kill(ctx context.Context, t *testing.T, server *power) {
	t.Helper()
	if err := server.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.ended:
	case <-ctx.Done():
		t.Fatal("the server is still on")
	}
}
