// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// TestChain runs two pods on servers that are installed for them, replaces one, and releases both. Its steps depend on
// each other. The server of the first pod is a virtual machine, as is the one for comparison.
func TestChain(t *testing.T) {
	best, checks := serverKind(t), []func() error{}
	if best == virtualMachine {
		checks = append(checks, missingDisk)
	}
	w := newChain(t, "chain-rack.yaml", checks...)
	defer w.keepJournal(t)()

	w.logf("== the platform team registers servers and creates NodeTypes")
	first, second := w.serveImages(t, best)
	withGPUs := nodeType(nodeTypeName, "cpu", "64", "memory", "512Gi", gpu, "2")
	w.createFleet(t, []v1alpha1.NodeTypeTemplate{withGPUs}, first, second)
	w.registerServers(t)
	w.untilFleetReady(t)

	w.bootBy(t, best)
	w.logf("== for comparison, Metal3 alone installs server %s, which boots by %s", bareServer, best)
	bare := w.installBare(t, first)
	w.moveToType(t)

	w.logf("== the tenant creates a pod that requests a GPU; there is no node for it, and its server will boot by %s", best)
	w.createTenant(t)
	w.createPod(t, w.tenant.Client, "train", workload(gpus("1")))
	w.untilRuns(t, "train")
	w.checkPod(t, "train", 1, first)
	w.reportSteps(t, "train", bare)

	w.logf("== the tenant creates a Deployment whose pod requests two GPUs; the first server has one left; the next boots by %s",
		container)
	w.bootBy(t, container)
	w.createDeployment(t, "infer", "2")
	infer := w.untilDeploymentRuns(t, "infer", "")
	w.checkPod(t, infer, 2, first)
	if best != container {
		bare = nil // another kind of server
	}
	w.reportSteps(t, infer, bare)
	if w.nodeOf(t, "train") == w.nodeOf(t, infer) {
		t.Errorf("both pods are on node %s, which has no GPUs for both", w.nodeOf(t, "train"))
	}

	w.checkSeen(t, 3, "control groups", "processes")

	host := w.machineOf(t, w.nodeOf(t, "train")).Status.HostRef.Name
	w.logf("== server %s, of the first pod, hangs; its BMC reports power on", host)
	w.excludeFromDrift(t, "train")
	w.hang(t, host)

	w.logf("== the platform team changes the image; the node of the Deployment is replaced")
	old := w.nodeOf(t, infer)
	w.setImage(t, imageName(1))
	infer = w.untilDeploymentRuns(t, "infer", old)
	w.checkPod(t, infer, 2, second)

	w.logf("== the node of server %s is NotReady", host)
	w.untilNodeNotReady(t, "train")

	w.logf("== the server is repaired and the first pod deleted; the server is cleaned and available")
	if found := w.diskFiles(t, host); len(found) == 0 {
		t.Errorf("server %s has booted and its disk is empty: the test of cleaning would pass without cleaning", host)
	}
	if err := w.Rack.Repair(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	w.forceDelete(t, "train")
	w.untilAvailable(t, host)
	w.checkErased(t, host)

	w.logf("== the Deployment is deleted; all servers are cleaned and available")
	w.remove(t, &appsv1.Deployment{}, "infer")
	w.untilAllReleased(t)
	w.logf("== all servers are available, except the one with a fault from the start")
}

// untilFleetReady waits until the servers are inspected and available, and the one with a fault shows its error.
func (w *stackFixture) untilFleetReady(t *testing.T) {
	t.Helper()
	w.until(t, "the servers to be available, and the one with a fault to show its error", func(context.Context) error {
		for _, server := range w.Rack.Servers {
			host, err := look[*bmov1alpha1.BareMetalHost](w.journal, server.Name)
			if err != nil {
				return err
			}
			broken := host.Status.ErrorType == bmov1alpha1.RegistrationError && strings.Contains(host.Status.ErrorMessage, "returned code 401")
			free := host.Status.Provisioning.State == bmov1alpha1.StateAvailable
			if isBroken(server) && !broken || !isBroken(server) && !free {
				return fmt.Errorf("server %s is %s", server.Name, describeHost(host))
			}
		}
		return nil
	})
	w.logf("%d servers are inspected and available", w.inOrder())
}

func (w *stackFixture) untilRuns(t *testing.T, name string) {
	t.Helper()
	w.until(t, "pod "+name+" to run", func(context.Context) error {
		pod, err := look[*corev1.Pod](w.journal, name)
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", describePod(pod))
		}
		return nil
	})
}

// untilAvailable waits until a server is cleaned and has no consumer.
func (w *stackFixture) untilAvailable(t *testing.T, name string) {
	t.Helper()
	w.until(t, "server "+name+" to be free", func(context.Context) error {
		host, err := look[*bmov1alpha1.BareMetalHost](w.journal, name)
		if err != nil {
			return err
		}
		if host.Spec.ConsumerRef != nil || host.Spec.Image != nil || host.Status.Provisioning.State != bmov1alpha1.StateAvailable {
			return fmt.Errorf("it is %s", describeHost(host))
		}
		return nil
	})
}

// untilAllReleased waits until both clusters have no object left that was made for a pod.
func (w *stackFixture) untilAllReleased(t *testing.T) {
	t.Helper()
	w.until(t, "every server to be released", func(ctx context.Context) error {
		var left []string
		for _, object := range w.journal.list() {
			host, is := object.(*bmov1alpha1.BareMetalHost)
			switch {
			case !is:
				left = append(left, key(object))
			case host.Spec.ConsumerRef != nil || host.Spec.Image != nil:
				left = append(left, "the claim of "+key(object))
			case host.Status.Provisioning.State != bmov1alpha1.StateAvailable && host.Status.ErrorType == "":
				left = append(left, key(object)+" in state "+string(host.Status.Provisioning.State))
			}
		}
		if len(left) > 0 {
			return errors.New("there still is " + strings.Join(left, ", "))
		}
		return w.checkNoSecretLeft(ctx)
	})
}

// checkNoSecretLeft fails if user data or join tokens outlive their Machines.
func (w *stackFixture) checkNoSecretLeft(ctx context.Context) error {
	for _, place := range []struct {
		from      client.Client
		namespace string
		label     string
	}{
		{w.Client, stack.HostsNamespace, v1alpha1.MachineLabelKey},
		{w.Client, stack.MachinesNamespace, v1alpha1.MachineLabelKey},
		{w.tenant.Client, metav1.NamespaceSystem, v1alpha1.MachineUIDLabelKey},
	} {
		secrets := &corev1.SecretList{}
		if err := place.from.List(ctx, secrets, client.InNamespace(place.namespace), client.HasLabels{place.label}); err != nil {
			return err
		}
		if len(secrets.Items) > 0 {
			return fmt.Errorf("there still is Secret %s/%s", place.namespace, secrets.Items[0].Name)
		}
	}
	return nil
}
