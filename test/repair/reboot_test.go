// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repair has sick servers rebooted and given up by the provider, the manager and emulated BMCs: with each killed at its writes, and
// as programs on a sandbox.
package repair

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stmcginnis/gofish/schemas"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	writes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// server is the power of an emulated server, which counts its resets.
type server struct {
	// boot has the server boot again. It is nil where nothing is behind the BMC.
	boot   func()
	lock   sync.Mutex
	resets []schemas.ResetType
}

func (*server) PowerState() schemas.PowerState { return schemas.OnPowerState }

func (s *server) Reset(kind schemas.ResetType) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.resets = append(s.resets, kind)
	if s.boot != nil {
		s.boot()
	}
}

func (s *server) count() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.resets)
}

// fixture is a Machine with a server, the manager, and Metal3, which reaches the server by its BMC.
type fixture struct {
	*management.Cluster
	server  *server
	manager *management.Manager
	machine *v1alpha1.Machine
	claim   *karpv1.NodeClaim
}

// TestOneResetForOneSickNode: the emulated BMC counts one reset for each operation, although the provider is killed before and after its
// write, and the manager after each of its writes. The server whose reboot was of no use is held with the reason.
func TestOneResetForOneSickNode(t *testing.T) {
	system.Only(t)
	w := newFixture(t)
	// The manager writes the host, the status, the request off the Machine, and the mark off the host.
	const managersWrites = 4
	for killedAt := range managersWrites + 1 {
		operation := fmt.Sprintf("operation-%d", killedAt)
		for _, write := range []int{0, 1} {
			connection := &writes.Connection{Kind: writes.Crash, At: write}
			_ = w.provider(connection).Reboot(t.Context(), w.claim, operation)
		}
		if err := w.provider(&writes.Connection{}).Reboot(t.Context(), w.claim, operation); err != nil {
			t.Fatal(err)
		}
		w.killManager(t, killedAt)
		poll.Eventually(t, operation+" is over", func(ctx context.Context) error {
			host := w.host(ctx, t)
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.machine), w.machine); err != nil {
				return err
			}
			_, requested := w.machine.Annotations[v1alpha1.RebootAnnotationKey]
			_, marked := host.Annotations[v1alpha1.RebootedAnnotationKey]
			_, pending := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]
			if requested || marked || pending || w.server.count() < killedAt+1 {
				return fmt.Errorf("requested %v, marked %v, pending %v, resets %v", requested, marked, pending, w.server.count())
			}
			return nil
		})
		// Core asks again if it was killed before it noted that the reboot is accepted.
		if err := w.provider(&writes.Connection{}).Reboot(t.Context(), w.claim, operation); err != nil {
			t.Fatal(err)
		}
	}
	w.giveUp(t)
	if got := w.server.resets; len(got) != managersWrites+1 || got[0] != schemas.ForceRestartResetType {
		t.Errorf("the BMC has served %v for %d operations", got, managersWrites+1)
	}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{Cluster: management.New(t, nil), server: &server{}, machine: management.Machine(0), claim: &karpv1.NodeClaim{}}
	w.CreateHosts(t, 1)
	w.manager = w.StartManager(t)
	w.PlayMetal3(t)
	w.claim.Name, w.claim.UID = w.machine.Name, "uid"
	w.machine.Labels = map[string]string{v1alpha1.NodeClaimLabelKey: w.claim.Name}
	w.machine.Annotations = map[string]string{v1alpha1.NodeClaimUIDAnnotationKey: string(w.claim.UID)}
	w.machine.Spec.Bootstrap.DataSecretName = management.UserDataName
	w.machine.Spec.Node = &v1alpha1.MachineNode{Name: "node"}
	if err := w.Client.Create(t.Context(), w.machine); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the server has joined", func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.machine), w.machine); err != nil {
			return err
		}
		if w.machine.Status.Phase != v1alpha1.MachineJoined {
			return fmt.Errorf("it is %s: %v", w.machine.Status.Phase, w.machine.Status.Conditions)
		}
		return nil
	})
	w.claim.Status.ProviderID, w.claim.Status.NodeName = w.machine.Status.ProviderID, "node"
	playReboots(t, w.Client, hostKey, w.server)
	return w
}

// hostKey is the server's BareMetalHost.
var hostKey = client.ObjectKey{Namespace: management.HostsNamespace, Name: "server-00000"}

func (w *fixture) host(ctx context.Context, t *testing.T) *bmov1alpha1.BareMetalHost {
	return hostOf(ctx, t, w.Client, hostKey)
}

func hostOf(ctx context.Context, t *testing.T, metal3 client.Client, key client.ObjectKey) *bmov1alpha1.BareMetalHost {
	t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := metal3.Get(ctx, key, host); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return host
}

