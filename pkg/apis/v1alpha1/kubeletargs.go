// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KubeletArgs are extra arguments of a kubelet, by their names without leading dashes: {"max-pods": "200"}. What the join
// says by itself cannot be said again here: who the node is, where it joins, its labels and taints, and what its
// NodeType reserves.
//
// +kubebuilder:validation:MaxProperties=32
// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'))",message="name kubelet arguments without leading dashes, the value apart, such as max-pods: \"200\""
// +kubebuilder:validation:XValidation:rule="!self.exists(name, name in ['provider-id', 'node-labels', 'register-with-taints', 'register-node', 'hostname-override', 'node-ip', 'bootstrap-kubeconfig', 'kubeconfig', 'config', 'kube-reserved'])",message="provider-id, hostname-override, node-ip, register-node, kubeconfig, bootstrap-kubeconfig and config are set by the join: leave them out; instead of node-labels and register-with-taints use labels and taints, instead of kube-reserved the overhead of the NodeType"
type KubeletArgs map[string]KubeletArg

// KubeletArg is the value of an argument of the kubelet.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]\\'\"$\\\\\\\\]')",message="the value of a kubelet argument holds no blank, quote, backslash or dollar sign, which systemd would split or change: write it without, or put it into a file of the image"
type KubeletArg string

// Strings returns the arguments as text.
func (a KubeletArgs) Strings() map[string]string {
	args := make(map[string]string, len(a))
	for name, value := range a {
		args[name] = string(value)
	}
	return args
}
