// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodeprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestProposedTypesApply has kubectl do what the comments of what is proposed say, for a NodeProvider that was applied with a type, for one
// that has none, and for a namespace that none has: then every server matches one type, and the type that was there is as it was.
func TestProposedTypesApply(t *testing.T) {
	e := env.NewEnvironment(t)
	kubeconfig := e.Kubeconfig(t, "")
	file := filepath.Join(t.TempDir(), "types.yaml")
	kubectl := func(line string) {
		t.Helper()
		words := strings.Fields(strings.ReplaceAll(line, "FILE", file))
		assets := os.Getenv("KUBEBUILDER_ASSETS")
		if assets == "" {
			assets = "../../bin"
		}
		output, err := exec.CommandContext(t.Context(), filepath.Join(assets, words[0]), append(words[1:], "--kubeconfig", kubeconfig)...).
			CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, output)
		}
	}
	for _, namespace := range []string{"attic", "cellar", "racks"} {
		kubectl("kubectl create namespace " + namespace)
	}
	apply := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl("kubectl apply -f FILE")
	}
	apply(`{apiVersion: karpenter.metal3.io/v1alpha1, kind: NodeProvider, metadata: {name: metal}, spec: {metal3: {clusterRef: {namespace: racks},
  nodeTypes: [{name: known, resources: {cpu: 8, memory: 64Gi}, bareMetalHosts: {selector: {matchLabels: {type: known}}}}]}}}`)
	apply(`{apiVersion: karpenter.metal3.io/v1alpha1, kind: NodeProvider, metadata: {name: empty}, spec: {metal3: {clusterRef:
  {namespace: cellar}}}}`)
	for i, server := range []struct{ namespace, product, label string }{
		{"racks", "R650", "known"}, {"racks", "PowerEdge \"XE9680\": # 8x", "8"}, {"racks", "R750", ""}, {"racks", "R750", ""},
		{"attic", "", "true"}, {"cellar", "", "y"},
	} {
		host := env.AvailableHost(server.namespace, fmt.Sprintf("server-%02d", i), nil)
		if server.label != "" {
			host.Labels = map[string]string{"type": server.label}
		}
		details := host.Status.HardwareDetails
		details.CPU.Count, details.CPU.Model, details.RAMMebibytes = 8*(i+1), "Xeon", 64<<10
		if server.product == "R750" {
			details.CPU.Count = 8
		}
		details.SystemVendor.ProductName = server.product
		e.CreateHost(t, host)
	}
	propose := func(arguments ...string) string {
		t.Helper()
		reconcile(t, e)
		var out, problems bytes.Buffer
		run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &problems},
			append([]string{"propose-types", "--kubeconfig", kubeconfig}, arguments...))
		return out.String() + problems.String()
	}
	const which = "error: servers in the namespaces attic, cellar, racks match no NodeType, and have a NodeProvider each: choose one by " +
		"--hosts-in\n"
	if output := propose(); output != which {
		t.Errorf("it says %s", output)
	}
	for namespace, want := range map[string]int{"attic": 1, "cellar": 1, "racks": 2} {
		proposed := propose("--hosts-in", namespace)
		t.Log(proposed)
		if err := os.WriteFile(file, []byte(proposed), 0o600); err != nil {
			t.Fatal(err)
		}
		commands := 0
		for line := range strings.Lines(proposed) {
			if command, is := strings.CutPrefix(strings.TrimSpace(line), "#   "); is {
				kubectl(command)
				commands++
			}
		}
		if commands != want {
			t.Errorf("%s: %d commands, want %d", namespace, commands, want)
		}
	}
	if again := propose(); again != "every server that has been inspected matches a NodeType, or is used by others\n" {
		t.Errorf("it still says %s", again)
	}
	var out, problems bytes.Buffer
	code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &problems}, []string{"hosts", "--kubeconfig", kubeconfig})
	for name, want := range map[string]string{"server-00": "known", "server-01": "poweredge-xe9680-8x-16cpu-64gi",
		"server-02": "r750-8cpu-64gi", "server-03": "r750-8cpu-64gi", "server-04": "server-40cpu-64gi",
		"server-05": "server-48cpu-64gi"} {
		_, line, _ := strings.Cut(out.String(), name+" ")
		if after := strings.Fields(line); code != 0 || len(after) < 3 || after[2] != want { // zone, rack, types
			t.Errorf("%s does not match %s alone:\n%s%s", name, want, out.String(), problems.String())
		}
	}
	after := &v1alpha1.NodeProvider{}
	if err := e.Client.Get(t.Context(), client.ObjectKey{Name: "metal"}, after); err != nil || len(after.Spec.Metal3.NodeTypes) != 3 ||
		after.Spec.Metal3.NodeTypes[0].Name != "known" {
		t.Errorf("the NodeProvider is %+v, %v", after.Spec.Metal3.NodeTypes, err)
	}
}

// Who may not see NodeTypes would be given a type for each server.
func TestProposedTypesNeedTypes(t *testing.T) {
	snapshot := fleet()
	snapshot.Management.NodeTypes = nil
	snapshot.Missing = []view.Missing{{Cluster: "management", Group: v1alpha1.Group, Resource: "nodetypes"}}
	file := filepath.Join(t.TempDir(), "fleet.json")
	var saved, out, problems bytes.Buffer
	if err := snapshot.Save(&saved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, saved.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &problems}, []string{"propose-types", "--snapshot", file})
	const want = "verbs [list]: without them every server seems to match none\n"
	if code != exitError || out.Len() > 0 || !strings.HasSuffix(problems.String(), want) {
		t.Errorf("exit code %d, printed %s%s", code, out.String(), problems.String())
	}
}

// The error names an object that is not a ResourceSlice of the supported version.
func TestProposedDevicesNeedSlices(t *testing.T) {
	const beta = "{kind: List, items: [{apiVersion: resource.k8s.io/v1beta1, kind: ResourceSlice}]}"
	for content, want := range map[string]string{
		beta: "items[0] of the ResourceSlices is a ResourceSlice of resource.k8s.io/v1beta1: get resourceslices.v1.resource.k8s.io",

		"{items: [{apiVersion: v1, kind: Pod}]}": "is a Pod of v1",

		"{items: []}": "no ResourceSlice is of a node", "[": "reading the ResourceSlices",
	} {
		var out, problems bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(content), Out: &out, ErrOut: &problems},
			[]string{"propose-types", "-f", "-"})
		if code != exitError || out.Len() > 0 || !strings.Contains(problems.String(), want) {
			t.Errorf("%s: exit code %d, printed %s%s, want %s", content, code, out.String(), problems.String(), want)
		}
	}
}

// reconcile makes the NodeTypes of all NodeProviders, as the manager does.
func reconcile(t *testing.T, e *env.Environment) {
	t.Helper()
	controller := nodeprovider.NewController(e.Client, e.Client, inventory.NewInventory(inventory.Options{}),
		events.NewFakeRecorder(100), clock.RealClock{})
	providers := &v1alpha1.NodeProviderList{}
	if err := e.Client.List(t.Context(), providers); err != nil {
		t.Fatal(err)
	}
	for i := range providers.Items {
		if _, err := controller.Reconcile(t.Context(), &providers.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}
