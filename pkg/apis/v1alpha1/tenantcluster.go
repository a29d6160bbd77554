// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TenantClusterSpec is how servers join a tenant and which servers it may have.
type TenantClusterSpec struct {
	// DisplayName is what people call it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description is for people: what it is for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// APIServerEndpoint is where servers reach the tenant's API server, as host:port, with an IPv6 address in brackets.
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:Pattern=`^(\[[0-9a-fA-F:]+\]|[^:/]+):[0-9]{1,5}$`
	APIServerEndpoint string `json:"apiServerEndpoint"`
	// JoinMode is how servers join: Kubeadm (the default) or VCluster.
	// +optional
	JoinMode JoinMode `json:"joinMode,omitempty"`
	// AllowedNodeTypes are the types that this tenant may have, by name, as "<provider>.<name>", or as "<provider>.*" for all that a
	// NodeProvider lists. Unset means all that NodeProviders list, an empty list means none. A NodeType that was made by hand must be named
	// without a provider.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	AllowedNodeTypes *[]string `json:"allowedNodeTypes,omitempty"`
	// AllowedNodeProfiles are the NodeProfiles that the tenant's nodes may have: each entry is a name, or "<prefix>.*" for all whose
	// name begins with the prefix and a dot. Unset means all, an empty list means none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	AllowedNodeProfiles *[]NameReference `json:"allowedNodeProfiles,omitempty"`
	// DefaultNodeProfile names the NodeProfile of the nodes for which neither a pool nor a Machine nor privateNodes.defaultProfile
	// names one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DefaultNodeProfile string `json:"defaultNodeProfile,omitempty"`
	// Network is the network that servers are moved into before they boot this tenant's image. A network controller
	// moves them; until it has confirmed that, nothing is installed, and until it has confirmed the return, no other
	// Machine can claim the server. If it is unset, servers are not moved.
	// +optional
	Network *TenantNetwork `json:"network,omitempty"`
	// PrivateNodes are the pools of servers that the tenant has: the block of that name of a vcluster.yaml.
	// +optional
	PrivateNodes *PrivateNodes `json:"privateNodes,omitempty"`
	// Quota bounds how many servers and GPUs the tenant has at a time, in total and of a NodeType. Unset: no bound.
	// +optional
	Quota *Quota `json:"quota,omitempty"`
	// TenantProperties is which properties the tenant may set itself, in a MetalNodeClass or a Machine. The properties of
	// privateNodes are the platform's and are not bound by it. If it is unset, the defaults of its fields apply.
	// +optional
	TenantProperties *TenantProperties `json:"tenantProperties,omitempty"`
	// StandAloneMachines is whether Machines in the namespace that name no TenantCluster get servers: Forbidden (the default) or
	// Allowed. What they have is charged to this TenantCluster: it counts in the quota, is of the allowed types, comes into the
	// network and is released with the TenantCluster. It does not join. At most one TenantCluster of a namespace may allow it.
	// +optional
	StandAloneMachines StandAlonePolicy `json:"standAloneMachines,omitempty"`
	// Sync selects the device classes that the tenant may request, and what is synced with the host.
	// +optional
	Sync Sync `json:"sync,omitempty"`
	// DrainTimeout is how long the nodes are drained at most when the TenantCluster is deleted, such as 1h. Pods that are left then
	// are deleted in spite of PodDisruptionBudgets, and the servers are released. 0s does not drain. Default 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
}

// TenantProperties is which properties a tenant may set itself. Properties of its own, without a meaning here, it may always
// set. An object of the platform may be named if a NodeType that the tenant may have, the NodeProvider of one, or a pool in
// privateNodes names it for the same property, or if it is listed here.
type TenantProperties struct {
	// Keys are the properties that the tenant may set, of those that have a meaning of their own; "*" is all of them. Unset:
	// karpenter.metal3.io/os-image, karpenter.metal3.io/ssh-keys, karpenter.metal3.io/user-data-template and
	// karpenter.metal3.io/ntp-servers. To allow image URLs, addresses or network data lets the tenant say what the platform's network
	// fetches, parses and routes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=317
	Keys []string `json:"keys,omitempty"`
	// OSImages that the tenant may name in addition; "*" is all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	OSImages []string `json:"osImages,omitempty"`
	// SSHKeys that the tenant may name in addition; "*" is all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	SSHKeys []string `json:"sshKeys,omitempty"`
	// MachineConfigTemplates that the tenant may name in addition; "*" is all of them. It can read what is rendered from them on
	// its servers.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	MachineConfigTemplates []string `json:"machineConfigTemplates,omitempty"`
}

