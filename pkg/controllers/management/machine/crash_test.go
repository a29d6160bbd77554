// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// newRichFixture is a fixture in which a cycle takes every step that there is: the tenant has a network of its own, and the
// type gives its servers addresses and SSH keys.
func newRichFixture(t *testing.T, servers int) *fixture {
	t.Helper()
	return newRichFixtureOn(t, env.Fake(t), servers)
}

func newRichFixtureOn(t *testing.T, api *env.Environment, servers int) *fixture {
	t.Helper()
	w := newFixtureOn(t, api, servers)
	w.network()
	subnet := subnets.Add(1)
	w.create(&v1alpha1.SSHKey{ObjectMeta: metaName("key-" + w.metal3), Spec: v1alpha1.SSHKeySpec{PublicKey: publicKey}})
	nodeType := &v1alpha1.NodeType{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	nodeType.Spec.Properties[v1alpha1.PropertySSHKeys] = "key-" + w.metal3
	nodeType.Spec.Properties[v1alpha1.PropertyNetworkCIDR] = fmt.Sprintf("10.%d.%d.1/29", subnet>>8, subnet&0xff)
	nodeType.Spec.Properties[v1alpha1.PropertyDNSServers] = "10.0.0.53"
	nodeType.Spec.Properties[v1alpha1.PropertyNTPServers] = "10.0.0.123"
	if err := w.client.Update(t.Context(), nodeType); err != nil {
		t.Fatal(err)
	}
	return w
}

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJl3dIeudNqd0DPMRD6OIh65tjkxFNOtGWIOL7wFHXyz user@host"

// subnets counts the networks that tests have, so that each has its own: all share one space of addresses.
var subnets atomic.Int32

// cycle takes one Machine through its whole life, from its creation until its server is available again. now returns
// the running process, and is called before each step.
func cycle(w *fixture, now func() *process) {
	w.t.Helper()
	key := w.machine("m", nil)
	phase := func(want v1alpha1.MachinePhase, reason string) func() bool {
		return func() bool {
			machine := w.get(key)
			return machine.Status.Phase == want && condition(machine, v1alpha1.ConditionReady).Reason == reason
		}
	}
	joined := phase(v1alpha1.MachineJoined, v1alpha1.ReasonJoined)
	w.until("waiting for hooks", now, phase(v1alpha1.MachineClaimed, v1alpha1.ReasonWaitingForHook))
	w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
	w.until("claimed", now, phase(v1alpha1.MachineClaimed, v1alpha1.ReasonWaitingForBootstrapData))
	w.userData("user-data")
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
	w.until("provisioned", now, phase(v1alpha1.MachineProvisioned, v1alpha1.ReasonWaitingForNode))
	checkProvisioned(w, key)
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Node = &v1alpha1.MachineNode{Name: "node"} })
	w.until("joined", now, joined)
	for _, secret := range w.secrets() {
		if data := secret.Data[v1alpha1.UserDataSecretKey]; len(data) > 0 {
			w.t.Errorf("Secret %s still has user data: %q", secret.Name, data)
		}
	}

	w.edit(key, func(machine *v1alpha1.Machine) {
		machine.Annotations[v1alpha1.RebootAnnotationKey] = v1alpha1.RebootHard
		machine.Annotations[v1alpha1.RebootOperationAnnotationKey] = "operation"
	})
	w.until("rebooted", now, func() bool {
		machine := w.get(key)
		_, requested := machine.Annotations[v1alpha1.RebootAnnotationKey]
		return !requested && machine.Status.Power.LastReboot != nil && !w.marked() && joined()
	})
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff} })
	w.until("off", now, phase(v1alpha1.MachineJoined, v1alpha1.ReasonPoweredOff))
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Power.State = v1alpha1.PowerOn })
	w.until("on", now, joined)

	if err := w.client.Delete(w.t.Context(), w.get(key)); err != nil {
		w.t.Fatal(err)
	}
	w.until("waiting for hooks of the release", now, func() bool { return waitsForHook(w.get(key)) })
	w.takeHook(key, v1alpha1.PreReturnHookPrefix)
	w.until("deleted", now, func() bool { return w.get(key) == nil })
	reboots := 0
	for _, asked := range w.reboots {
		reboots += len(asked)
	}
	if reboots != 1 {
		w.t.Errorf("the server was rebooted %d times, want once", reboots)
	}
}

