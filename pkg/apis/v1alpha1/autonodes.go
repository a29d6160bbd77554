// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// PrivateNodes has the fields about servers of the block privateNodes of a vcluster.yaml.
type PrivateNodes struct {
	// Enabled turns autoNodes on and off. Unset means on: a TenantCluster has no other nodes. Off deletes the tenant's
	// pools, and with them gives their servers back.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// AutoUpgrade says whether servers follow the tenant's Kubernetes version.
	// +optional
	AutoUpgrade AutoUpgrade `json:"autoUpgrade,omitempty"`
	// Kubelet configures the kubelets of the nodes of all pools.
	// +optional
	Kubelet PrivateNodesKubelet `json:"kubelet,omitempty"`
	// DefaultProfile names the NodeProfile of the nodes whose pool or Machine names none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DefaultProfile string `json:"defaultProfile,omitempty"`
	// AutoNodes are the tenant's pools of servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	AutoNodes []AutoNodes `json:"autoNodes,omitempty"`
}

// PrivateNodesKubelet configures the kubelets of the nodes of all pools.
type PrivateNodesKubelet struct {
	// Config has fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1), such as maxPods: 200. If the kubelet
	// has an argument for a field, all pools get that argument, unless the kubeletArgs of a pool name it too. The
	// webhook names the fields that have no effect.
	// +optional
	Config *Opaque `json:"config,omitempty"`
}

// Opaque is an object that has no type here. It is stored as it was written, and only an object is accepted.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:validation:MaxProperties=64
// +kubebuilder:pruning:PreserveUnknownFields
type Opaque struct {
	apiextensionsv1.JSON `json:",inline"`
}