// StandAlonePolicy is whether Machines that name no TenantCluster get servers.
// +kubebuilder:validation:Enum=Forbidden;Allowed
type StandAlonePolicy string

const (
	// StandAloneForbidden refuses them. It is the default.
	StandAloneForbidden StandAlonePolicy = "Forbidden"
	// StandAloneAllowed gives them servers, on the account of the TenantCluster.
	StandAloneAllowed StandAlonePolicy = "Allowed"
)

// DefaultDrainTimeout is the DrainTimeout of a TenantCluster that has none.
const DefaultDrainTimeout = 15 * time.Minute

// DrainDeadline is until when the nodes of a TenantCluster that is being deleted are drained.
func (in *TenantCluster) DrainDeadline() time.Time {
	timeout := DefaultDrainTimeout
	if in.Spec.DrainTimeout != nil {
		timeout = in.Spec.DrainTimeout.Duration
	}
	return in.DeletionTimestamp.Add(timeout)
}

// TenantClusterStatus is the observed state of a TenantCluster.
type TenantClusterStatus struct {
	// ObservedGeneration is the generation of the object that the conditions are of. -1 until it is seen for the first time.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ClusterUID is the identity of the tenant's cluster: the UID of its namespace kube-system. The manager sets it when the
	// provider first reports it, and changes it only if the annotation confirm.karpenter.metal3.io/accept-cluster says so. No two
	// TenantClusters have the same. A provider writes nothing while its kubeconfig leads to another cluster.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	ClusterUID string `json:"clusterUID,omitempty"`
	// ObservedClusterUID is the identity of the cluster that the kubeconfig of the provider leads to.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	ObservedClusterUID string `json:"observedClusterUID,omitempty"`
	// KubernetesVersion is the minor version, such as v1.35, that servers are installed with now: the least that the tenant's API
	// servers have answered with within ten minutes. The provider reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// ProviderRenewTime is when the tenant's provider that leads last said that it works, by its own clock. It does so every minute. If
	// the manager sees no change of it for 3 minutes, the provider is down, hangs, or does not reach this API server, and Ready says so.
	// Unset: no provider, or none of a version that says it.
	// +optional
	ProviderRenewTime *metav1.Time `json:"providerRenewTime,omitempty"`
	// Rollout is how many Machines of the tenant are as its spec and what they refer to say now.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// AllowedDevices is what a provider may ask for in the claims and templates that it creates in this namespace: what spec.sync of the
	// TenantClusters of the namespace allows together. The manager writes it for the policy karpenter-metal3-resourceclaims.
	// +optional
	AllowedDevices *AllowedDevices `json:"allowedDevices,omitempty"`
	// Conditions: ClusterIdentified, KubeconfigAccepted, CollectionAllowed, PoolsSynced, NodesDrained, ServersReturned,
	// DRASynced, and Ready, which sums them up; Reconciling or Stalled while it is not ready. The manager writes these three.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxAllowedDevices bounds each list of AllowedDevices.
const MaxAllowedDevices = 256

// AllowedDevices is what claims may ask for.
type AllowedDevices struct {
	// DeviceClasses are the names of the DeviceClasses that sync.fromHost.deviceClasses selects, sorted: the first 256 if there are more.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// OpaqueConfigDrivers are those of sync.toHost.opaqueConfigDrivers, sorted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	OpaqueConfigDrivers []string `json:"opaqueConfigDrivers,omitempty"`
}

// RolloutStatus counts the Machines that name a TenantCluster.
type RolloutStatus struct {
	// Total is all of them, those without a server and those that are being deleted too.
	Total int32 `json:"total"`
	// UpToDate is how many have joined, are not Drifted and are not being deleted. What only the tenant's cluster knows does not
	// show here: a changed MetalNodeClass or a new Kubernetes version is in the condition Drifted of the NodeClaims.
	UpToDate int32 `json:"upToDate"`
	// Unavailable is how many are not Ready.
	Unavailable int32 `json:"unavailable"`
}

// TenantCluster is a Kubernetes cluster that servers can join. Machines in its namespace refer to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName={kmc,kmtc},categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.apiServerEndpoint`
// +kubebuilder:printcolumn:name="Allowed Types",type=string,JSONPath=`.spec.allowedNodeTypes`
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.status.conditions[?(@.type=="PoolsSynced")].reason`
// +kubebuilder:printcolumn:name="DRA",type=string,JSONPath=`.status.conditions[?(@.type=="DRASynced")].reason`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.status.conditions[?(@.type=="ClusterIdentified")].reason`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.rollout.total`
// +kubebuilder:printcolumn:name="Up-To-Date",type=integer,JSONPath=`.status.rollout.upToDate`
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.rollout.unavailable`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="UID",type=string,JSONPath=`.status.observedClusterUID`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TenantClusterSpec `json:"spec"`
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status TenantClusterStatus `json:"status,omitempty"`
}