// operators is the name of what an operator has configured hosts with.
const operators = "operators"

// configureHosts gives the hosts what an operator can configure beside the image.
func (w *fixture) configureHosts() {
	w.t.Helper()
	for _, host := range w.hosts() {
		w.edithost(host.Name, func(host *bmov1alpha1.BareMetalHost) {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.NTPServersAnnotationKey, operators)
			host.Spec.MetaData = &corev1.SecretReference{Namespace: w.metal3, Name: operators}
			host.Spec.NetworkData = &corev1.SecretReference{Namespace: w.metal3, Name: operators}
			host.Spec.UserData = &corev1.SecretReference{Namespace: w.metal3, Name: operators}
			host.Spec.PreprovisioningNetworkDataName = operators
		})
	}
}

// checkHostsAsConfigured checks that the hosts have that back.
func (w *fixture) checkHostsAsConfigured() {
	w.t.Helper()
	for _, host := range w.hosts() {
		spec := host.Spec
		if spec.MetaData == nil || spec.MetaData.Name != operators || spec.NetworkData == nil || spec.NetworkData.Name != operators ||
			spec.NetworkData.Namespace != w.metal3 || spec.UserData == nil || spec.UserData.Name != operators ||
			spec.PreprovisioningNetworkDataName != operators ||
			host.Annotations[v1alpha1.NTPServersAnnotationKey] != operators {
			w.t.Errorf("host %s does not have back what an operator has configured: metadata %v, user data %v, network data %v and %q, "+
				"annotations %v", host.Name, spec.MetaData, spec.UserData, spec.NetworkData, spec.PreprovisioningNetworkDataName, host.Annotations)
		}
	}
}

// marked returns whether a host still has the annotation of a reboot.
func (w *fixture) marked() bool {
	for _, host := range w.hosts() {
		if _, marked := host.Annotations[v1alpha1.RebootedAnnotationKey]; marked {
			return true
		}
	}
	return false
}

// checkProvisioned checks what is written on the host.
func checkProvisioned(w *fixture, key types.NamespacedName) {
	w.t.Helper()
	machine, mine := w.get(key), 0
	for _, host := range w.hosts() {
		if host.Spec.ConsumerRef == nil {
			continue
		}
		mine++
		if !hosts.Owns(hosts.OwnerOf(machine), &host) || host.Name != machine.Status.HostRef.Name {
			w.t.Errorf("host %s has consumer %v, Machine %s has host %v", host.Name, host.Spec.ConsumerRef, machine.Name, machine.Status.HostRef)
		}
		if host.Spec.Image == nil || host.Spec.Image.URL != "http://images.example.com/os.qcow2" || !host.Spec.Online {
			w.t.Errorf("host %s: image %v, online %v", host.Name, host.Spec.Image, host.Spec.Online)
		}
		if got := host.Annotations[v1alpha1.NTPServersAnnotationKey]; got != "10.0.0.123" {
			w.t.Errorf("host %s: a DHCP server would give it the time servers %q", host.Name, got)
		}
		if host.Spec.UserData == nil || host.Spec.UserData.Name == operators ||
			host.Spec.NetworkData == nil || host.Spec.NetworkData.Name == operators {
			w.t.Errorf("host %s: user data %v, network data %v", host.Name, host.Spec.UserData, host.Spec.NetworkData)
			continue
		}
		secret := &corev1.Secret{}
		if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.metal3, Name: host.Spec.UserData.Name}, secret); err != nil {
			w.t.Errorf("user data of host %s: %v", host.Name, err)
		}
		if got := string(secret.Data[v1alpha1.UserDataSecretKey]); !strings.Contains(got, "#cloud-config") ||
			!strings.Contains(got, publicKey) || !strings.Contains(got, "10.0.0.123") {
			w.t.Errorf("user data of host %s: %q", host.Name, got)
		}
		addresses := w.addresses()
		if len(addresses) != 1 || len(machine.Status.Addresses) != 1 || machine.Status.Addresses[0].Address != addresses[0].Spec.Address {
			w.t.Errorf("addresses %v, status.addresses %v; want one and the same", addresses, machine.Status.Addresses)
		} else if got := string(secret.Data[networkDataSecretKey]); !strings.Contains(got, addresses[0].Spec.Address) {
			w.t.Errorf("network data of host %s: %q", host.Name, got)
		}
		if want := v1alpha1.ProviderID(w.metal3, host.Name, machine.Name); machine.Status.ProviderID != want {
			w.t.Errorf("providerID %q, want %q", machine.Status.ProviderID, want)
		}
	}
	if mine != 1 {
		w.t.Errorf("%d hosts are claimed, want 1", mine)
	}
}

