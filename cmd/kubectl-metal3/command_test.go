// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

func before(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// fleet is a snapshot with servers in all states, of two types and two racks, and pods that wait for different reasons.
func fleet() *view.Snapshot {
	provider := v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal3-provider", UID: "metal3-provider"}}
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3-system"
	s := &view.Snapshot{
		TypeMeta: metav1.TypeMeta{Kind: view.SnapshotKind, APIVersion: view.SnapshotVersion}, Time: metav1.NewTime(now),
		Tenant: &view.Tenant{UID: "tenant", NodePools: []karpv1.NodePool{*planning.Pool("default", nil)}},
	}
	for name, resources := range map[string]corev1.ResourceList{
		"h100-8x": env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"), "cpu": env.Resources("cpu", "32", "memory", "128Gi"),
	} {
		nodeType := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: env.MadeBy("metal3-provider")}}
		nodeType.Spec.ProviderRef.Name = provider.Name
		nodeType.Spec.HardwareProfile = v1alpha1.HardwareProfile{Resources: resources,
			BareMetalHosts: env.HostsWith(map[string]string{"type": name})}
		nodeType.Status.Provisioning = &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1140}
		provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, v1alpha1.NodeTypeTemplate{Name: name})
		s.Management.NodeTypes = append(s.Management.NodeTypes, nodeType)
	}
	s.Management.NodeProviders = []v1alpha1.NodeProvider{provider}
	s.Management.HostUsages = usages()
	tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
	tenant.Status.ClusterUID = "tenant"
	s.Management.TenantClusters = []v1alpha1.TenantCluster{tenant}

	host := func(number int, nodeType string, change func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
		name := fmt.Sprintf("server-%02d", number)
		host := env.AvailableHost("metal3-system", name, map[string]string{"rack": []string{"r1", "r2"}[number%2], "type": nodeType})
		host.UID = types.UID(name)
		details := host.Status.HardwareDetails
		details.CPU.Count, details.RAMMebibytes = 96, 768<<10
		if nodeType == "h100-8x" {
			details.SystemVendor = bmov1alpha1.HardwareSystemVendor{Manufacturer: "Example", ProductName: "GX-8 (SKU=4711)", SerialNumber: "4711"}
			details.Firmware.BIOS, details.CPU.Model = bmov1alpha1.BIOS{Vendor: "Example", Version: "2.4"}, "Example 9654"
			details.NIC = make([]bmov1alpha1.NIC, 10)
		}
		host.Status.OperationHistory.Inspect = bmov1alpha1.OperationMetric{Start: before(48 * time.Hour),
			End: before(48*time.Hour - 7*time.Minute)}
		if change != nil {
			change(host)
		}
		s.Management.Hosts = append(s.Management.Hosts, *host)
		return host
	}
	machine := func(number int, name string, phase v1alpha1.MachinePhase, message string, change func(*v1alpha1.Machine)) {
		host := host(number, "h100-8x", func(host *bmov1alpha1.BareMetalHost) {
			host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "acme",
				Name: name}
			host.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		})
		machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name, UID: types.UID(name),
			CreationTimestamp: before(41 * time.Minute)}}
		machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "acme"}
		machine.Status = v1alpha1.MachineStatus{
			Phase: phase, NodeTypeRef: &v1alpha1.NameReference{Name: "h100-8x"},
			HostRef: &v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: message},
				{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue, LastTransitionTime: before(40 * time.Minute)},
			},
		}
		change(&machine)
		s.Management.Machines = append(s.Management.Machines, machine)
	}
	done := func(m *v1alpha1.Machine, condition string, ago time.Duration) {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue,
			LastTransitionTime: before(ago)})
	}
	machine(7, "default-x7f2k", v1alpha1.MachineJoined, "server metal3-system/server-07 is node default-x7f2k", func(m *v1alpha1.Machine) {
		m.Status.NodeName = m.Name
		done(m, v1alpha1.ConditionProvisioned, 24*time.Minute)
		done(m, v1alpha1.ConditionJoined, 21*time.Minute)
	})
	machine(8, "default-late", v1alpha1.MachineProvisioned, "server metal3-system/server-08 boots", func(m *v1alpha1.Machine) {
		done(m, v1alpha1.ConditionProvisioned, 20*time.Minute)
		expected := before(21 * time.Minute)
		m.Status.Progress = &v1alpha1.MachineProgress{Step: 4, Steps: 5, Description: "booting", LastProgressTime: before(20 * time.Minute),
			ExpectedReadyTime: &expected}
	})
	machine(9, "default-new", v1alpha1.MachineProvisioning, "Metal3 is installing", func(m *v1alpha1.Machine) {
		expected := before(-11 * time.Minute)
		m.Status.Progress = &v1alpha1.MachineProgress{Step: 3, Steps: 5, Description: "writing image", LastProgressTime: before(2 * time.Minute),
			ExpectedReadyTime: &expected}
	})
	machine(10, "default-old", v1alpha1.MachineReleasing, "releasing server metal3-system/server-10", func(m *v1alpha1.Machine) {
		m.DeletionTimestamp = &metav1.Time{Time: now.Add(-3 * time.Minute)}
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReleased, Status: metav1.ConditionFalse,
			Message: "Metal3 cleans the disks"})
	})
	annotate := func(key, value string) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) { host.Annotations = map[string]string{key: value} }
	}
	host(11, "h100-8x", annotate(v1alpha1.QuarantinedAnnotationKey,
		`{"reason":"HostError","since":"2026-01-02T12:00:00Z","machine":"acme/default-abc"}`))
	host(12, "h100-8x", func(host *bmov1alpha1.BareMetalHost) {
		annotate(v1alpha1.MaintenanceAnnotationKey, "DIMM3")(host)
		history := &host.Status.OperationHistory
		history.Provision.Start, history.Provision.End = before(9*time.Hour), before(9*time.Hour-14*time.Minute)
		history.Deprovision.Start, history.Deprovision.End = before(6*time.Hour), before(6*time.Hour-8*time.Minute)
	})
	host(13, "h100-8x", func(host *bmov1alpha1.BareMetalHost) {
		host.Status.OperationalStatus, host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.RegistrationError
		host.Status.ErrorMessage = "the BMC refuses the password"
	})
	host(14, "h100-8x", func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine",
			Namespace: "capm3", Name: "worker-0"}
	})
	host(15, "spare", nil)
	host(16, "cpu", nil)

	pod := func(name string, requests corev1.ResourceList, change func(*corev1.Pod)) {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: before(50 * time.Minute)}}
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable}}
		if change != nil {
			change(&pod)
		}
		s.Tenant.Pods = append(s.Tenant.Pods, pod)
	}
	pod("training-0", env.Resources("nvidia.com/gpu", "8"), func(pod *corev1.Pod) {
		pod.UID, pod.Spec.SchedulingGroup = "training-0", &corev1.PodSchedulingGroup{PodGroupName: ptr.To("train")}
	})
	s.Tenant.Events = []corev1.Event{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "training-0"}, LastTimestamp: before(2 * time.Minute),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "training-0"}, Reason: explain.ReasonInsufficientDomainCapacity,
		Message: "no rack has capacity for all 4 pods of the gang: r1 has capacity for 1; it gets no server before there is room for all",
	}}
	pod("training-1", env.Resources("nvidia.com/gpu", "8"), func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status.Phase = "default-x7f2k",
			corev1.PodRunning
	})
	claim := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-x7f2k"}}
	claim.Status.NodeName = "default-x7f2k"
	s.Tenant.NodeClaims = []karpv1.NodeClaim{claim}
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "default-x7f2k"}}
	node.Status.Allocatable = env.Resources("cpu", "94", "memory", "750Gi", "nvidia.com/gpu", "8")
	s.Tenant.Nodes = []corev1.Node{node}
	for i := range s.Management.NodeTypes { // what the manager would have written
		summary := capacityOf(view.New(s), s.Management.NodeTypes[i].Name)
		s.Management.NodeTypes[i].Status.Capacity = summary.Capacity
	}
	return s
}

