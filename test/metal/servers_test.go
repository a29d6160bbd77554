// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// TestServers registers a rack of servers and installs them. Some have no fault, and each of the others has another
// one. They run at the same time, so that a fault of one server must not affect the others.
func TestServers(t *testing.T) {
	w := &stackFixture{fixture: newFixture(t, func() error { return stack.Missing(bin) })}
	w.journal = newJournal(t, w.logf)
	w.startStack(t, stack.Config{
		Scenario: filepath.Join("testdata", "rack.yaml"), BootCommand: filepath.Join("testdata", "boot-nothing"),
		AgentTimeout: 30 * time.Second, PowerTimeout: 10 * time.Second,
		ManagerFlags: w.startLab(t, filepath.Join(w.dir, "lab")),
	})
	defer w.keepJournal(t)()
	image := w.Media.Add("linux.qcow2", []byte("the disk image of the test\n"))
	w.createFleet(t, []v1alpha1.NodeTypeTemplate{
		nodeType("gpu", "cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "8"),
		nodeType("old", "cpu", "16", "memory", "128Gi"), nodeType("small", "cpu", "8", "memory", "64Gi"),
		nodeType("networked", "cpu", "4", "memory", "32Gi"),
	}, image)
	for _, server := range w.Rack.Servers {
		labels := map[string]string{kindLabel: server.Profile, "rack": "r1"}
		if err := w.Register(t.Context(), server, labels); err != nil {
			t.Fatal(err)
		}
	}
	w.logf("%d servers are registered, with the credentials of their BMCs", len(w.Rack.Servers))
	w.checkSeen(t, 0, "processes")
	table := &table{}
	t.Run("each", func(t *testing.T) {
		for _, nodeType := range []string{"gpu", "old"} {
			t.Run("in order, "+nodeType, func(t *testing.T) {
				t.Parallel()
				w.checkLifecycle(t, nodeType, image)
			})
		}
		t.Run("networks of tenants", func(t *testing.T) {
			t.Parallel()
			w.checkNetworks(t)
		})
		for _, fault := range allFaults {
			t.Run(fault.server, func(t *testing.T) {
				t.Parallel()
				w.tryFault(t, fault, table)
			})
		}
	})
	w.logf("what a user sees of each fault:\n%s", table)
}

// checkLifecycle installs and releases a server of a NodeType whose servers have no fault.
func (w *stackFixture) checkLifecycle(t *testing.T, nodeType string, image stack.Image) {
	var inOrder []string
	for _, server := range w.Rack.Servers {
		if server.Profile != nodeType {
			continue
		}
		inOrder = append(inOrder, server.Name)
		w.untilState(t, server.Name, bmov1alpha1.StateAvailable)
		w.checkInspected(t, server)
	}
	w.logf("inspected and available: %s", strings.Join(inOrder, ", "))

	machine := newMachine("web-"+nodeType, nodeType, map[string]string{
		v1alpha1.PropertyUserData:    "#cloud-config\nhostname: web\nruncmd:\n- [touch, /run/booted]\n",
		v1alpha1.PropertyNetworkCIDR: "10.20.0.1/24", v1alpha1.PropertyDNSServers: "10.20.0.53",
	})
	w.create(t, w.Client, machine)
	w.untilPhase(t, machine.Name, v1alpha1.MachineProvisioned)
	w.checkInstalled(t, machine.Name, image)
	w.logf("Machine %s is provisioned: the server has booted our image, with our user data and network data", machine.Name)

	// A second one, while the first one runs.
	second := newMachine("db-"+nodeType, nodeType, nil)
	if len(inOrder) > 1 {
		w.create(t, w.Client, second)
	}
	host := w.hostOf(t, machine.Name)
	if err := w.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.untilGone(t, machine.Name)
	w.untilState(t, host, bmov1alpha1.StateAvailable)
	w.checkReleased(t, host)
	w.logf("server %s is cleaned and available again", host)
	if len(inOrder) > 1 {
		w.untilPhase(t, second.Name, v1alpha1.MachineProvisioned)
	}
}

// checkInspected compares the hardware details of a host with the hardware of its server.
func (w *stackFixture) checkInspected(t *testing.T, server scenario.Server) {
	t.Helper()
	host, err := w.Host(t.Context(), server.Name)
	if err != nil {
		t.Fatal(err)
	}
	details := host.Status.HardwareDetails
	if details == nil {
		t.Fatalf("host %s is available, and has no hardware details: it was not inspected", server.Name)
	}
	got := map[string]any{
		"manufacturer": details.SystemVendor.Manufacturer, "arch": details.CPU.Arch, "cpus": details.CPU.Count,
		"memory in MiB": details.RAMMebibytes,
	}
	_, _, threads := server.Hardware.Count()
	want := map[string]any{
		"manufacturer": server.Hardware.Manufacturer, "arch": server.Hardware.Processors[0].Architecture, "cpus": threads,
		"memory in MiB": server.Hardware.MemoryGiB << 10,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the hardware of host %s is not that of its server (-want +got):\n%s", server.Name, diff)
	}
	var macs []string
	for _, nic := range details.NIC {
		macs = append(macs, nic.MAC)
	}
	slices.Sort(macs)
	if diff := cmp.Diff(server.Hardware.MACs(), macs); diff != "" {
		t.Errorf("the network interfaces of host %s are not those of its server (-want +got):\n%s", server.Name, diff)
	}
	// Ironic rounds to GiB.
	if len(details.Storage) != 1 || int64(details.Storage[0].SizeBytes)>>30 != int64(server.Hardware.Disks[0].Bytes())>>30 {
		t.Errorf("the disks of host %s are %+v, want the smallest of its server, %+v", server.Name, details.Storage, server.Hardware.Disks[0])
	}
}

// checkReleased fails if a released server is not clean.
func (w *stackFixture) checkReleased(t *testing.T, host string) {
	t.Helper()
	found, err := w.Host(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	if found.Spec.ConsumerRef != nil || found.Spec.Image != nil || found.Spec.UserData != nil || found.Spec.NetworkData != nil {
		t.Errorf("host %s is available, but still has settings of its last user: %+v", host, found.Spec)
	}
	server, err := w.Rack.Server(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	if server.Image != nil {
		t.Errorf("server %s was cleaned, but still has image %+v", host, server.Image)
	}
}

// hostOf returns the name of a Machine's server.
func (w *stackFixture) hostOf(t *testing.T, name string) string {
	t.Helper()
	machine, _ := look[*v1alpha1.Machine](w.journal, name)
	if machine == nil || machine.Status.HostRef == nil {
		t.Fatalf("Machine %s has no server: it is %s", name, describeMachine(machine))
	}
	return machine.Status.HostRef.Name
}

func (w *stackFixture) untilState(t *testing.T, name string, state bmov1alpha1.ProvisioningState) {
	t.Helper()
	what := fmt.Sprintf("host %s to be %s", name, state)
	w.untilHost(t, what, name, "", func(host *bmov1alpha1.BareMetalHost, _ *v1alpha1.Machine) error {
		if host == nil || host.Status.Provisioning.State != state {
			return fmt.Errorf("it is %s", describeHost(host))
		}
		return nil
	})
}

func (w *stackFixture) untilPhase(t *testing.T, name string, phase v1alpha1.MachinePhase) {
	t.Helper()
	what := fmt.Sprintf("Machine %s to be %s", name, phase)
	w.untilHost(t, what, "", name, func(_ *bmov1alpha1.BareMetalHost, machine *v1alpha1.Machine) error {
		if machine == nil || machine.Status.Phase != phase {
			return fmt.Errorf("it is %s", describeMachine(machine))
		}
		return nil
	})
}

func (w *stackFixture) untilGone(t *testing.T, name string) {
	t.Helper()
	what := fmt.Sprintf("Machine %s to be gone", name)
	w.untilHost(t, what, "", name, func(_ *bmov1alpha1.BareMetalHost, machine *v1alpha1.Machine) error {
		if machine != nil {
			return fmt.Errorf("it is %s", describeMachine(machine))
		}
		return nil
	})
}

// untilHost waits until the check of a host and a Machine, of which either may be missing, returns no error.
func (w *stackFixture) untilHost(t *testing.T, what, host, machine string,
	check func(*bmov1alpha1.BareMetalHost, *v1alpha1.Machine) error) {
	t.Helper()
	w.until(t, what, func(context.Context) error {
		foundHost, _ := look[*bmov1alpha1.BareMetalHost](w.journal, host)
		foundMachine, _ := look[*v1alpha1.Machine](w.journal, machine)
		return check(foundHost, foundMachine)
	})
}

// newMachine returns a Machine without a tenant. It creates nothing.
func newMachine(name, nodeType string, properties map[string]string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: stack.MachinesNamespace, Name: name}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
	machine.Spec.Properties = properties
	return machine
}