// checkLeftByDeath checks what must hold after each single write. A server with an image is marked with the tenant whose data it holds.
// The claim of a server outlives the Secret that the server boots with: whoever releases the server finds the Secret by the claim.
func (w *fixture) checkLeftByDeath() {
	w.t.Helper()
	servers := w.hosts()
	for _, host := range servers {
		if tenant := host.Annotations[v1alpha1.LastTenantAnnotationKey]; host.Spec.Image != nil && tenant != w.tenant {
			w.t.Errorf("host %s has an image for a tenant of namespace %s, and is marked with %q", host.Name, w.tenant, tenant)
		}
	}
	for _, secret := range w.secrets() {
		owner, ours := secretOwner(&secret)
		if ours && !slices.ContainsFunc(servers, func(host bmov1alpha1.BareMetalHost) bool { return hosts.Owns(owner, &host) }) {
			w.t.Errorf("Secret %s is left, and no server is claimed by Machine %s any more", secret.Name, owner)
		}
	}
}

// writesOf runs a cycle with one fault at one write, and returns what its processes tried to write.
func writesOf(w *fixture, kind faults.Fault, write int) []string {
	w.t.Helper()
	var writes []string
	connection := &faults.Connection{Kind: kind, At: write, Other: w.client}
	w.configureHosts()
	running := w.start(connection.Client(w.api.Client))
	cycle(w, func() *process {
		if connection.Dead() {
			w.checkLeftByDeath()
			writes = append(writes, connection.Writes()...)
			connection = &faults.Connection{}
			running = w.start(connection.Client(w.api.Client))
		}
		connection.PassTime()
		return running
	})
	w.checkNothingLeft()
	w.checkHostsAsConfigured()
	return append(writes, connection.Writes()...)
}

func TestFaultsAtEveryWrite(t *testing.T) {
	total := len(undisturbedWrites(t))
	for _, kind := range faults.AtWrites {
		t.Run(string(kind), func(t *testing.T) {
			first := 1
			if kind == faults.Crash {
				first = 0
			}
			for write := first; write <= total; write++ {
				t.Run(fmt.Sprintf("Write%02d", write), func(t *testing.T) {
					t.Parallel()
					writesOf(newRichFixture(t, 2), kind, write)
				})
			}
			t.Logf("%s: %d points tried, at each of the %d writes of a cycle", kind, total-first+1, total)
		})
	}
}

// TestFaultsOnAPIServer runs a sample of TestFaultsAtEveryWrite on an API server. There, the same writes must follow a
// fault as in memory: otherwise the sweep in memory would prove nothing.
func TestFaultsOnAPIServer(t *testing.T) {
	const host, status, address, secret = "patch *v1alpha1.BareMetalHost", "patch status of *v1alpha1.Machine", "create *v1alpha1.IPAddress",
		"create *v1.Secret"
	const begun, ended = "create *v1alpha1.HostUsage", "patch *v1alpha1.HostUsage"
	undisturbed, manager := undisturbedWrites(t), asManager(t)
	hosts := 0
	for _, write := range undisturbed {
		if write == host {
			hosts++
		}
	}
	// The numbers in the names of the cases are the rows of the table in docs/internals.md.
	claim, claimed, lock, document, install, release := nth{host, 1}, nth{status, 1}, nth{address, 1}, nth{secret, 1}, nth{host, 2},
		nth{host, hosts}
	for name, tc := range map[string]struct {
		kind  faults.Fault
		write nth
	}{
		"CrashAfterClaim2": {faults.Crash, claim}, "CrashAfterStatus3": {faults.Crash, claimed}, "CrashAfterSecret5": {faults.Crash, document},
		"CrashAfterInstall6": {faults.Crash, install}, "CrashAfterRelease": {faults.Crash, release},
		"ConflictAtClaim": {faults.Conflict, claim}, "ConflictAtStatus": {faults.Conflict, claimed},
		"ConflictAtRelease": {faults.Conflict, release},
		"AnswerOfClaimLost": {faults.AnswerLost, claim}, "AnswerOfAddressLost": {faults.AnswerLost, lock},
		"AnswerOfSecretLost":  {faults.AnswerLost, document},
		"AnswerOfReleaseLost": {faults.AnswerLost, release}, "ClaimRefused": {faults.Refused, claim}, "OutageAtInstall": {faults.Outage, install},
		"CrashAfterBegun": {faults.Crash, nth{begun, 1}}, "CrashAfterEnded": {faults.Crash, nth{ended, 1}},
		"ConflictAtEnd": {faults.Conflict, nth{ended, 1}}, "AnswerOfEndLost": {faults.AnswerLost, nth{ended, 1}},
		"Undisturbed": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			write := tc.write.in(undisturbed)
			if write == 0 && tc.kind != "" {
				t.Fatalf("no write %v in a cycle", tc.write)
			}
			w := newRichFixtureOn(t, &environment, 2)
			w.api = manager
			inMemory, onServer := writesOf(newRichFixture(t, 2), tc.kind, write), writesOf(w, tc.kind, write)
			if !slices.Equal(inMemory, onServer) {
				t.Errorf("writes on an API server:\n%s\nin memory:\n%s", strings.Join(onServer, "\n"), strings.Join(inMemory, "\n"))
			}
		})
	}
}