func capacityOf(f *view.Fleet, name string) view.TypeCapacity {
	for _, capacity := range f.Capacity() {
		if capacity.NodeType == name {
			return capacity
		}
	}
	return view.TypeCapacity{}
}

// fileOf is a snapshot as a file.
func fileOf(t *testing.T, snapshot *view.Snapshot) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.json")
	content, err := json.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// execute runs the command on the snapshot of the fleet, and returns what it printed and its exit code.
func execute(t *testing.T, arguments ...string) (out, problems string, code int) {
	t.Helper()
	return executeOn(t, fleet(), arguments...)
}

func executeOn(t *testing.T, snapshot *view.Snapshot, arguments ...string) (out, problems string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	arguments = append(arguments, "--snapshot", fileOf(t, snapshot))
	code = run(context.Background(), genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}, arguments)
	return stdout.String(), stderr.String(), code
}

// TestGolden prints each view of a fixed fleet.
func TestGolden(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments string
		code      int
	}{
		"fleet":          {arguments: "fleet"},
		"fleet-yaml":     {arguments: "fleet -o yaml"},
		"hosts":          {arguments: "hosts"},
		"hosts-wide":     {arguments: "hosts -o wide"},
		"hosts-filtered": {arguments: "hosts --state JOINED --type h100-8x --tenant acme --rack r2 --zone global -o name"},
		"hosts-none":     {arguments: "hosts --rack r9"},
		"hosts-columns":  {arguments: "hosts -l type=h100-8x,rack!=r1 --sort-by .state -o custom-columns=NAME:.metadata.name,STATE:.state"},
		"hosts-labels":   {arguments: "hosts -A -l type=cpu -L type,gpu --no-headers"},
		"hosts-jsonpath": {arguments: "hosts --state error -o jsonpath={.items[*].why}"},
		"machines":       {arguments: "machines"},
		"machines-json":  {arguments: "machines -o json"},
		"machines-sort":  {arguments: "machines --sort-by=.metadata.name -o name"},
		"tenants":        {arguments: "tenants"},
		"tenants-yaml":   {arguments: "tenants -o yaml"},
		"capacity":       {arguments: "capacity"},
		"capacity-wide":  {arguments: "capacity -o wide"},
		"issues":         {arguments: "issues", code: exitWrong},
		"issues-json":    {arguments: "issues -o json", code: exitWrong},
		"explain-pod":    {arguments: "explain pod training-0", code: exitWrong},
		"explain-runs":   {arguments: "explain pods default/training-1"},
		"explain-group":  {arguments: "explain podgroup/train", code: exitWrong},
		"explain-type":   {arguments: "explain nodetype h100-8x", code: exitWrong},
		"explain-yaml":   {arguments: "explain bmh server-11 -o yaml", code: exitWrong},
		"propose-types":  {arguments: "propose-types"},
		"devices":        {arguments: "propose-types -f testdata/resourceslices.yaml"},
		"timeline-host":  {arguments: "timeline host server-07"},
		"timeline-late":  {arguments: "timeline machine acme/default-late"},
		"timeline-old":   {arguments: "timeline machine default-old"},
		"report":         {arguments: "report --from 2025-12-01 --to 2026-01-01"},
		"report-type":    {arguments: "report --from 30d --by type -n acme"},
		"report-csv":     {arguments: "report --from 2025-12-01 --to 2026-01-01T00:00:00Z -o csv"},
		"report-json":    {arguments: "report --from 24h -o json"},
		"report-none":    {arguments: "report --from 2024-01-01 --to 2024-02-01"},
	} {
		t.Run(name, func(t *testing.T) {
			out, problems, code := execute(t, strings.Fields(tc.arguments)...)
			if code != tc.code {
				t.Errorf("kubectl metal3 %s: exit code %d, want %d", tc.arguments, code, tc.code)
			}
			golden(t, name, "$ kubectl metal3 "+tc.arguments+"\n"+out+problems)
		})
	}
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run the test with -args -update if this is right (-want +got):\n%s", diff)
	}
}

