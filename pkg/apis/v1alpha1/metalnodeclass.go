// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetalNodeClassSpec narrows down which servers a NodePool gets and how they are installed.
type MetalNodeClassSpec struct {
	// DisplayName is what people call it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description of its purpose, for people to read.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// ProviderRef names the NodeProvider whose types this class offers. If unset, it offers the types of all providers.
	// +optional
	ProviderRef *NameReference `json:"providerRef,omitempty"`
	// Properties of every Machine of this class. They win over the properties of the NodeType and the NodeProvider.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317)",message="a key has at most 317 characters"
	// +kubebuilder:validation:XValidation:rule="self.map(key, size(key) + size(self[key])).sum() <= 131072",message="all keys and values have at most 131072 characters together: have the server fetch large files at boot, or refer to a MachineConfigTemplate"
	Properties Properties `json:"properties,omitempty"`
	// KubeletArgs are extra arguments of the kubelet of every node of this class.
	// +optional
	KubeletArgs KubeletArgs `json:"kubeletArgs,omitempty"`
}

// MetalNodeClassStatus is the observed state of a MetalNodeClass.
type MetalNodeClassStatus struct {
	// ObservedGeneration is the generation that the conditions describe. -1 until a controller has seen the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: ValidationSucceeded, and Ready, which follows from it; Reconciling or Stalled while it is not ready.
	// Karpenter makes no NodeClaims of a class that is not ready.
	// +optional
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// MetalNodeClass is the node class that NodePools refer to. It lives in the tenant cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=metalnodeclasses,shortName=kmnc,categories={karpenter,karpenter-metal3}
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name is the value of a label of NodeClaims and nodes: it has at most 63 characters"
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.providerRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type MetalNodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MetalNodeClassSpec `json:"spec,omitempty"`
	// +kubebuilder:default:={"observedGeneration":-1}
	Status MetalNodeClassStatus `json:"status,omitempty"`
}

// MetalNodeClassList is a list of MetalNodeClasses.
//
// +kubebuilder:object:root=true
type MetalNodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MetalNodeClass `json:"items"`
}

// ConditionValidationSucceeded is true if the objects that the class refers to exist and its properties are valid.
// Ready follows from it.
const ConditionValidationSucceeded = "ValidationSucceeded"

// GetConditions implements status.Object.
func (in *MetalNodeClass) GetConditions() []status.Condition { return in.Status.Conditions }

// SetConditions implements status.Object.
func (in *MetalNodeClass) SetConditions(conditions []status.Condition) {
	in.Status.Conditions = conditions
}

// StatusConditions implements status.Object.
func (in *MetalNodeClass) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions(ConditionValidationSucceeded).For(in, opts...)
}

// KubeletArgs are extra arguments of a kubelet, by their names without leading dashes: {"max-pods": "200"}. The join
// sets the node's identity, its cluster, its labels and taints, and the overhead of its NodeType: arguments for these
// are rejected.
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

// MaxKubeletArgs is the greatest number of arguments of a kubelet, and MaxKubeletArgLength the greatest number of
// characters in the value of one.
const (
	MaxKubeletArgs      = 32
	MaxKubeletArgLength = 1024
)

// Strings returns the arguments as text.
func (a KubeletArgs) Strings() map[string]string {
	args := make(map[string]string, len(a))
	for name, value := range a {
		args[name] = string(value)
	}
	return args
}
