// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package advertised knows what a node is to advertise, and says what is missing. A GPU that nothing advertises keeps
// Karpenter waiting for the node without an end, and neither the pod nor the node says why.
package advertised

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// DefaultGrace is how long a node has to advertise everything after it has registered. Operators that install drivers
// take several minutes.
const DefaultGrace = 10 * time.Minute

// shortfall is a resource of which there is less than there is to be.
type shortfall struct {
	name           corev1.ResourceName
	has, shouldHas string
}

// missing are the accelerators that a node does not advertise as its type promises, by name. CPU and memory are measured
// by kubelet, and always a little less.
func missing(promised, advertised corev1.ResourceList) []shortfall {
	var all []shortfall
	for _, name := range v1alpha1.Accelerators(promised) {
		should, has := promised[name], advertised[name]
		if has.Cmp(should) < 0 {
			all = append(all, shortfall{name: name, has: has.String(), shouldHas: should.String()})
		}
	}
	return all
}

// explain says what is missing on a node, and where to look for it.
func explain(node, nodeType string, all []shortfall, grace time.Duration) string {
	var parts []string
	for _, one := range all {
		has := one.has
		if has == "0" {
			has = "none"
		}
		parts = append(parts, fmt.Sprintf("%s of %s %s", has, one.shouldHas, one.name))
	}
	return fmt.Sprintf("node %s has registered, and %s later advertises %s that NodeType %s promises. Look at: "+
		"the OS image (has it the driver, and does that load: dmesg and the vendor's tool, such as nvidia-smi, on the server); "+
		"the container runtime (is it set up for the devices); "+
		"the device plugin or GPU operator in this cluster (kubectl get pods -A --field-selector spec.nodeName=%s, and their logs); "+
		"and whether the NodeType tells the truth",
		node, grace, strings.Join(parts, " and "), nodeType, node)
}
