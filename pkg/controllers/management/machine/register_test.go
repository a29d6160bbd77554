// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory/feed"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestEverythingIsEventDriven runs the controllers in a manager, with real watches and caches. Each step waits for
// something that only a watch can tell.
func TestEverythingIsEventDriven(t *testing.T) {
	w := newFixtureOn(t, &environment, 0)
	hosts := startManager(t, w)
	eventually := func(what string, reached func() bool) {
		t.Helper()
		poll.Eventually(t, what, func(context.Context) error {
			if reached() {
				return nil
			}
			return fmt.Errorf("the Machines are %v", w.machines())
		})
	}
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Bootstrap.DataSecretName = "user-data"
		machine.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "later-" + w.metal3}
	})
	reason := func(want string) func() bool {
		return func() bool { return condition(w.get(key), v1alpha1.ConditionReady).Reason == want }
	}
	if hosts.Synced() {
		t.Fatal("the inventory is synced before its types are: the test is not one")
	}
	hosts.SetType(inventory.Profile{
		Name: w.nodeType, MadeBy: "provider-" + w.metal3, Namespace: w.metal3, Selector: labels.Everything(),
		Resources: env.Resources("cpu", "8", "memory", "32Gi"), Server: capacity.Server{Resources: env.Resources("cpu", "8", "memory", "32Gi")},
	})
	hosts.MarkTypesSynced()
	eventually("woken by the inventory being complete", reason(v1alpha1.ReasonInvalidSpec))

	w.create(&v1alpha1.OSImage{ObjectMeta: metaName("later-" + w.metal3), Spec: v1alpha1.OSImageSpec{Properties: map[string]string{
		v1alpha1.PropertyImageURL: "http://images.example.com/os.qcow2", v1alpha1.PropertyImageChecksum: checksum,
	}}})
	eventually("woken by the OSImage", reason(v1alpha1.ReasonNoCapacity))

	environment.CreateHost(t, env.AvailableHost(w.metal3, "server-00", nil))
	eventually("woken by the server", reason(v1alpha1.ReasonWaitingForBootstrapData))

	w.create(&corev1.Secret{ObjectMeta: metaIn(w.tenant, "user-data"), Data: map[string][]byte{v1alpha1.UserDataSecretKey: []byte("x")}})
	eventually("woken by the user data", reason(v1alpha1.ReasonProvisioning))

	w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
		host.Status.Provisioning.State, host.Status.Provisioning.Image = bmov1alpha1.StateProvisioned, *host.Spec.Image
	})
	eventually("woken by Metal3", reason(v1alpha1.ReasonStandAlone))

	drifted := func(want string) func() bool {
		return func() bool { return condition(w.get(key), v1alpha1.ConditionDrifted).Reason == want }
	}
	nodeType := &v1alpha1.NodeType{ObjectMeta: metaName(w.nodeType)}
	w.update(nodeType, func() { nodeType.Spec.Properties[v1alpha1.PropertyUserData] = "#cloud-config" })
	eventually("woken by its type", drifted(v1alpha1.ReasonUserDataChanged))
	provider := &v1alpha1.NodeProvider{ObjectMeta: metaName("provider-" + w.metal3)}
	w.update(provider, func() { provider.Spec.Properties = map[string]string{v1alpha1.PropertySSHKeys: "key-" + w.metal3} })
	eventually("woken by its provider", drifted(v1alpha1.ReasonInvalidSpec))
	w.create(&v1alpha1.SSHKey{ObjectMeta: metaName("key-" + w.metal3), Spec: v1alpha1.SSHKeySpec{PublicKey: firstKey}})
	eventually("woken by the key that was missing", drifted(v1alpha1.ReasonUserDataChanged))
	w.update(nodeType, func() { delete(nodeType.Spec.Properties, v1alpha1.PropertyUserData) })
	w.update(provider, func() { provider.Spec.Properties = nil })
	eventually("up to date again", drifted(v1alpha1.ReasonUpToDate))

	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	eventually("emptied", func() bool { return w.hosts()[0].Spec.Image == nil })
	w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
		host.Status.Provisioning = bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateAvailable}
	})
	eventually("gone", func() bool { return w.get(key) == nil })
	w.checkNothingLeft()

	// A Machine that is deleted by force wakes the sweeps for its host and its Secret.
	key = w.machine("n", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Bootstrap.DataSecretName = "user-data"
	})
	eventually("provisioning", reason(v1alpha1.ReasonProvisioning))
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	// The manager may put the finalizer back before the deletion; then it is taken off once more.
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	eventually("deleted by force", func() bool {
		if machine := w.get(key); machine != nil {
			w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
			return false
		}
		return true
	})
	eventually("swept", func() bool { return w.hosts()[0].Spec.ConsumerRef == nil && len(w.secrets()) == 0 })
	w.checkNothingLeft()
}

// startManager runs the controllers and the feed until the test ends, for the namespaces of the fixture alone.
func startManager(t *testing.T, w *fixture) *inventory.Inventory {
	t.Helper()
	mgr, err := ctrl.NewManager(environment.Config, manager.Options{
		Scheme:  environment.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{w.metal3: {}, w.tenant: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	hosts := inventory.NewInventory(inventory.Options{})
	machines := New(Dependencies{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Inventory: hosts, Recorder: mgr.GetEventRecorder("test"), Clock: clock.RealClock{},
	})
	ctx, stop := context.WithCancel(context.Background())
	if err := machines.Register(ctx, mgr); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(feed.New(mgr.GetCache(), hosts)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
	return hosts
}
