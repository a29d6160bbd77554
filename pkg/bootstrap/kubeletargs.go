// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// Arguments of the kubelet that other fields of a Join decide.
const (
	argProviderID = "provider-id"
	argNodeLabels = "node-labels"
)

// ArgKubeReserved is the argument of the kubelet for what a NodeType sets aside.
const ArgKubeReserved = "kube-reserved"

// reservedArgs maps each kubelet argument that a Join sets by itself, or must not have, to what to do instead.
var reservedArgs = map[string]string{
	argProviderID:          "it is set from the provider ID",
	argNodeLabels:          "use the labels",
	argRegisterTaints:      "use the taints",
	"hostname-override":    "it is set from the node name",
	"node-ip":              "the kubelet finds the address that the server has; choose that one by the properties of its network",
	"register-node":        "a server that does not register never joins",
	"bootstrap-kubeconfig": "kubeadm sets it",
	"kubeconfig":           "kubeadm sets it",
	"config":               "kubeadm sets it",
}

// kubeletArgBreakers are what systemd, which starts the kubelet, does not leave as it is in an argument.
const kubeletArgBreakers = " \t\r\n'\"\\$"

// CheckKubeletArgs returns everything that is wrong with arguments that a user has written, or nil. The API server has the same
// rules for Machines; these are for Machines that are older than the rules.
func CheckKubeletArgs(args map[string]string) error {
	errs := validateKubeletArgs(args)
	if _, found := args[ArgKubeReserved]; found {
		errs = append(errs, fmt.Errorf("kubelet argument %q cannot be given: set the overhead of the NodeType, which Karpenter reckons with",
			ArgKubeReserved))
	}
	if _, err := capacity.ParseKubelet(args); err != nil {
		errs = append(errs, err)
	}
	return utilerrors.NewAggregate(errs)
}

func validateKubeletArgs(args map[string]string) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if instead, reserved := reservedArgs[name]; reserved {
			errs = append(errs, fmt.Errorf("kubelet argument %q cannot be given: %s", name, instead))
			continue
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("kubelet argument %q is not a flag name; write it without leading dashes, the value apart", name))
		}
		if strings.ContainsAny(args[name], kubeletArgBreakers) {
			errs = append(errs, fmt.Errorf("the value of kubelet argument %q holds a blank, a quote, a backslash or a dollar sign, "+
				"which systemd would split or change: write it without, or put it into a file of the image", name))
		}
	}
	return errs
}

// kubeletLabels are the keys in Kubernetes' own namespaces that NodeRestriction lets a kubelet set on its Node.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// SelfSettableLabels returns the labels that a kubelet may set on its own Node. It refuses to start when asked for
// others in Kubernetes' namespaces, so they must not reach its command line.
func SelfSettableLabels(labels map[string]string) map[string]string {
	settable := map[string]string{}
	for key, value := range labels {
		if selfSettable(key) {
			settable[key] = value
		}
	}
	return settable
}

func selfSettable(key string) bool {
	namespace, _, namespaced := strings.Cut(key, "/")
	if !namespaced || !within(namespace, "kubernetes.io") && !within(namespace, "k8s.io") {
		return true
	}
	return slices.Contains(kubeletLabels, key) ||
		within(namespace, corev1.LabelNamespaceSuffixKubelet) || within(namespace, corev1.LabelNamespaceSuffixNode)
}

func within(namespace, suffix string) bool {
	return namespace == suffix || strings.HasSuffix(namespace, "."+suffix)
}

// nodeLabelsArg writes labels as the kubelet's --node-labels takes them, in a stable order: user data that changed
// by order alone would look like drift.
func nodeLabelsArg(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}