// TenantClusterList is a list of TenantClusters.
//
// +kubebuilder:object:root=true
type TenantClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantCluster `json:"items"`
}

// ProviderRenewPeriod is how often a provider says that it works. 100 tenants then write less than twice per second.
const ProviderRenewPeriod = time.Minute

// Blocked returns the conditions because of which the tenant's provider writes or deletes nothing. If there is none, Ready is one while the
// provider is silent: the manager, which listens to it, has written that.
func (in *TenantCluster) Blocked() []metav1.Condition {
	var blocked, silent []metav1.Condition
	for _, condition := range in.Status.Conditions {
		switch {
		case slices.Contains([]string{ConditionClusterIdentified, ConditionKubeconfigAccepted, ConditionCollectionAllowed}, condition.Type) &&
			condition.Status == metav1.ConditionFalse:
			blocked = append(blocked, condition)
		case condition.Type == ConditionReady && condition.Reason == ReasonProviderSilent:
			silent = append(silent, condition)
		}
	}
	if len(blocked) == 0 {
		return silent
	}
	return blocked
}

// allOfProvider, after the name of a NodeProvider, stands for all of its types in allowedNodeTypes.
const allOfProvider = ".*"

// Allows returns whether the tenant may have servers of a NodeType, which the NodeProvider of that name has made. A type that was made by
// hand has none, and must be allowed by its name: its author says what servers are installed with, and is not the NodeProvider's.
func (in *TenantCluster) Allows(nodeType, madeBy string) bool {
	if in.Spec.AllowedNodeTypes == nil {
		return madeBy != ""
	}
	return slices.ContainsFunc(*in.Spec.AllowedNodeTypes, func(entry string) bool {
		return entry == nodeType || madeBy != "" && (entry == madeBy+"."+nodeType || entry == madeBy+allOfProvider)
	})
}

// Quota bounds what a tenant has at a time. A server counts from its claim until it is clean and back in the pool.
type Quota struct {
	// Servers is how many servers the tenant may have. Unset: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Servers *int64 `json:"servers,omitempty"`
	// GPUs is how many accelerators of any kind the tenant's servers may have together. Unset: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUs *int64 `json:"gpus,omitempty"`
	// NodeTypes is how many servers of a NodeType the tenant may have, by the name of the type: {h100-8x: 4}. A type that
	// is not named has no bound of its own. The type need not exist yet.
	// +optional
	// +kubebuilder:validation:MaxProperties=1000
	NodeTypes map[string]ServerCount `json:"nodeTypes,omitempty"`
	// Domains is how many domains of each label, such as nvlink-domain, the tenant may have servers in, where a domain
	// is for one tenant at a time. Unset: one, and another only while fewer servers are free in those that it has than
	// servers and gpus let it have more.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Domains *int64 `json:"domains,omitempty"`
}

