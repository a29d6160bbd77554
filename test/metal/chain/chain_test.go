// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/plain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// TestChain tells the story of two pods, and of the servers that they run on. Everything is one story, in which each part
// needs what came before. The first pod's server is a virtual machine, and so is the one that it is compared with.
func TestChain(t *testing.T) {
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	best, missing := bestServers(t), []func(string) error{}
	if best == faithful {
		missing = append(missing, missingDisk)
	}
	need(t, bin, missing...)
	w := newWorld(t, setup{bin: bin, dir: t.TempDir(), rack: "rack.yaml"})
	defer w.keepJournal(t)()

	w.journal.say("== the platform team registers its servers, and describes them")
	first, second := w.serveImages(t, best)
	w.createFleet(t, first, second)
	w.registerServers(t)
	w.untilFleetIsReady(t)

	w.bootBy(t, best)
	w.journal.say("== for comparison: server %s is installed without us, and boots by %s", bareServer, best)
	bare := w.installBare(t, first)
	w.giveToType(t)

	w.journal.say("== the tenant creates a pod that asks for a GPU; there is no node for it, and its server will boot by %s", best)
	w.createTenant(t)
	w.createPod(t, "train", "1")
	w.untilPodRuns(t, "train")
	w.checkPod(t, "train", 1, first)
	w.reportSteps(t, "train", bare)

	w.journal.say("== a Deployment has a pod that asks for two GPUs; the server of the first pod has one left, and the next will boot by %s",
		light)
	w.bootBy(t, light)
	w.createDeployment(t, "infer", "2")
	infer := w.untilDeploymentRuns(t, "infer", "")
	w.checkPod(t, infer, 2, first)
	if best != light {
		bare = nil // another kind of server
	}
	w.reportSteps(t, infer, bare)
	if w.nodeOf(t, "train") == w.nodeOf(t, infer) {
		t.Errorf("both pods are on node %s, which has no GPUs for both", w.nodeOf(t, "train"))
	}

	w.traces.noteLinks(t, w.network.Name)
	w.traces.checkSeen(t, 2)

	host := w.machineOf(t, w.nodeOf(t, "train")).Status.HostRef.Name
	w.journal.say("== server %s, of the first pod, hangs: to its BMC it is on", host)
	w.leaveAlone(t, "train")
	w.hang(t, host)

	w.journal.say("== the platform team has another image: the node of the Deployment is replaced")
	old := w.nodeOf(t, infer)
	w.installWith(t, imageName(1))
	infer = w.untilDeploymentRuns(t, "infer", old)
	w.checkPod(t, infer, 2, second)

	w.journal.say("== meanwhile it can be seen that server %s has died", host)
	w.untilNodeIsLost(t, "train")

	w.journal.say("== it is repaired, and the first pod is deleted: the server is cleaned, and free again")
	if found := w.onDisk(t, host); len(found) == 0 {
		t.Errorf("server %s has booted, and nothing is on its disk: there is nothing to erase", host)
	}
	if err := w.Rack.Repair(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	w.forget(t, "train")
	w.untilFree(t, host)
	w.checkErased(t, host)

	w.journal.say("== the Deployment is deleted: all servers are cleaned, and free again")
	w.remove(t, &appsv1.Deployment{}, "infer")
	w.untilAllIsBack(t)
	w.journal.say("== every server is free again, but the one that was broken from the start")
}

// keepJournal begins to follow. It ends with the test, or when the function that it returns is called.
func (w *world) keepJournal(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	follow := func(c client.WithWatch, list client.ObjectList, options ...client.ListOption) {
		followers.Go(func() { w.journal.follow(ctx, c, list, options...) })
	}
	follow(w.Client, &bmov1alpha1.BareMetalHostList{}, client.InNamespace(stack.HostsNamespace))
	follow(w.Client, &v1alpha1.MachineList{}, client.InNamespace(stack.MachinesNamespace))
	follow(w.tenant.Client, &corev1.PodList{}, client.InNamespace(metav1.NamespaceDefault))
	follow(w.tenant.Client, &karpv1.NodeClaimList{})
	follow(w.tenant.Client, &corev1.NodeList{})
	return func() { cancel(); followers.Wait() }
}

// untilFleetIsReady waits until every server was inspected and is free, and what is wrong with the other one can be seen.
func (w *world) untilFleetIsReady(t *testing.T) {
	t.Helper()
	w.until(t, "the servers to be available, and the broken one to say why it is not", func(context.Context) error {
		for _, server := range w.Rack.Servers {
			host, err := look[*bmov1alpha1.BareMetalHost](w.journal, server.Name)
			if err != nil {
				return err
			}
			broken := host.Status.ErrorType == bmov1alpha1.RegistrationError && strings.Contains(host.Status.ErrorMessage, "returned code 401")
			free := host.Status.Provisioning.State == bmov1alpha1.StateAvailable
			if isBroken(server) && !broken || !isBroken(server) && !free {
				return fmt.Errorf("server %s is %s", server.Name, plain.Host(host))
			}
		}
		return nil
	})
	w.journal.say("%d servers are inspected and available", w.inOrder())
}

func (w *world) untilPodRuns(t *testing.T, name string) {
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

// untilFree waits until a server is cleaned, and nobody's.
func (w *world) untilFree(t *testing.T, name string) {
	t.Helper()
	w.until(t, "server "+name+" to be free", func(context.Context) error {
		host, err := look[*bmov1alpha1.BareMetalHost](w.journal, name)
		if err != nil {
			return err
		}
		if host.Spec.ConsumerRef != nil || host.Spec.Image != nil || host.Status.Provisioning.State != bmov1alpha1.StateAvailable {
			return fmt.Errorf("it is %s", plain.Host(host))
		}
		return nil
	})
}

// untilAllIsBack waits until there is nothing in either cluster that was there for a pod.
func (w *world) untilAllIsBack(t *testing.T) {
	t.Helper()
	w.until(t, "every server to be back", func(ctx context.Context) error {
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
		return w.noSecretIsLeft(ctx)
	})
}

// noSecretIsLeft looks for user data and join tokens that should have gone with the Machines.
func (w *world) noSecretIsLeft(ctx context.Context) error {
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
