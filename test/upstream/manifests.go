// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

//go:embed manifests/fleet.yaml
var fleetFile []byte

//go:embed manifests/small-fleet.yaml
var smallFleetFile []byte

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