// ServerCount is a number of servers.
// +kubebuilder:validation:Minimum=0
type ServerCount int64

// CountAccelerators returns how many accelerators one server has: those of its resources or the devices of its DRA drivers,
// whichever are more, because the same card can be offered in both ways.
func (p *HardwareProfile) CountAccelerators() int64 {
	devices := int64(0)
	for _, driver := range p.Drivers() {
		devices += p.CountDevices(driver)
	}
	return max(CountAccelerators(p.Resources), devices)
}

// CountDevices returns how many accelerators of a DRA driver one server has. Devices that consume counters of one set are parts of one
// accelerator: a GPU and its slices count once. A device that consumes from two sets counts with the first.
func (p *HardwareProfile) CountDevices(driver string) int64 {
	count, sets, consumed := int64(0), map[string]int64{}, map[string]int64{}
	for _, device := range p.Devices {
		if device.Driver != driver {
			continue
		}
		for _, set := range device.SharedCounters {
			sets[set.Name] = max(1, int64(set.Count))
		}
		if part := device.PartOf(); part != "" {
			consumed[part] = max(consumed[part], int64(device.Count)) // dealt out from the first set on
		} else {
			count += int64(device.Count)
		}
	}
	for set, devices := range consumed {
		if total, defined := sets[set]; defined {
			devices = min(devices, total)
		}
		count += devices
	}
	return count
}

// PartOf is the name of the counter sets that stand for the accelerators whose parts the devices are. It is empty for whole devices.
func (d NodeTypeDevice) PartOf() string {
	if len(d.ConsumesCounters) == 0 {
		return ""
	}
	return d.ConsumesCounters[0].CounterSet
}

// CountAccelerators returns how many accelerators there are in resources, of all kinds together.
func CountAccelerators(resources corev1.ResourceList) int64 {
	count := int64(0)
	for _, name := range Accelerators(resources) {
		quantity := resources[name]
		count += quantity.Value()
	}
	return count
}

// JoinMode is how servers join a tenant.
// +kubebuilder:validation:Enum=Kubeadm;VCluster
type JoinMode string

const (
	// JoinKubeadm runs `kubeadm join` against the tenant's API server. It is the default.
	JoinKubeadm JoinMode = "Kubeadm"
	// JoinVCluster fetches the join script that a vCluster serves at /node/join of its API server's endpoint, and
	// runs it. The endpoint's certificate must be signed by the tenant's CA.
	JoinVCluster JoinMode = "VCluster"
)

// TenantNetwork names the network that the servers of a tenant are moved into before they boot its image, and out of
// before they go back to the pool. Exactly one of its fields is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.vlan), has(self.vni), has(self.id)].filter(set, set).size() == 1",message="say exactly one of vlan, vni and id"
type TenantNetwork struct {
	// VLAN is the IEEE 802.1Q VLAN ID, 1 to 4094.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN *int32 `json:"vlan,omitempty"`
	// VNI is the VXLAN network identifier, 1 to 16777215.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	VNI *int32 `json:"vni,omitempty"`
	// ID is the network controller's name of the network, when that is neither a VLAN nor a VNI.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id,omitempty"`
}

// String is the network as it stands in the value of a hook: vlan:100, vni:5000 or id:blue. ParseTenantNetwork is
// the inverse.
func (n TenantNetwork) String() string {
	switch {
	case n.VLAN != nil:
		return fmt.Sprintf("vlan:%d", *n.VLAN)
	case n.VNI != nil:
		return fmt.Sprintf("vni:%d", *n.VNI)
	}
	return "id:" + n.ID
}

