// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vlan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vlan/guest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vm"
)

const (
	provisioningVLAN = 5
	redVLAN          = 100
	blueVLAN         = 200
)

// stations are what is plugged into the switch: the servers' network interfaces, and another machine in each network. All addresses are
// of one subnet, so that nothing but VLANs keeps them apart.
var stations = []guest.Station{
	{Name: "net-01", Address: "192.0.2.1/24", MAC: "52:54:00:00:02:01"},
	{Name: "net-02", Address: "192.0.2.2/24", MAC: "52:54:00:00:02:02"},
	{Name: "provisioning", Address: "192.0.2.50/24", VLAN: provisioningVLAN},
	{Name: "red", Address: "192.0.2.100/24", VLAN: redVLAN},
	{Name: "blue", Address: "192.0.2.200/24", VLAN: blueVLAN},
}

// startLab starts the switch, and returns the flags by which the manager uses it.
func (w *stackFixture) startLab(t *testing.T, dir string) []string {
	t.Helper()
	enabled, err := vm.Enabled()
	if err != nil {
		t.Fatal(err)
	}
	if !enabled {
		return nil
	}
	if err := vlan.Missing(bin); err != nil {
		t.Fatalf("something is missing; run `make e2e-metal`:\n%v", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.lab, err = vlan.Start(t.Context(), vlan.Config{
		Dir: dir, Bin: bin, Document: filepath.Join("..", "..", "docs", "network-endpoint.openapi.yaml"), ParkingVLAN: provisioningVLAN,
		Namespace: stack.HostsNamespace, Stations: stations,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the console of the switch:\n%s", w.lab.Console())
		}
		if err := w.lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return []string{"--network-endpoint=" + w.lab.URL, "--network-endpoint-credentials=" + w.lab.Credentials}
}

// checkNetworks has servers of two tenants moved from the provisioning network into those of the tenants, and back, and sends packets.
func (w *stackFixture) checkNetworks(t *testing.T) {
	if w.lab == nil {
		t.Skip("the switch is a virtual machine, because bridges of this machine's kernel may have no VLANs, and E2E_METAL_SERVERS is container")
	}
	if err := w.lab.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	// By the same request, an administrator brings new servers into the provisioning network.
	endpoint, err := network.NewHTTPEndpoint(w.lab.URL, w.lab.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	parked := map[string]int{}
	tenants := map[string]int{"net-01": redVLAN, "net-02": blueVLAN}
	for server := range tenants {
		parked[server] = provisioningVLAN
		move := network.Move{Host: types.NamespacedName{Namespace: stack.HostsNamespace, Name: server}, Network: network.ParkingLot}
		if err := endpoint.Move(t.Context(), move); err != nil {
			t.Fatal(err)
		}
	}
	w.checkReach(t, "before they are claimed", parked)
	w.checkSwitchTests(t) // Metal3 inspects the servers meanwhile
	for server := range tenants {
		w.untilState(t, server, bmov1alpha1.StateAvailable)
	}
	var machines []*v1alpha1.Machine
	for _, tenant := range []struct {
		name string
		vlan int32
	}{{"red", redVLAN}, {"blue", blueVLAN}} {
		w.create(t, w.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.name}})
		cluster := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.name, Name: tenant.name}}
		cluster.Spec.APIServerEndpoint = "192.0.2.254:6443" // nothing joins
		cluster.Spec.Network = &v1alpha1.TenantNetwork{VLAN: &tenant.vlan}
		cluster.Spec.StandAloneMachines = v1alpha1.StandAloneAllowed
		w.create(t, w.Client, cluster)
		machine := newMachine("of-"+tenant.name, "networked", nil)
		machine.Namespace = tenant.name
		w.create(t, w.Client, machine)
		machines = append(machines, machine)
	}
	claimed := map[string]int{}
	for _, machine := range machines {
		w.untilPhase(t, machine.Name, v1alpha1.MachineProvisioned)
		found, _ := look[*v1alpha1.Machine](w.journal, machine.Name)
		if !meta.IsStatusConditionTrue(found.Status.Conditions, v1alpha1.ConditionNetworkReady) {
			t.Errorf("Machine %s is provisioned, and its conditions are %+v", machine.Name, found.Status.Conditions)
		}
		claimed[w.hostOf(t, machine.Name)] = map[string]int{"of-red": redVLAN, "of-blue": blueVLAN}[machine.Name]
	}
	w.checkReach(t, "while tenants have them", claimed)
	for _, machine := range machines {
		if err := w.Client.Delete(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	for _, machine := range machines {
		w.untilGone(t, machine.Name)
	}
	w.checkReach(t, "after they were given back", parked)
	for line := range strings.Lines(w.lab.Console()) {
		if strings.Contains(line, " is in VLAN ") {
			w.logf("  the switch: %s", strings.TrimSpace(line))
		}
	}
}

// checkReach compares who reaches whom with the VLANs that they are in. The servers' VLANs are given.
func (w *stackFixture) checkReach(t *testing.T, when string, vlans map[string]int) {
	t.Helper()
	in := maps.Clone(vlans)
	for _, station := range stations {
		if station.VLAN != 0 {
			in[station.Name] = int(station.VLAN)
		}
	}
	var answers []guest.Answer
	w.until(t, "all servers to be reached in their networks", func(ctx context.Context) (err error) {
		if answers, err = w.lab.Reach(ctx); err != nil {
			return err
		}
		for _, answer := range answers {
			if answer.Error != "" {
				return fmt.Errorf("%+v", answer)
			}
			if same := in[answer.From] == in[answer.To]; answer.Answered && !same {
				t.Fatalf("%s, %s (VLAN %d) reaches %s (VLAN %d) by %s", when, answer.From, in[answer.From], answer.To, in[answer.To], answer.Protocol)
			} else if same && !answer.Answered {
				err = fmt.Errorf("%s does not reach %s by %s, and both are in VLAN %d", answer.From, answer.To, answer.Protocol, in[answer.From])
			}
		}
		return err
	})
	if want := len(stations) * (len(stations) - 1) * 3; len(answers) != want {
		t.Fatalf("%d packets were sent, want %d: from each station to each other one by ping, TCP and UDP", len(answers), want)
	}
	reached := map[string][]string{}
	for _, answer := range answers {
		if answer.Answered && !slices.Contains(reached[answer.From], answer.To) {
			reached[answer.From] = append(reached[answer.From], answer.To)
		}
	}
	for _, station := range stations {
		list := "nothing"
		if others := reached[station.Name]; len(others) > 0 {
			slices.Sort(others)
			list = strings.Join(others, ", ")
		}
		w.logf("  %s, by ping, TCP and UDP: %s (VLAN %d) reaches %s", when, station.Name, in[station.Name], list)
	}
}

// checkSwitchTests runs the switch's own tests, which the kernel of this machine may not run.
func (w *stackFixture) checkSwitchTests(t *testing.T) {
	t.Helper()
	output, err := w.lab.TestOutput(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{"ended with: <nil>", "PASS: TestWrongBridge", "PASS: TestSwitchIsDown"}
	for _, kind := range []string{"linux", "openvswitch"} {
		for _, check := range []string{"ManagerMovesServer", "MoveFromAnywhere", "TaggedFrames", "NotMoved"} {
			wanted = append(wanted, "PASS: TestBridges/"+kind+"/"+check)
		}
	}
	for _, want := range wanted {
		if !strings.Contains(output, want) {
			t.Errorf("the tests of the switch did not print %q:\n%s", want, output)
		}
	}
	w.logf("  the switch's own tests pass, on a bridge of Linux and on one of Open vSwitch, " +
		"also with a server that sends frames with the tag of the provisioning network")
}