// TestPage: what the pages of the docs show is what the command prints.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubectl-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	usage, err := os.ReadFile("../../docs/usage.md")
	if err != nil {
		t.Fatal(err)
	}
	page = append(page, usage...)
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		printed[strings.TrimSuffix(string(content), "\n")] = true
	}
	blocks := strings.Split(string(page), "```console\n")[1:]
	if len(blocks) < 5 {
		t.Errorf("the page has only %d examples", len(blocks))
	}
	for _, block := range blocks {
		if example, _, _ := strings.Cut(block, "\n```"); !printed[example] {
			t.Errorf("the command does not print this, as testdata has it:\n%s", example)
		}
	}
}

// ownTest are the commands whose examples a test of their own runs, with files beside them or until it is interrupted.
var ownTest = map[string]bool{"register": true, "support-bundle": true, "ui": true}

// subcommand is one that a text names.
var subcommand = regexp.MustCompile(`kubectl[ -]metal3 ([a-z][a-z-]*)`)

// TestHelpExamples runs each example of --help, on the file instead of clusters. The commands that other help names are there.
func TestHelpExamples(t *testing.T) {
	files, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // one writes a file
	count := 0
	var walk func(command *cobra.Command)
	walk = func(command *cobra.Command) {
		for _, named := range subcommand.FindAllStringSubmatch(command.Short+command.Long, -1) {
			if found, _, err := command.Root().Find(named[1:]); err != nil || found.Name() != named[1] {
				t.Errorf("the help of %s names kubectl metal3 %s, which there is not", command.Name(), named[1])
			}
		}
		for line := range strings.Lines(command.Example) {
			words := strings.Fields(line)
			if len(words) < 3 || words[0] != "kubectl" || words[1] != "metal3" || verbs[words[2]] || ownTest[words[2]] {
				continue
			}
			var arguments []string
			for i := 2; i < len(words); i++ {
				switch words[i] {
				case "--tenant-kubeconfig", "--snapshot":
					i++
				case "-f":
					i++
					arguments = append(arguments, "-f", filepath.Join(files, words[i]))
				default:
					arguments = append(arguments, words[i])
				}
			}
			count++
			if words[2] == "top" {
				terminal := onTerminal(t, 100, 30, append(arguments, "--snapshot", fileOf(t, fleet()))...)
				terminal.until(t, "10 servers")
				terminal.quit(t, "q")
				continue
			}
			if out, problems, code := execute(t, arguments...); code == exitError || out+problems == "" {
				t.Errorf("%s: exit code %d, printed %q: %s", strings.TrimSpace(line), code, out, problems)
			}
		}
		for _, child := range command.Commands() {
			if child.Short == "" || len(child.Example) == 0 && child.Name() != "help" && child.Name() != "completion" {
				t.Errorf("kubectl metal3 %s has no example", child.Name())
			}
			walk(child)
		}
	}
	walk(newCommand(genericiooptions.IOStreams{}))
	if count < 10 {
		t.Errorf("only %d examples were run", count)
	}
}