// ParseTenantNetwork reads what String wrote.
func ParseTenantNetwork(text string) (TenantNetwork, error) {
	kind, value, found := strings.Cut(text, ":")
	if !found || value == "" {
		return TenantNetwork{}, fmt.Errorf("%q is not a tenant network: write vlan:N, vni:N or id:NAME", text)
	}
	if kind == "id" {
		return TenantNetwork{ID: value}, nil
	}
	number, err := strconv.ParseInt(value, 10, 32)
	n := int32(number)
	switch {
	case kind == "vlan" && err == nil:
		return TenantNetwork{VLAN: &n}, nil
	case kind == "vni" && err == nil:
		return TenantNetwork{VNI: &n}, nil
	}
	return TenantNetwork{}, fmt.Errorf("%q is not a tenant network: write vlan:N, vni:N or id:NAME", text)
}

// Sync selects the objects of Dynamic Resource Allocation that are synced between the host, which is the management
// cluster, and the tenant. It has the fields about Dynamic Resource Allocation of the same block of a vcluster.yaml.
// Everything is off by default.
type Sync struct {
	// FromHost flows from the host to the tenant.
	// +optional
	FromHost SyncFromHost `json:"fromHost,omitempty"`
	// ToHost flows from the tenant to the host.
	// +optional
	ToHost SyncToHost `json:"toHost,omitempty"`
}

// SyncFromHost is what flows from the host to the tenant.
type SyncFromHost struct {
	// DeviceClasses are the classes that the tenant may ask for. While they are not enabled, it may ask for none.
	// +optional
	DeviceClasses DeviceClassSync `json:"deviceClasses,omitempty"`
	// Nodes is whether the tenant sees the host's Nodes under their names. Where it does not, the status of a claim has
	// pseudonyms instead of pools and devices, and does not name nodes.
	// +optional
	Nodes                NodeSync `json:"nodes,omitempty"`
	NoEffectSyncFromHost `json:",inline"`
}

// SyncToHost is what flows from the tenant to the host.
type SyncToHost struct {
	// ResourceClaims flow if every class that they name is allowed: none while fromHost.deviceClasses is not enabled. Their
	// status flows back.
	// +optional
	ResourceClaims ClaimSync `json:"resourceClaims,omitempty"`
	// ResourceClaimTemplates flow if every class that they name is allowed: none while fromHost.deviceClasses is not
	// enabled. The claims that the host makes of them flow back.
	// +optional
	ResourceClaimTemplates ClaimSync `json:"resourceClaimTemplates,omitempty"`
	NoEffectSyncToHost     `json:",inline"`
	// PodTranslation is what translates the names of claims and templates in the copies of the tenant's pods: VCluster
	// (the default) or Webhook. It must be what the tenant's vCluster is: with the wrong one its pods with claims are
	// denied or stay Pending. Names on the host are the same with both, so that a change of it moves nothing. A
	// vcluster.yaml does not have this field.
	// +optional
	PodTranslation PodTranslation `json:"podTranslation,omitempty"`
	// OpaqueConfigDrivers are the drivers for which claims and templates of the tenant may have opaque configuration (spec.devices.config):
	// the driver reads it on the host, with the host's rights. "*" stands for all drivers. What has configuration for another driver is not
	// copied, and an event on it says so. Unset, no driver is allowed; the configuration of a DeviceClass is not concerned. A
	// vcluster.yaml does not have this field.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	OpaqueConfigDrivers []string `json:"opaqueConfigDrivers,omitempty"`
}

// PodTranslation is what translates the names of claims and templates in the copies of a tenant's pods on the host.
// +kubebuilder:validation:Enum=VCluster;Webhook
type PodTranslation string

const (
	// PodTranslationVCluster: the tenant's vCluster, of v0.32 or later, with sync.toHost.resourceClaims.enabled and
	// sync.toHost.resourceClaimTemplates.enabled in its vcluster.yaml. It is the default. The webhook denies a pod that
	// was not translated.
	PodTranslationVCluster PodTranslation = "VCluster"
	// PodTranslationWebhook: the webhook of this project. The tenant's vCluster is of v0.31 or older, or those settings
	// are off. With this, a vCluster that translates as well makes pods that stay Pending.
	PodTranslationWebhook PodTranslation = "Webhook"
)

