// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	providerID = "metal3://metal3-system/server-1/machine-1"
	// image stands for what a deployment writes to the disk, and imageSum is the start of its SHA-256.
	image    = "image 1"
	imageSum = "bdd295acb985"
	// document is the part of the user data that a user writes.
	document = "#cloud-config\nwrite_files:\n- path: /etc/asset-tag\n  content: A-1\n"
)

// joinData makes a join token, and returns the user data of a server that joins the cluster with a label and a taint.
func (w *clusterFixture) joinData(t *testing.T, mode v1alpha1.JoinMode, endpoint, document string) []byte {
	t.Helper()
	return userData(t, bootstrap.Join{
		NodeName: nodeName, ProviderID: providerID, Mode: mode, APIServerEndpoint: endpoint,
		Token: joinToken(t, w.Client, nodeName, mode), Labels: map[string]string{"rack": "r1"},
		Taints: []corev1.Taint{{Key: "example.com/new", Effect: corev1.TaintEffectNoSchedule}},
	}, w.CertificateAuthority(), document)
}

func TestServerRunsPod(t *testing.T) {
	w := newClusterFixture(t, ipv4Network())
	w.startCluster(t, cluster.Options{})
	w.install(t, w.joinData(t, v1alpha1.JoinKubeadm, w.endpoint(), document), nil)

	server := w.turnOn(t, container)
	node := w.untilNodeReady(t, w.Client)
	w.checkJoined(t, node, imageSum)
	// hardware.json applies, not the machine's hardware.
	if got := node.Status.Capacity; got.Cpu().Value() != 96 || got.Memory().String() != "768Gi" {
		t.Errorf("the Node has %s processors and memory of %s, want 96 and 768Gi, as in hardware.json", got.Cpu(),
			got.Memory())
	}

	w.createPod(t, w.Client, "steady", workload(nil))
	w.createPod(t, w.Client, "work", workload(oneGPU))
	w.untilPodRuns(t, "work")
	w.untilPodRuns(t, "steady")
	w.checkLog(t, "work")

	// A power cut: the disk and the Node stay.
	w.turnOff(t, server)
	server = w.turnOn(t, container)
	w.until(t, "pod steady to be started again", func(ctx context.Context) error {
		current, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "steady", metav1.GetOptions{})
		if err != nil {
			return err
		}
		statuses := current.Status.ContainerStatuses
		if len(statuses) != 1 || statuses[0].RestartCount == 0 || !statuses[0].Ready {
			return errors.New(current.Status.String())
		}
		return nil
	})
	w.logf("pod steady runs again")
	// A kubelet that starts does not wait for its device plugins: pods with devices fail, and their owners replace
	// them.
	w.createPod(t, w.Client, "more-work", workload(oneGPU))
	w.untilPodRuns(t, "more-work")

	// The rack is killed, together with the program that cleans up.
	if err := server.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.untilCleanedUp(t)
}

// checkJoined fails if the Node does not match the config drive or the image.
func (w *clusterFixture) checkJoined(t *testing.T, node *corev1.Node, image string) {
	t.Helper()
	if node.Spec.ProviderID != providerID {
		t.Errorf("the Node has provider ID %q, want %q, as in the user data", node.Spec.ProviderID, providerID)
	}
	if node.Labels["rack"] != "r1" {
		t.Errorf("the Node lacks the label of the user data: it has %v", node.Labels)
	}
	if got, want := addressesOf(node), []string{w.network.Server(9).Addr().String()}; !slices.Equal(got, want) {
		t.Errorf("the Node is at %s, want %s, as in the network data of the config drive", got, want)
	}
	if got, want := node.Status.NodeInfo.OSImage, "image "+image; !strings.HasSuffix(got, want) {
		t.Errorf("the Node has osImage %q, want one that ends with %q, the installed image", got, want)
	}
}

// untilCleanedUp waits until nothing is left of a server that was killed.
func (w *clusterFixture) untilCleanedUp(t *testing.T) {
	t.Helper()
	w.until(t, "nothing to be left of the server", func(context.Context) error {
		if left := w.traces(t); len(left) > 0 {
			return fmt.Errorf("there still is %v", left)
		}
		return nil
	})
}

func TestServerRebootAndPowerOff(t *testing.T) {
	w := newClusterFixture(t, ipv4Network())
	// runcmd is for the first boot of an installation, and bootcmd is for each.
	w.install(t, []byte("#cloud-config\nbootcmd:\n- [sh, -c, 'if [ -e /var/lib/rebooted ]; then poweroff; fi']\n"+
		"runcmd:\n- [touch, /var/lib/rebooted]\n- [reboot]\n"), nil)
	server := w.turnOn(t, container)
	if err := poll.Receive(t, "the server to turn itself off", server.ended); err != nil {
		t.Fatalf("the server has ended badly: %v", err)
	}
	w.logf("booted twice, and off")
	console, err := os.ReadFile(filepath.Join(w.server.Dir, "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(console), "server server-1 reboots") != 1 {
		t.Errorf("the server has not rebooted once: its console has %q", console)
	}
	if left := w.traces(t); len(left) > 0 {
		t.Errorf("the server has left %v", left)
	}
}

// oneGPU requests one accelerator, and more processors and memory than most test machines have.
var oneGPU = corev1.ResourceList{
	gpu: resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("40"),
	corev1.ResourceMemory: resource.MustParse("300Gi"),
}

func (w *clusterFixture) untilPodRuns(t *testing.T, name string) {
	t.Helper()
	w.until(t, "pod "+name+" to run", func(ctx context.Context) error {
		current, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err == nil && current.Status.Phase != corev1.PodRunning {
			err = errors.New(current.Status.String())
		}
		return err
	})
	w.logf("pod %s runs", name)
}

// checkLog reads the log of a pod that was given an accelerator.
func (w *clusterFixture) checkLog(t *testing.T, pod string) {
	t.Helper()
	log := w.podLog(t, w.kube, pod)
	if !strings.Contains(log, "on node "+nodeName+" with accelerators GPU-") {
		t.Errorf("the pod's log, read through the API, is %q: want the node, and one of its accelerators", log)
	}
	w.logf("log of the pod: %s", log)
}