// provider is a process of the provider that has one fault.
func (w *fixture) provider(connection *writes.Connection) *cloudprovider.CloudProvider {
	c := connection.Client(w.Client)
	return cloudprovider.New(c, c, &cloudprovider.Management{Client: c, Live: c}, events.NewRecorder(record.NewFakeRecorder(100)),
		clock.RealClock{}, cloudprovider.Options{Namespace: management.TenantNamespace, TenantCluster: "tenant"})
}

// playReboots serves the BMC of a server, and has Metal3 reset the server by it and take the request off the host afterwards.
func playReboots(t *testing.T, metal3 client.Client, key client.ObjectKey, power bmc.Power) {
	t.Helper()
	hardware := inventory.Hardware{Processors: []inventory.Processor{{Cores: 4}}, MemoryGiB: 8,
		NICs: []inventory.NIC{{MAC: "52:54:00:00:00:01"}}, Disks: []inventory.Disk{{SizeGB: 10}}}.Complete("s1")
	service := httptest.NewServer(bmc.NewService(clock.RealClock{}, bmc.NewSystem(bmc.Identity{Name: "s1", Username: "admin",
		Password: "secret"}, hardware, power, &faults.Set{})))
	t.Cleanup(service.Close)
	ctx, stop := context.WithCancel(context.Background())
	var playing sync.WaitGroup
	playing.Go(func() {
		_ = poll.Until(ctx, func(ctx context.Context) error {
			host := hostOf(ctx, t, metal3, key)
			arguments, requested := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]
			if !requested {
				return fmt.Errorf("the test runs")
			}
			kind := schemas.GracefulRestartResetType
			if strings.Contains(arguments, string(bmov1alpha1.RebootModeHard)) {
				kind = schemas.ForceRestartResetType
			}
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost,
				service.URL+"/redfish/v1/Systems/s1/Actions/ComputerSystem.Reset", strings.NewReader(fmt.Sprintf(`{"ResetType": %q}`, kind)))
			request.SetBasicAuth("admin", "secret")
			response, err := http.DefaultClient.Do(request)
			if err != nil || response.Body.Close() != nil || response.StatusCode != http.StatusNoContent {
				t.Errorf("resetting the server: %v %v", response, err)
				return nil
			}
			before := host.DeepCopy()
			delete(host.Annotations, bmov1alpha1.RebootAnnotationPrefix)
			if err := metal3.Patch(ctx, host, client.MergeFrom(before)); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			return fmt.Errorf("the test runs")
		})
	})
	t.Cleanup(func() { stop(); playing.Wait() })
}

// killManager kills the manager once so many of its writes for a reboot are there, and starts it again.
func (w *fixture) killManager(t *testing.T, after int) {
	t.Helper()
	reached := func(ctx context.Context) bool {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.machine), w.machine); err != nil {
			t.Fatal(err)
		}
		_, requested := w.machine.Annotations[v1alpha1.RebootAnnotationKey]
		_, marked := w.host(ctx, t).Annotations[v1alpha1.RebootedAnnotationKey]
		return []bool{true, marked || !requested, marked || !requested, !requested, !requested && !marked}[after]
	}
	poll.Eventually(t, fmt.Sprintf("write %d of the manager", after), func(ctx context.Context) error {
		if !reached(ctx) {
			return fmt.Errorf("it is not there")
		}
		return nil
	})
	w.manager.Kill(t)
	w.manager = w.StartManager(t)
}

// giveUp has core delete the NodeClaim of a server whose last reboot has failed, and the Machine be released.
func (w *fixture) giveUp(t *testing.T) {
	t.Helper()
	now := metav1.Now().Rfc3339Copy()
	w.claim.DeletionTimestamp = &now
	w.claim.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: now.UTC().Format("2006-01-02T15:04:05Z07:00")}
	w.claim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeRebooting, karpv1.RebootReasonIssued, "rebooting for GpuMemWatch/Fatal")
	ctx := (&options.Options{FeatureGates: options.FeatureGates{NodeRepair: true}}).ToContext(t.Context())
	for _, write := range []int{0, 1, 2} {
		_ = w.provider(&writes.Connection{Kind: writes.Crash, At: write}).Delete(ctx, w.claim)
	}
	poll.Eventually(t, "the Machine is gone", func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.machine), w.machine); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w, %+v", err, w.machine.Status.Conditions)
		}
		return nil
	})
	quarantine := w.host(t.Context(), t).Annotations[v1alpha1.QuarantinedAnnotationKey]
	for _, part := range []string{v1alpha1.ReasonNodeUnhealthy, "rebooting for GpuMemWatch/Fatal, and the node has not come back"} {
		if !strings.Contains(quarantine, part) {
			t.Errorf("the quarantine of the server is %q, without %q", quarantine, part)
		}
	}
}
