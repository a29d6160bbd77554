// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// A faultCase is a server with a fault, and what a user sees of it.
type faultCase struct {
	// server is the name in the scenario.
	server string
	fault  faults.Fault
	// when the fault is set.
	when moment
	// wrongChecksum: the OSImage has another checksum than the image. The server has no fault.
	wrongChecksum bool
	// uncleaned disables the cleaning before the installation. Metal3 retries a failed cleaning without an error, so
	// that only the deadline of the NodeType would end it.
	uncleaned bool
	// hostError is the type of error on the BareMetalHost; empty if there is none. hostSays is part of its message.
	hostError bmov1alpha1.ErrorType
	hostSays  string
	// phase of the Machine that is pinned to the server, and part of what its Ready condition says.
	phase       v1alpha1.MachinePhase
	machineSays string
	// afterwards does what a user does after the repair, and waits until the server works. It returns a description.
	afterwards func(w *stackFixture, t *testing.T, host, machine string) string
}

// String describes the fault.
func (tc faultCase) String() string {
	if tc.wrongChecksum {
		return tc.server + ": wrong checksum of the image"
	}
	return fmt.Sprintf("%s: %s, %s", tc.server, tc.fault.Kind, tc.when)
}

// moment is when a server gets its fault.
type moment string

const (
	// fromTheStart: the scenario has the fault.
	fromTheStart moment = "from the start"
	// onceAvailable is before a Machine wants the server.
	onceAvailable moment = "once available"
	// onceProvisioned is when a Machine has the server.
	onceProvisioned moment = "once provisioned"
	// onRelease is when the Machine is deleted.
	onRelease moment = "on release"
)

var allFaults = []faultCase{
	{
		server: "no-bmc", fault: faults.Fault{Kind: faults.BMCUnreachable}, when: fromTheStart,
		hostError: bmov1alpha1.RegistrationError, hostSays: "Unable to connect to http://127.0.0.1",
		phase: v1alpha1.MachineFailed, machineSays: `pinned to server "no-bmc", which cannot be had: small: server metal3-system/no-bmc is in ` +
			`error (registration error)`,
		afterwards: (*stackFixture).retryNow,
	},
	{
		server: "no-entry", fault: faults.Fault{Kind: faults.WrongPassword}, when: fromTheStart,
		hostError: bmov1alpha1.RegistrationError, hostSays: "returned code 401",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/no-entry is in error (registration error)",
		afterwards: (*stackFixture).correctPassword,
	},
	{
		server: "slow", fault: faults.Fault{Kind: faults.Slow, Seconds: 0.5}, when: onceAvailable,
		phase: v1alpha1.MachineProvisioned, machineSays: "server metal3-system/slow is provisioned",
		afterwards: (*stackFixture).release,
	},
	{
		server: "no-power", fault: faults.Fault{Kind: faults.PowerStuck}, when: onceAvailable, uncleaned: true,
		hostError: bmov1alpha1.ProvisioningError, hostSays: "Failed to set node power state to power on",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/no-power: provisioning error: Metal3 could not install its image",
		afterwards: (*stackFixture).release,
	},
	{
		server: "no-agent", fault: faults.Fault{Kind: faults.AgentSilent}, when: onceAvailable, uncleaned: true,
		hostError: bmov1alpha1.ProvisioningError, hostSays: "Timeout reached while waiting for callback",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/no-agent: provisioning error: Metal3 could not install its image",
		afterwards: (*stackFixture).release,
	},
	{
		server: "bad-disk", fault: faults.Fault{Kind: faults.ImageWriteFails}, when: onceAvailable,
		hostError: bmov1alpha1.ProvisioningError, hostSays: "Input/output error",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/bad-disk: provisioning error: Metal3 could not install its image",
		afterwards: (*stackFixture).release,
	},
	{
		server: "bad-sum", wrongChecksum: true, when: onceAvailable, uncleaned: true,
		hostError: bmov1alpha1.ProvisioningError, hostSays: "checksum",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/bad-sum: provisioning error: Metal3 could not install its image",
		afterwards: (*stackFixture).release,
	},
	{
		server: "dies", fault: faults.Fault{Kind: faults.DiesAfter, Minutes: 0.01, Power: faults.PowerOff}, when: onceProvisioned,
		hostError: bmov1alpha1.PowerManagementError, hostSays: "power off",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/dies: power management error: ",
		afterwards: (*stackFixture).retryNow,
	},
	{
		server: "dirty", fault: faults.Fault{Kind: faults.AgentSilent}, when: onRelease,
		hostError: bmov1alpha1.ProvisioningError, hostSays: "Cleaning failed: ", // and sometimes no reason: Ironic writes that later
		phase: v1alpha1.MachineReleasing, machineSays: "The server stays claimed until Metal3 has cleaned it",
		afterwards: (*stackFixture).finishDeletion,
	},
	{
		server: "stays-on", fault: faults.Fault{Kind: faults.PowerStuck}, when: onRelease,
		hostError: bmov1alpha1.ProvisioningError, hostSays: "Failed to set node power state to power off",
		phase: v1alpha1.MachineReleasing, machineSays: "The server stays claimed until Metal3 has cleaned it",
		afterwards: (*stackFixture).finishDeletion,
	},
	// Behind IPMI a user sees errors of the same types.
	{
		server: "ipmi-hangs", fault: faults.Fault{Kind: faults.BMCUnreachable}, when: fromTheStart,
		hostError: bmov1alpha1.RegistrationError, hostSays: "IPMI call failed: power status",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/ipmi-hangs is in error (registration error)",
		afterwards: (*stackFixture).retryNow,
	},
	{
		server: "ipmi-no-entry", fault: faults.Fault{Kind: faults.WrongPassword}, when: fromTheStart,
		hostError: bmov1alpha1.RegistrationError, hostSays: "IPMI call failed: power status",
		phase: v1alpha1.MachineFailed, machineSays: "server metal3-system/ipmi-no-entry is in error (registration error)",
		afterwards: (*stackFixture).correctPassword,
	},
	{
		server: "ipmi-stays-on", fault: faults.Fault{Kind: faults.PowerStuck}, when: onRelease,
		hostError: bmov1alpha1.ProvisioningError, hostSays: "Failed to set node power state to power off",
		phase: v1alpha1.MachineReleasing, machineSays: "The server stays claimed until Metal3 has cleaned it",
		afterwards: (*stackFixture).finishDeletion,
	},
}