// SyncSwitch turns the sync of one kind on.
type SyncSwitch struct {
	// Enabled turns it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// NodeSync says what the tenant sees of the host's Nodes.
type NodeSync struct {
	SyncSwitch       `json:",inline"`
	NoEffectNodeSync `json:",inline"`
}

// ClaimSync turns the sync of claims or templates on.
type ClaimSync struct {
	SyncSwitch `json:",inline"`
	// Max is how many copies of this kind the tenant may have on the host. Unset, it is 1000, or 64 for each server of spec.quota if that is
	// more. What is beyond it is not copied, an event on it says so, and it is tried again. Claims that the host generates from templates
	// do not count: a ResourceQuota of the namespace bounds these. A vcluster.yaml does not have this field.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Max          *int64 `json:"max,omitempty"`
	NoEffectSync `json:",inline"`
}

// DeviceClassSync selects the DeviceClasses of the host that exist in the tenant.
type DeviceClassSync struct {
	SyncSwitch `json:",inline"`
	// Selector selects DeviceClasses of the host by their labels. Unset or empty, it selects all of them. An invalid
	// selector adds and removes nothing: the condition DRASynced has the error.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Hidden are the parts of a DeviceClass that the tenant does not see. They still apply on the host. A vcluster.yaml
	// does not have this field.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Hidden       []DeviceClassPart `json:"hidden,omitempty"`
	NoEffectSync `json:",inline"`
}

// LabelSelector returns what selects the classes while they are enabled, or an error if the selector does not parse.
func (s *DeviceClassSync) LabelSelector() (labels.Selector, error) {
	if s.Selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s.Selector)
}

// DeviceClassPart is a part of a DeviceClass that can be hidden from tenants.
// +kubebuilder:validation:Enum=Config;Selectors;Labels;Annotations
type DeviceClassPart string

// The parts of a DeviceClass that can be hidden.
const (
	// DeviceClassConfig is spec.config, the configuration for the driver, also where a claim's allocation repeats it.
	DeviceClassConfig DeviceClassPart = "Config"
	// DeviceClassSelectors is spec.selectors, the expressions that choose devices.
	DeviceClassSelectors DeviceClassPart = "Selectors"
	// DeviceClassLabels is metadata.labels.
	DeviceClassLabels DeviceClassPart = "Labels"
	// DeviceClassAnnotations is metadata.annotations.
	DeviceClassAnnotations DeviceClassPart = "Annotations"
)

// ConditionDRASynced is a condition of TenantClusters. It is true while the sync of Dynamic Resource Allocation works,
// and absent where it has never been enabled. Its message is the reason if it does not work.
const ConditionDRASynced = "DRASynced"

// Reasons of ConditionDRASynced, besides ReasonSynced and ReasonInvalidSelector.
const (
	// ReasonSyncDisabled: nothing is enabled any more. Synced objects stay.
	ReasonSyncDisabled = "SyncDisabled"
	// ReasonNoDeviceClasses: claims or templates are enabled without the device classes, so that none of them is allowed.
	ReasonNoDeviceClasses = "DeviceClassesNotEnabled"
	// ReasonAPINotServed: the host or the tenant has no resource.k8s.io/v1.
	ReasonAPINotServed = "APINotServed"
	// ReasonSameCluster: the host and the tenant are the same cluster, so there is nothing to sync.
	ReasonSameCluster = "SameCluster"
	// ReasonNotStarted: a controller of the sync could not be started.
	ReasonNotStarted = "NotStarted"
	// ReasonInvalidName: names on the host end in the TenantCluster's name, and with this one they would not be valid.
	ReasonInvalidName = "InvalidName"
)

// Enabled returns whether anything is to be synced.
func (s *Sync) Enabled() bool {
	return s.FromHost.DeviceClasses.Enabled || s.ToHost.ResourceClaims.Enabled || s.ToHost.ResourceClaimTemplates.Enabled
}
