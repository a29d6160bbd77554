// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

// A Suite is one of Karpenter's.
type Suite struct {
	// Program is the suite, as `make upstream-tools` builds it.
	Program string
	// prefix is what ginkgo puts before the name of each spec when it filters.
	prefix string
}

var (
	regression  = Suite{Program: "karpenter-regression", prefix: "Regression "}
	disruptions = Suite{Program: "karpenter-disruption", prefix: "Disruption "}
)

// A Lane is a part of a suite that runs on a sandbox of its own, because it needs other settings than the rest.
type Lane struct {
	// Name on the command line and in the table.
	Name string
	Suite
	// Focus are regular expressions for the specs of this lane. Empty for the lane with all remaining specs of the suite.
	Focus []string
	// Skip are those for specs that cannot run on a sandbox.
	Skip []string
	// ProviderArgs are flags of the provider, and SuiteArgs those of the suite.
	ProviderArgs, SuiteArgs []string
	// Requirements of the default pool, beside its operating system.
	Requirements []karpv1.NodeSelectorRequirementWithMinValues
	// Fleet are the servers, in place of those that the other lanes share. It may be nil.
	Fleet []byte
	// Kind has the tenant look like Karpenter's kind cluster: its scheduler has the configuration that the specs expect, and the provider
	// takes the settings of a Deployment.
	Kind bool
}

// gates are those of Karpenter's optional features that the suite tests.
const gates = "--feature-gates=StaticCapacity=true,NodeRepair=true,CapacityBuffer=true,ReservedCapacity=true"

// Lanes are all parts of the suites; each spec is in exactly one.
func Lanes() []Lane {
	return []Lane{
		// The provider with its defaults, and Karpenter's feature gates on.
		{Name: "default", Suite: regression, ProviderArgs: []string{gates}},
		// Terminating first is tested with feature gates in a variable of Karpenter's Deployment. The flag of a sandbox's provider would win.
		{Name: "disruption", Suite: disruptions, Skip: []string{"^TerminateFirst "}, ProviderArgs: []string{gates}},
		// The same, for specs that take more than ten minutes each.
		{
			Name: "slow", Suite: regression,
			Focus:        []string{"after the registration timeout when the node doesn't register$"},
			ProviderArgs: []string{gates},
		},
		{
			Name: "slow-disruption", Suite: disruptions,
			Focus:        []string{"^Drift Failure .* if the replacement node"},
			ProviderArgs: []string{gates},
		},
		// Core's newer repair, for a fault that nothing on a node resets. Those for kubelet's conditions need Karpenter's own provider.
		{
			Name: "repair", Suite: disruptions,
			Focus:        []string{"^Repair "},
			ProviderArgs: []string{gates, "--legacy-node-repair=false", "--fault-toleration=30s"},
			SuiteArgs:    []string{"--repair-condition=SysLogsGPUFallenOff=True"},
		},
		// This spec requires spot capacity and waits for a quarter of an hour. The specs after it in its container
		// would not run.
		{Name: "spot", Suite: disruptions, Focus: []string{"^Drift NodePool Drift NodeRequirements$"}, ProviderArgs: []string{gates}},
		// These specs expect one buffer pod per node. Karpenter's own provider uses its smallest type for them.
		{
			Name: "buffers", Suite: regression,
			Focus:        []string{"^CapacityBuffer "},
			ProviderArgs: []string{gates},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{require(corev1.LabelInstanceTypeStable, "small")},
		},
		// These read the scheduler's configuration, and change the settings of Karpenter. They need four zones.
		{
			Name: "default-spread", Suite: regression,
			Focus:        []string{"^DefaultTopologySpreadConstraints "},
			ProviderArgs: []string{gates},
			Fleet:        fourZonesFile, Kind: true,
		},
		// These expect a cloud's label of the capacity type.
		{
			Name: "on-demand", Suite: regression,
			Focus:        []string{"^NodeClaim StandaloneNodeClaim should create a standard NodeClaim$"},
			ProviderArgs: []string{gates},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{require(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand)},
		},
	}
}

func require(key, value string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
}

// LaneOf returns the lane with the name.
func LaneOf(name string) (Lane, error) {
	lanes := Lanes()
	index := slices.IndexFunc(lanes, func(lane Lane) bool { return lane.Name == name })
	if index < 0 {
		var names []string
		for _, lane := range lanes {
			names = append(names, lane.Name)
		}
		return Lane{}, fmt.Errorf("there is no lane %q; there are %s", name, strings.Join(names, ", "))
	}
	return lanes[index], nil
}

// filter returns the flags of ginkgo that select the specs of the lane, or those of them that match focus.
func (l Lane) filter(focus string) []string {
	anchor := func(expression string) string {
		if rest, anchored := strings.CutPrefix(expression, "^"); anchored {
			return "^" + l.prefix + rest
		}
		return expression
	}
	var args []string
	if focus != "" {
		args = append(args, "--ginkgo.focus="+anchor(focus))
	} else {
		for _, expression := range l.Focus {
			args = append(args, "--ginkgo.focus="+anchor(expression))
		}
	}
	for _, expression := range l.Skip {
		args = append(args, "--ginkgo.skip="+anchor(expression))
	}
	for _, other := range Lanes() {
		if other.Name == l.Name || other.Suite != l.Suite {
			continue
		}
		for _, expression := range other.Focus {
			args = append(args, "--ginkgo.skip="+anchor(expression))
		}
	}
	return args
}

//go:embed manifests/fleet.yaml
var fleetFile []byte

//go:embed manifests/small-fleet.yaml
var smallFleetFile []byte

//go:embed manifests/four-zones.yaml
var fourZonesFile []byte

//go:embed manifests/management.yaml
var managementFile []byte

//go:embed manifests/nodeclass.yaml
var nodeClassFile []byte

// writeDefaults writes the default node class and the default pool of a lane into dir, and returns the suite's flags for them.
func writeDefaults(dir string, lane Lane) ([]string, error) {
	nodePool := &karpv1.NodePool{}
	nodePool.APIVersion, nodePool.Kind, nodePool.Name = "karpenter.sh/v1", "NodePool", "default"
	nodePool.Spec.Disruption = karpv1.Disruption{
		ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
		ConsolidateAfter:    karpv1.MustParseNillableDuration("Never"),
		Budgets:             []karpv1.Budget{{Nodes: "100%"}},
	}
	nodePool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	nodePool.Spec.Template.Spec.Requirements = append([]karpv1.NodeSelectorRequirementWithMinValues{require(corev1.LabelOSStable, "linux")},
		lane.Requirements...)
	if lane.Kind {
		nodePool.Spec.Template.Spec.StartupTaints = []corev1.Taint{joining}
	}
	pool, err := yaml.Marshal(nodePool)
	if err != nil {
		return nil, fmt.Errorf("encoding the default NodePool, %w", err)
	}
	var args []string
	for flag, content := range map[string][]byte{"default-nodeclass": nodeClassFile, "default-nodepool": pool} {
		path := filepath.Join(dir, flag+".yaml")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing the suite's --%s, %w", flag, err)
		}
		args = append(args, "--"+flag+"="+path)
	}
	return args, nil
}