// AutoUpgrade says whether servers follow the tenant's Kubernetes version.
type AutoUpgrade struct {
	// Enabled makes nodes drift once the tenant's API server has a newer minor version than they were installed with.
	// Their servers are then installed again, within the budgets of their pools. Default false: a node keeps its
	// version until it is replaced for another reason.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// AutoNodes are the pools of one NodeProvider.
type AutoNodes struct {
	// Provider names the NodeProvider that the servers come from.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Provider string `json:"provider"`
	// Properties of every Machine of these pools. They win over the NodeType's and the NodeProvider's. A property of
	// your own that a NodeType has too narrows the NodeTypes, to one value, several separated by commas, or any (*).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('metal3[.].+/server-name$'))",message="karpenter.metal3.io/server-name pins one Machine to one server: set it on a static pool of quantity 1, not on all pools of a provider"
	Properties Properties `json:"properties,omitempty"`
	// Static pools have a fixed number of servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Static []StaticNodes `json:"static,omitempty"`
	// Dynamic pools grow and shrink with the pods that need servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Dynamic []DynamicNodes `json:"dynamic,omitempty"`
}

// NodesTemplate has the fields that static and dynamic pools have in common.
type NodesTemplate struct {
	// Name of the pool, and of its NodePool and MetalNodeClass in the tenant. One static and one dynamic pool may have
	// the same name. One of the two is then NAME-dynamic or NAME-static in the tenant, and the condition PoolsSynced
	// says so. A pool keeps its name there when the other one comes or goes.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// NodeTypeSelector selects the NodeTypes of the pool. A type must meet every entry. Without entries, the pool uses
	// all types of the provider. The cheapest type that fits is taken.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	NodeTypeSelector []NodeTypeSelectorRequirement `json:"nodeTypeSelector,omitempty"`
	// Properties of the pool's Machines. They win over the properties of the provider's entry, and narrow its NodeTypes
	// in the same way. karpenter.metal3.io/server-name pins a static pool of one server.
	// +optional
	Properties Properties `json:"properties,omitempty"`
	// KubeletArgs are extra arguments of the kubelet of every node of the pool, as in a MetalNodeClass. They win over
	// the arguments from privateNodes.kubelet.config. A change replaces the nodes, within the budgets of the pool.
	// +optional
	KubeletArgs KubeletArgs `json:"kubeletArgs,omitempty"`
	// Taints of the nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Taints []corev1.Taint `json:"taints,omitempty"`
	// NodeLabels are labels of the nodes, beside the labels from their type and server.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Profile names the NodeProfile of the nodes. A change applies to running nodes, and reinstalls none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Profile string `json:"profile,omitempty"`
	// Limits of the pool: the sum of a resource over its nodes, or the number of nodes. A static pool takes nodes only.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Disruption says when Karpenter may replace or remove nodes. For a static pool, only the budgets count.
	// +optional
	Disruption *NodesDisruption `json:"disruption,omitempty"`
	// TerminationGracePeriod is the longest time that a node is drained, such as 48h, or Never. The default is Never: a
	// drain takes as long as it needs.
	// +optional
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	TerminationGracePeriod string `json:"terminationGracePeriod,omitempty"`
	// ExpireAfter is the greatest age of a node, such as 720h, or Never. The default is Never: a server is not
	// reinstalled for its age. Expiry does not keep to budgets.
	// +optional
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	ExpireAfter string `json:"expireAfter,omitempty"`
}

// StaticNodes is a pool with a fixed number of servers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.properties) || self.properties.all(key, !key.matches('metal3[.].+/server-name$')) || self.quantity <= 1",message="karpenter.metal3.io/server-name pins one Machine to one server: set quantity to 1, and make a pool for each server"
type StaticNodes struct {
	NodesTemplate `json:",inline"`
	// Quantity is the number of servers in the pool.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Quantity int32 `json:"quantity"`
}

// DynamicNodes is a pool that grows and shrinks with the pods that need servers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.properties) || self.properties.all(key, !key.matches('metal3[.].+/server-name$'))",message="karpenter.metal3.io/server-name pins one Machine to one server, and a dynamic pool may have many: make it a static pool of quantity 1"
type DynamicNodes struct {
	NodesTemplate `json:",inline"`
	// Weight is the priority of the pool, 1 to 100. Karpenter tries pools of a higher weight first.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight *int32 `json:"weight,omitempty"`
}

// SelectorOperator compares a property of a NodeType with values.
// +kubebuilder:validation:Enum=In;NotIn;Exists;NotExists
type SelectorOperator string

// Operators of a nodeTypeSelector.
const (
	// SelectorIn: the property has one of the values. The default.
	SelectorIn SelectorOperator = "In"
	// SelectorNotIn: the property has none of the values, or is missing.
	SelectorNotIn SelectorOperator = "NotIn"
	// SelectorExists: the property is there.
	SelectorExists SelectorOperator = "Exists"
	// SelectorNotExists: the property is not there.
	SelectorNotExists SelectorOperator = "NotExists"
)

// NodeTypeSelectorRequirement selects NodeTypes by one property: any that tenants can select on, such as
// karpenter.metal3.io/node-type, topology.kubernetes.io/zone, rack, or one of their own.
//
// +kubebuilder:validation:XValidation:rule="has(self.operator) && self.operator in ['Exists', 'NotExists'] ? !has(self.value) && !has(self.values) : has(self.value) != (has(self.values) && self.values.size() > 0)",message="In and NotIn need one of value and values, Exists and NotExists take neither"
type NodeTypeSelectorRequirement struct {
	// Property is the key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Property string `json:"property"`
	// Operator is In (the default), NotIn, Exists or NotExists.
	// +optional
	Operator SelectorOperator `json:"operator,omitempty"`
	// Value is one value. Use values for several.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// Values for In and NotIn: the property must have one of them, or none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// ExpiryWarning says what expireAfter of a pool does to its servers.
const ExpiryWarning = "nodes expire whatever the disruption budgets say, so nodes that were made together are drained together, " +
	"and have no servers while these are installed again: set Never, unless all may go at once"

// NodesDisruption says when Karpenter may replace or remove nodes of a pool.
type NodesDisruption struct {
	// ConsolidateAfter is how long the pods of a node must not change before Karpenter removes or replaces the node,
	// such as 10m, or Never. Default: 30m, about the time that a server takes to be available again.
	// +optional
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	ConsolidateAfter string `json:"consolidateAfter,omitempty"`
	// ConsolidationPolicy is WhenEmpty (the default), WhenEmptyOrUnderutilized or Balanced. The other two interrupt
	// pods to need fewer servers.
	// +optional
	// +kubebuilder:validation:Enum=WhenEmpty;WhenEmptyOrUnderutilized;Balanced
	ConsolidationPolicy string `json:"consolidationPolicy,omitempty"`
	// Budgets bound how many nodes are disrupted at a time. Default: 10%, rounded up: one node of up to ten.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Budgets []DisruptionBudget `json:"budgets,omitempty"`
}

// DisruptionBudget bounds how many nodes of a pool are disrupted at a time.
//
// +kubebuilder:validation:XValidation:rule="has(self.schedule) == has(self.duration)",message="schedule and duration go together"
type DisruptionBudget struct {
	// Nodes is a number or a percentage. Default: 10%.
	// +optional
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	Nodes string `json:"nodes,omitempty"`
	// Schedule is when the budget begins to hold, in cron's syntax, UTC. Unset: always.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Schedule string `json:"schedule,omitempty"`
	// Duration is how long the budget holds from each schedule on, in hours and minutes.
	// +optional
	// +kubebuilder:validation:Pattern=`^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$`
	Duration string `json:"duration,omitempty"`
	// Reasons that the budget applies to: Underutilized, Empty, Drifted, Unhealthy. Unset: all. Node repair keeps to
	// budgets only if the provider runs with --legacy-node-repair=false.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=Underutilized;Empty;Drifted;Unhealthy
	Reasons []string `json:"reasons,omitempty"`
}