// tryFault pins a Machine to a server with a fault, and checks what host and Machine report.
func (w *stackFixture) tryFault(t *testing.T, tc faultCase, table *table) {
	if tc.when != fromTheStart {
		w.untilState(t, tc.server, bmov1alpha1.StateAvailable)
	}
	if tc.uncleaned {
		w.disableCleaning(t, tc.server)
	}
	properties := map[string]string{v1alpha1.PropertyServerName: tc.server}
	switch {
	case tc.wrongChecksum:
		properties[v1alpha1.PropertyImageChecksum] = strings.Repeat("0", 64)
	case tc.when == onceAvailable:
		w.breakServer(t, tc)
	}
	machine := newMachine("wants-"+tc.server, "small", properties)
	w.create(t, w.Client, machine)
	if tc.when == onceProvisioned || tc.when == onRelease {
		w.untilPhase(t, machine.Name, v1alpha1.MachineProvisioned)
		w.breakServer(t, tc)
	}
	if tc.when == onRelease {
		if err := w.Client.Delete(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	what := fmt.Sprintf("host and Machine to report the fault of %s", tc.server)
	w.untilHost(t, what, tc.server, machine.Name, func(host *bmov1alpha1.BareMetalHost, found *v1alpha1.Machine) error {
		if host == nil || found == nil || host.Status.ErrorType != tc.hostError || !strings.Contains(host.Status.ErrorMessage, tc.hostSays) ||
			found.Status.Phase != tc.phase || !strings.Contains(readyMessage(found), tc.machineSays) {
			return fmt.Errorf("the host is %s, the Machine is %s", describeHost(host), describeMachine(found))
		}
		table.add(tc, describeHost(host), describeMachine(found))
		return nil
	})
	if !tc.wrongChecksum {
		if err := w.Rack.Repair(t.Context(), tc.server); err != nil {
			t.Fatal(err)
		}
		w.logf("server %s is repaired", tc.server)
	}
	repaired := time.Now()
	how := tc.afterwards(w, t, tc.server, machine.Name)
	host, _ := look[*bmov1alpha1.BareMetalHost](w.journal, tc.server)
	found, _ := look[*v1alpha1.Machine](w.journal, machine.Name)
	table.recovered(tc, fmt.Sprintf("%s: after %.0fs the host is %s, the Machine %s", how, time.Since(repaired).Seconds(), describeHost(host),
		phaseOf(found)))
}

// phaseOf is the phase of a Machine, or that it is gone.
func phaseOf(machine *v1alpha1.Machine) string {
	if machine == nil {
		return "gone"
	}
	return string(machine.Status.Phase)
}

// correctPassword corrects the credentials of a BMC, so that Metal3 tries again. The Machine that waits for the server
// gets it.
func (w *stackFixture) correctPassword(t *testing.T, host, machine string) string {
	secret := &corev1.Secret{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: stack.HostsNamespace, Name: host + "-bmc"}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Annotations = map[string]string{"example.com/corrected": "true"}
	if err := w.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.untilPhase(t, machine, v1alpha1.MachineProvisioned)
	w.logf("server %s accepts the credentials, and Machine %s has it", host, machine)
	return "credentials corrected"
}

// retryNow makes Metal3 retry at once, instead of after its back-off, and waits until the Machine has the server.
func (w *stackFixture) retryNow(t *testing.T, host, machine string) string {
	w.touchHost(t, host)
	w.untilHost(t, fmt.Sprintf("host %s to be in order, and Machine %s to have it", host, machine), host, machine,
		func(host *bmov1alpha1.BareMetalHost, machine *v1alpha1.Machine) error {
			if host == nil || machine == nil || host.Status.ErrorType != "" || !host.Status.PoweredOn ||
				machine.Status.Phase != v1alpha1.MachineProvisioned {
				return fmt.Errorf("the host is %s, the Machine is %s", describeHost(host), describeMachine(machine))
			}
			return nil
		})
	w.logf("server %s is well, and Machine %s has it", host, machine)
	return "BareMetalHost annotated, to be reconciled now"
}

// touchHost changes a BareMetalHost, so that Metal3 reconciles it.
func (w *stackFixture) touchHost(t *testing.T, name string) {
	t.Helper()
	host, err := w.Host(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, "example.com/repaired", "true")
	if err := w.Client.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// release deletes the Machine, as its message says.
func (w *stackFixture) release(t *testing.T, host, machine string) string {
	if err := w.Client.Delete(t.Context(), newMachine(machine, "", nil)); err != nil {
		t.Fatal(err)
	}
	w.untilReleased(t, host, machine)
	return "Machine deleted"
}

// finishDeletion makes Metal3 clean the server of a Machine that is being deleted.
func (w *stackFixture) finishDeletion(t *testing.T, host, machine string) string {
	w.touchHost(t, host)
	w.untilReleased(t, host, machine)
	return "BareMetalHost annotated, to be reconciled now"
}

func (w *stackFixture) untilReleased(t *testing.T, host, machine string) {
	t.Helper()
	w.untilGone(t, machine)
	w.untilState(t, host, bmov1alpha1.StateAvailable)
	w.checkReleased(t, host)
	w.logf("server %s is released and available", host)
}

func (w *stackFixture) breakServer(t *testing.T, tc faultCase) {
	t.Helper()
	if err := w.Rack.Break(t.Context(), tc.server, tc.fault); err != nil {
		t.Fatal(err)
	}
	w.logf("server %s gets the fault %s", tc.server, tc.fault.Kind)
}

// disableCleaning makes Metal3 install a server without cleaning it before.
func (w *stackFixture) disableCleaning(t *testing.T, name string) {
	t.Helper()
	host, err := w.Host(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.LastTenantAnnotationKey, stack.MachinesNamespace)
	if err := w.Client.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// readyMessage returns the message of the Ready condition.
func readyMessage(machine *v1alpha1.Machine) string {
	if ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Message
	}
	return ""
}

// A table collects what a user sees of each fault, and what repaired the server.
type table struct {
	mu   sync.Mutex
	rows map[string][]string
}

func (t *table) add(tc faultCase, host, machine string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[string][]string{}
	}
	t.rows[tc.server] = []string{tc.String(), "  BareMetalHost\t" + host, "  Machine\t" + machine}
}

func (t *table) recovered(tc faultCase, how string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows[tc.server] = append(t.rows[tc.server], "  repaired\t"+how)
}

// String shows the table.
func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var text strings.Builder
	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, tc := range allFaults {
		for _, line := range t.rows[tc.server] {
			_, _ = fmt.Fprintln(writer, line) // a write to memory does not fail
		}
	}
	_ = writer.Flush()
	return text.String()
}