// TestCompletion asks as a shell does, and as kubectl does by kubectl_complete-metal3.
func TestCompletion(t *testing.T) {
	const files, noFiles = 0, 4
	for name, tc := range map[string]struct {
		reason    string
		arguments []string
		want      []string
		directive int
	}{
		"commands": {"those that begin so", []string{"ti"}, []string{"timeline"}, noFiles},
		"kinds":    {"of explain", []string{"explain", ""}, view.Explainable, noFiles},
		"kind":     {"of timeline", []string{"timeline", ""}, []string{"host", "machine"}, noFiles},
		"hosts": {"those that begin so", []string{"explain", "bmh", "server-1"}, []string{"server-10", "server-11", "server-12",
			"server-13", "server-14", "server-15", "server-16"}, noFiles},
		"host":      {"of a verb", []string{"return", "server-07"}, []string{"server-07"}, noFiles},
		"machine":   {"with its namespace", []string{"reboot", "acme/default-n"}, []string{"acme/default-new"}, noFiles},
		"nodetype":  {"it has no namespace", []string{"explain", "nodetype", ""}, []string{"cpu", "h100-8x"}, noFiles},
		"pod":       {"of the tenant", []string{"explain", "pod", ""}, []string{"training-0", "training-1"}, noFiles},
		"podgroup":  {"of its pods", []string{"explain", "podgroup", "t"}, []string{"train"}, noFiles},
		"nodeclaim": {"of the tenant", []string{"explain", "nodeclaim", ""}, []string{"default-x7f2k"}, noFiles},
		"power":     {"after the Machine", []string{"power", "default-x7f2k", ""}, []string{"on", "off"}, noFiles},
		"enough":    {"there is no second host", []string{"return", "server-07", ""}, nil, noFiles},
		"file":      {"which are on the disk", []string{"snapshot", ""}, nil, files},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			arguments := append([]string{cobra.ShellCompNoDescRequestCmd, "--snapshot", fileOf(t, fleet())}, tc.arguments...)
			if code := run(context.Background(), genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}, arguments); code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr.String())
			}
			want := append(slices.Clone(tc.want), fmt.Sprint(":", tc.directive), "")
			if diff := cmp.Diff(want, strings.Split(stdout.String(), "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// allCommands are those below a command, with those below them.
func allCommands(command *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, below := range command.Commands() {
		all = append(append(all, below), allCommands(below)...)
	}
	return all
}

// TestVersion: a library that the plugin uses has a flag of the same name.
func TestVersion(t *testing.T) {
	for argument, want := range map[string]string{"--version": "kubectl metal3 version v", "--help": "Available Commands:"} {
		streams, _, out, problems := genericiooptions.NewTestIOStreams()
		if code := run(t.Context(), streams, []string{argument}); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, printed %q and %q, want %q", argument, code, out, problems, want)
		}
	}
	for _, command := range allCommands(newCommand(genericiooptions.NewTestIOStreamsDiscard())) {
		words := strings.Fields(command.CommandPath())[2:]
		streams, _, out, problems := genericiooptions.NewTestIOStreams()
		code := run(t.Context(), streams, append(words, "--version"))
		if code != 0 || !strings.HasPrefix(out.String(), "kubectl metal3 version v") {
			t.Errorf("%s --version: exit code %d, printed %q and %q", words, code, out, problems)
		}
		// What libraries add to all programs is not of the plugin.
		pflag.CommandLine.VisitAll(func(foreign *pflag.Flag) {
			if command.Flag(foreign.Name) == foreign {
				t.Errorf("%s has the flag --%s of a library: %s", words, foreign.Name, foreign.Usage)
			}
		})
	}
	streams, _, out, problems := genericiooptions.NewTestIOStreams()
	if code := run(t.Context(), streams, nil); code != 0 || !strings.Contains(out.String(), "Available Commands:") {
		t.Errorf("without arguments: exit code %d, printed %q and %q, want the help", code, out, problems)
	}
}

// TestBadInput: one sentence each, and the exit code of an error.
func TestBadInput(t *testing.T) {
	folder := t.TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "down", "cluster": {"server": `+
		`"https://127.0.0.1:1"}}], "contexts": [{"name": "down", "context": {"cluster": "down"}}], "current-context": "down"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ arguments, want string }{
		"format":      {"hosts -o table", `--output is "table": it must be one of json, `},
		"template":    {"hosts -o jsonpath={.items", `error parsing jsonpath {.items, unclosed action`},
		"no names":    {"fleet -o name --snapshot FILE", `--output is "name": what is listed are no objects, and have no names`},
		"labels":      {"machines -l a=b=c", `--selector is "a=b=c": `},
		"sort":        {"hosts --sort-by .size --snapshot FILE", `couldn't find any field with path "{.size}" in the list of objects`},
		"watch":       {"hosts -w --snapshot FILE", "--snapshot is set, and --watch follows clusters: leave one of them out"},
		"no terminal": {"top --snapshot FILE", "top draws on a terminal, and its input or output is none: use kubectl metal3 fleet"},
		"kind": {"explain disk sda --snapshot FILE",
			`"disk" cannot be explained: name one of pod, podgroup, job, jobset, nodeclaim, machine, host, nodetype`},
		"timeline":    {"timeline pod training-0 --snapshot FILE", `"pod" has no timeline: name host or machine`},
		"report by":   {"report --by rack --snapshot FILE", `--by is "rack": it must be one of tenant, type`},
		"report from": {"report --from yesterday --snapshot FILE", `--from is "yesterday": it must be a time like`},
		"report to":   {"report --to 2026-13-01 --snapshot FILE", `--to is "2026-13-01": it must be a time like`},
		"report ago":  {"report --from -7d --snapshot FILE", `--from is "-7d": it must be a time like`},
		"report order": {"report --from 24h --to 7d --snapshot FILE",
			"--from is 2026-01-01T15:00:00Z, and --to is 2025-12-26T15:00:00Z: --from must be before --to"},
		"report as":   {"report -o table", `--output is "table": it must be one of json, `},
		"not found":   {"explain host server-99 --snapshot FILE", `host "server-99" was not found`},
		"no name":     {"explain host", `the arguments are ["host"]: write kubectl metal3 explain KIND NAME [flags]`},
		"no argument": {"hosts server-07", `the arguments are ["server-07"]: write kubectl metal3 hosts [flags]`},
		"below":       {"what-if drain", "the arguments are []: write kubectl metal3 what-if drain "},
		"command":     {"racks", `unknown command "racks" for "kubectl metal3"`},
		"no file":     {"fleet --snapshot /nowhere/fleet.json", "reading the snapshot, open /nowhere/fleet.json: no such file or directory"},
		"no snapshot": {"fleet --snapshot " + kubeconfig, "reading the snapshot " + kubeconfig + `, it is not a snapshot: its kind is "Config"`},
		"context": {"fleet --kubeconfig " + kubeconfig + " --context up",
			`the kubeconfig of the management cluster: context "up" does not exist`},
		"bundle offline": {"support-bundle --snapshot FILE", "--snapshot is set, and this command reads clusters: leave it out"},
		"tail":           {"support-bundle --tail 0", "--tail is 0: it must be 1 or more"},
		"selector":       {"support-bundle --selector a=b=c", `--selector is "a=b=c": `},
		"no folder":      {"support-bundle -o /nowhere/b.tar.gz --kubeconfig " + kubeconfig, "connection refused"},
		"unreachable":    {"fleet --kubeconfig " + kubeconfig, "connection refused"},
		"tenant": {"explain pod p --kubeconfig " + kubeconfig + " --tenant-context acme",
			`the kubeconfig of the tenant cluster: context "acme" does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			var problems string
			var code int
			if arguments, onFile := strings.CutSuffix(tc.arguments, " --snapshot FILE"); onFile {
				_, problems, code = execute(t, strings.Fields(arguments)...)
			} else {
				var stdout, stderr bytes.Buffer
				code = run(context.Background(), genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}, strings.Fields(tc.arguments))
				problems = stderr.String()
			}
			if code != exitError || !strings.HasPrefix(problems, "error: ") || !strings.Contains(problems, tc.want) || strings.Count(problems,
				"\n") != 1 {
				t.Errorf("exit code %d, printed %q, want a sentence with %q", code, problems, tc.want)
			}
		})
	}
}