// asManager is the API server as the manager reaches it, with our admission policies: a new write of the manager that they refuse
// fails the tests.
func asManager(t *testing.T) *env.Environment {
	t.Helper()
	policies, err := policy.Management(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range policies {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	host := environment.CreateHost(t, env.AvailableHost(environment.Namespace(t), "server", nil))
	manager := environment.As(t, policy.ManagerUser, policy.AdministratorsGroup)
	poll.Eventually(t, "the policies are in force", func(ctx context.Context) error {
		before := host.DeepCopy()
		host.Labels = map[string]string{"example.com/x": "y"}
		err := manager.Patch(ctx, host, client.MergeFrom(before), client.DryRunAll)
		if host = before; !apierrors.IsForbidden(err) {
			return fmt.Errorf("the manager writes labels of a server: %w", err)
		}
		return nil
	})
	return &env.Environment{Client: manager}
}

// nth is the n-th write of a kind, from 1.
type nth struct {
	write string
	n     int
}

// in is where the write is in a list, from 1, or 0 if it is not there.
func (n nth) in(writes []string) int {
	for i, write := range writes {
		if write == n.write {
			if n.n--; n.n == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// TestStaleAtEveryRead lets each read from the cache answer with what was true before, once.
func TestStaleAtEveryRead(t *testing.T) {
	w := newRichFixture(t, 2)
	connection := &faults.Connection{}
	counting := &faults.StaleReads{}
	undisturbed := w.startWith(counting.Client(connection.Client(w.api.Client)), connection.Client(w.api.Client))
	cycle(w, func() *process { return undisturbed })
	w.checkNothingLeft()
	if counting.Reads() < 20 {
		t.Fatalf("a cycle has %d reads; the test does not see them all", counting.Reads())
	}
	// A cycle that is disturbed early may have more reads; those are of a state that later ones see as well.
	for read := 1; read <= counting.Reads(); read++ {
		t.Run(fmt.Sprintf("Read%03d", read), func(t *testing.T) {
			t.Parallel()
			w := newRichFixture(t, 2)
			connection := &faults.Connection{}
			cache := &faults.StaleReads{At: read}
			running := w.startWith(cache.Client(connection.Client(w.api.Client)), connection.Client(w.api.Client))
			cycle(w, func() *process { return running })
			w.checkNothingLeft()
		})
	}
	t.Logf("Stale: %d points tried, at each read of a cycle from the cache", counting.Reads())
}

// undisturbedWrites are those of a cycle without faults, which needs no sweep to leave nothing behind.
func undisturbedWrites(t *testing.T) []string {
	t.Helper()
	w := newRichFixture(t, 2)
	connection := &faults.Connection{}
	running := w.start(connection.Client(w.api.Client))
	running.sweeps = false
	cycle(w, func() *process { return running })
	w.checkNothingLeft()
	for n, name := range connection.Writes() {
		t.Logf("write %2d: %s", n+1, name)
	}
	if len(connection.Writes()) < 20 {
		t.Fatalf("a cycle has %d writes; the test does not see them all", len(connection.Writes()))
	}
	return connection.Writes()
}
