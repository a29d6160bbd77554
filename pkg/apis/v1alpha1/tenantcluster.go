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

// TenantClusterSpec says how servers join a tenant and which servers it may have.
type TenantClusterSpec struct {
	// DisplayName is what people call it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description of its purpose, for people to read.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// APIServerEndpoint is the tenant's API server, as servers reach it: host:port, with an IPv6 address in brackets.
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:Pattern=`^(\[[0-9a-fA-F:]+\]|[^:/]+):[0-9]{1,5}$`
	APIServerEndpoint string `json:"apiServerEndpoint"`
	// JoinMode says how servers join: Kubeadm (the default) or VCluster.
	// +optional
	JoinMode JoinMode `json:"joinMode,omitempty"`
	// AllowedNodeTypes are the types that this tenant may have, by name, as "<provider>.<name>", or as "<provider>.*"
	// for all that a NodeProvider lists. Unset means all types that NodeProviders list, an empty list means none. A
	// NodeType that was made by hand must be named without a provider.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	AllowedNodeTypes *[]string `json:"allowedNodeTypes,omitempty"`
	// AllowedNodeProfiles are the NodeProfiles that the tenant's nodes may have. Each entry is a name, or "<prefix>.*"
	// for all names that begin with the prefix and a dot. Unset means all, an empty list means none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	AllowedNodeProfiles *[]NameReference `json:"allowedNodeProfiles,omitempty"`
	// DefaultNodeProfile names the NodeProfile of nodes if neither a pool nor a Machine nor privateNodes.defaultProfile
	// names one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	DefaultNodeProfile string `json:"defaultNodeProfile,omitempty"`
	// Network is the network that servers are moved into before they boot this tenant's image. A network controller
	// moves them. Nothing is installed until it has confirmed the move, and no other Machine can claim the server until
	// it has confirmed the return. If it is unset, servers are not moved.
	// +optional
	Network *TenantNetwork `json:"network,omitempty"`
	// PrivateNodes are the tenant's pools of servers: the block privateNodes of a vcluster.yaml.
	// +optional
	PrivateNodes *PrivateNodes `json:"privateNodes,omitempty"`
	// Quota bounds how many servers and GPUs the tenant has at a time, in total and of a NodeType. Unset: no bound.
	// +optional
	Quota *Quota `json:"quota,omitempty"`
	// TenantProperties says which properties the tenant may set itself, in a MetalNodeClass or a Machine. It does not
	// bind the platform's properties in privateNodes. If it is unset, the defaults of its fields apply.
	// +optional
	TenantProperties *TenantProperties `json:"tenantProperties,omitempty"`
	// StandAloneMachines says whether Machines in the namespace that name no TenantCluster get servers: Forbidden (the
	// default) or Allowed. Their servers are charged to this TenantCluster: they count in its quota, are of its types,
	// move into its network and are released with it, but do not join. One TenantCluster of a namespace may allow this.
	// +optional
	StandAloneMachines StandAlonePolicy `json:"standAloneMachines,omitempty"`
	// Sync selects the device classes that the tenant may request, and the objects that are synced with the host.
	// +optional
	Sync Sync `json:"sync,omitempty"`
	// DrainTimeout limits the drain of the nodes when the TenantCluster is deleted, such as 1h. Then remaining pods are
	// deleted in spite of PodDisruptionBudgets, and the servers are released. 0s does not drain. Default 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
}

// TenantProperties says which properties a tenant may set itself. It may always set its own properties, which have no
// meaning here. It may name an object of the platform if that is listed here, or if one of these names the object for
// the same property: a NodeType that the tenant may have, the NodeProvider of that type, or a pool in privateNodes.
type TenantProperties struct {
	// Keys are the properties with a meaning of their own that the tenant may set; "*" is all of them. Unset:
	// karpenter.metal3.io/os-image, karpenter.metal3.io/ssh-keys, karpenter.metal3.io/user-data-template and
	// karpenter.metal3.io/ntp-servers. If image URLs, addresses or network data are allowed, the tenant decides what
	// the platform's network fetches, parses and routes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=317
	Keys []string `json:"keys,omitempty"`
	// OSImages that the tenant may name in addition; "*" is all OSImages.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	OSImages []string `json:"osImages,omitempty"`
	// SSHKeys that the tenant may name in addition; "*" is all SSHKeys.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	SSHKeys []string `json:"sshKeys,omitempty"`
	// MachineConfigTemplates that the tenant may name in addition; "*" is all of them. The tenant can read the rendered
	// documents on its servers.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	MachineConfigTemplates []string `json:"machineConfigTemplates,omitempty"`
}

// StandAlonePolicy says whether Machines that name no TenantCluster get servers.
// +kubebuilder:validation:Enum=Forbidden;Allowed
type StandAlonePolicy string

const (
	// StandAloneForbidden refuses servers to these Machines. It is the default.
	StandAloneForbidden StandAlonePolicy = "Forbidden"
	// StandAloneAllowed gives them servers, on the account of the TenantCluster.
	StandAloneAllowed StandAlonePolicy = "Allowed"
)

// DefaultDrainTimeout applies if a TenantCluster has no DrainTimeout.
const DefaultDrainTimeout = 15 * time.Minute

// DrainDeadline returns the time when the drain of a TenantCluster that is being deleted ends.
func (in *TenantCluster) DrainDeadline() time.Time {
	timeout := DefaultDrainTimeout
	if in.Spec.DrainTimeout != nil {
		timeout = in.Spec.DrainTimeout.Duration
	}
	return in.DeletionTimestamp.Add(timeout)
}

// TenantClusterStatus is the observed state of a TenantCluster.
type TenantClusterStatus struct {
	// ObservedGeneration is the generation that the conditions describe. -1 until a controller has seen the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ClusterUID is the identity of the tenant's cluster: the UID of its namespace kube-system. The manager sets it at
	// the first report of the provider. It changes only if confirm.karpenter.metal3.io/accept-cluster confirms it. No
	// two TenantClusters have the same. A provider writes nothing while its kubeconfig leads to another cluster.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	ClusterUID string `json:"clusterUID,omitempty"`
	// ObservedClusterUID is the identity of the cluster that the kubeconfig of the provider leads to.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	ObservedClusterUID string `json:"observedClusterUID,omitempty"`
	// KubernetesVersion is the minor version, such as v1.35, that servers are installed with now: the lowest version
	// that the tenant's API servers answered with in the last ten minutes. The provider reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// ProviderRenewTime is when the tenant's leading provider last reported that it works, by its own clock. It reports
	// every minute. If the manager sees no change for 3 minutes, the provider is down, hangs, or does not reach this
	// API server, and Ready says so. Unset: there is no provider, or its version does not report.
	// +optional
	ProviderRenewTime *metav1.Time `json:"providerRenewTime,omitempty"`
	// Rollout counts the Machines of the tenant that match the current specs.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// AllowedDevices is what providers may ask for in claims and templates of this namespace: all that spec.sync of its
	// TenantClusters allows. The manager writes it for the policy karpenter-metal3-resourceclaims.
	// +optional
	AllowedDevices *AllowedDevices `json:"allowedDevices,omitempty"`
	// Conditions: ClusterIdentified, KubeconfigAccepted, CollectionAllowed, PoolsSynced, NodesDrained, ServersReturned,
	// DRASynced, and, from the manager, Ready, which sums them up; Reconciling or Stalled while it is not ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxAllowedDevices bounds each list of AllowedDevices.
const MaxAllowedDevices = 256

// AllowedDevices lists what claims may ask for.
type AllowedDevices struct {
	// DeviceClasses are the names of the classes that sync.fromHost.deviceClasses selects, sorted, 256 at most.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// OpaqueConfigDrivers are the drivers in sync.toHost.opaqueConfigDrivers, sorted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	OpaqueConfigDrivers []string `json:"opaqueConfigDrivers,omitempty"`
}

// RolloutStatus counts the Machines that name a TenantCluster.
type RolloutStatus struct {
	// Total is the number of all Machines, also without a server or while they are being deleted.
	Total int32 `json:"total"`
	// UpToDate is the number of Machines that have joined, are not Drifted and are not being deleted. It does not show
	// a changed MetalNodeClass or a new Kubernetes version, which the condition Drifted of the NodeClaims has.
	UpToDate int32 `json:"upToDate"`
	// Unavailable is the number of Machines that are not Ready.
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

// ProviderRenewPeriod is how often a provider reports that it works. 100 tenants write less than twice per second.
const ProviderRenewPeriod = time.Minute

// Blocked returns the conditions that make the tenant's provider write and delete nothing. If there is none, it returns
// Ready while the provider is silent: the manager, which hears nothing from it, has written that.
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

// Allows reports whether the tenant may have servers of a NodeType. madeBy is the NodeProvider that made the type. A
// type made by hand has none, and must be allowed by name: its author, and no provider's, decides what is installed.
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
	// NodeTypes is how many servers of a NodeType the tenant may have, by the name of the type: {h100-8x: 4}. A type
	// that is not named has no bound of its own. The type need not exist yet.
	// +optional
	// +kubebuilder:validation:MaxProperties=1000
	NodeTypes map[string]ServerCount `json:"nodeTypes,omitempty"`
	// Domains is how many domains of each label, such as nvlink-domain, the tenant may have servers in, where a domain
	// is for one tenant at a time. Unset: one. The tenant gets another domain only while its domains have fewer free
	// servers than servers and gpus still allow it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Domains *int64 `json:"domains,omitempty"`
}

// ServerCount is a number of servers.
// +kubebuilder:validation:Minimum=0
type ServerCount int64

// CountAccelerators returns how many accelerators one server has: in its resources, or among the devices of its DRA
// drivers, whichever are more, because the same card can be offered in both ways.
func (p *HardwareProfile) CountAccelerators() int64 {
	devices := int64(0)
	for _, driver := range p.Drivers() {
		devices += p.CountDevices(driver)
	}
	return max(CountAccelerators(p.Resources), devices)
}

// CountDevices returns how many accelerators of a DRA driver one server has. Devices that consume counters of one set
// are parts of one accelerator: a GPU and its slices count once. Of two sets, the first counts.
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

// PartOf names the counter sets for the accelerators that these devices are parts of; empty for whole devices.
func (d NodeTypeDevice) PartOf() string {
	if len(d.ConsumesCounters) == 0 {
		return ""
	}
	return d.ConsumesCounters[0].CounterSet
}

// CountAccelerators returns the number of accelerators of all kinds in resources.
func CountAccelerators(resources corev1.ResourceList) int64 {
	count := int64(0)
	for _, name := range Accelerators(resources) {
		quantity := resources[name]
		count += quantity.Value()
	}
	return count
}

// JoinMode says how servers join a tenant.
// +kubebuilder:validation:Enum=Kubeadm;VCluster
type JoinMode string

const (
	// JoinKubeadm runs `kubeadm join` against the tenant's API server. It is the default.
	JoinKubeadm JoinMode = "Kubeadm"
	// JoinVCluster runs the join script that a vCluster serves at /node/join of its API server's endpoint. The
	// endpoint's certificate must be signed by the tenant's CA.
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
	// ID is the network controller's name of the network, if it is neither a VLAN nor a VNI.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id,omitempty"`
}

// String returns the network as in the value of a hook: vlan:100, vni:5000 or id:blue. ParseTenantNetwork is the
// inverse.
func (n TenantNetwork) String() string {
	switch {
	case n.VLAN != nil:
		return fmt.Sprintf("vlan:%d", *n.VLAN)
	case n.VNI != nil:
		return fmt.Sprintf("vni:%d", *n.VNI)
	}
	return "id:" + n.ID
}

// ParseTenantNetwork reads the text that String returns.
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
// cluster, and the tenant. It has the fields for Dynamic Resource Allocation of the block sync of a vcluster.yaml.
// Everything is off by default.
type Sync struct {
	// FromHost selects what is synced from the host to the tenant.
	// +optional
	FromHost SyncFromHost `json:"fromHost,omitempty"`
	// ToHost selects what is synced from the tenant to the host.
	// +optional
	ToHost SyncToHost `json:"toHost,omitempty"`
}

// SyncFromHost selects what is synced from the host to the tenant.
type SyncFromHost struct {
	// DeviceClasses are the classes that the tenant may ask for. While they are not enabled, it may ask for none.
	// +optional
	DeviceClasses DeviceClassSync `json:"deviceClasses,omitempty"`
	// Nodes says whether the tenant sees the host's Nodes under their names. If it does not, the status of a claim has
	// pseudonyms instead of pools and devices, and does not name nodes.
	// +optional
	Nodes SyncSwitch `json:"nodes,omitempty"`
}

// SyncToHost selects what is synced from the tenant to the host.
type SyncToHost struct {
	// ResourceClaims are synced if every class that they name is allowed: none while fromHost.deviceClasses is not
	// enabled. Their status is synced back.
	// +optional
	ResourceClaims ClaimSync `json:"resourceClaims,omitempty"`
	// ResourceClaimTemplates are synced if every class that they name is allowed: none while fromHost.deviceClasses is
	// not enabled. The claims that the host makes from them are synced back.
	// +optional
	ResourceClaimTemplates ClaimSync `json:"resourceClaimTemplates,omitempty"`
	// PodTranslation says what translates the names of claims and templates in the copies of the tenant's pods:
	// VCluster (the default) or Webhook. It must match the tenant's vCluster: with the wrong one, its pods with claims
	// are denied or stay Pending. Names on the host are the same with both, so a change moves nothing. A vcluster.yaml
	// does not have this field.
	// +optional
	PodTranslation PodTranslation `json:"podTranslation,omitempty"`
	// OpaqueConfigDrivers are the drivers that claims and templates of the tenant may have opaque configuration for
	// (spec.devices.config): the driver reads it on the host, with the host's rights. "*" stands for all drivers. An
	// object with configuration for another driver is not copied, and an event on it says so. Unset, no driver is
	// allowed. The configuration of a DeviceClass is not restricted. A vcluster.yaml does not have this field.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	OpaqueConfigDrivers []string `json:"opaqueConfigDrivers,omitempty"`
}

// PodTranslation says what translates the names of claims and templates in the copies of a tenant's pods on the host.
// +kubebuilder:validation:Enum=VCluster;Webhook
type PodTranslation string

const (
	// PodTranslationVCluster: the tenant's vCluster translates, of v0.32 or later, with
	// sync.toHost.resourceClaims.enabled and sync.toHost.resourceClaimTemplates.enabled in its vcluster.yaml. It is the
	// default. The webhook denies a pod that was not translated.
	PodTranslationVCluster PodTranslation = "VCluster"
	// PodTranslationWebhook: the webhook of this project translates. The tenant's vCluster is of v0.31 or older, or
	// those settings are off. If the vCluster translates as well, its pods stay Pending.
	PodTranslationWebhook PodTranslation = "Webhook"
)

// SyncSwitch turns the sync of one kind on.
type SyncSwitch struct {
	// Enabled turns it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// ClaimSync turns the sync of claims or templates on.
type ClaimSync struct {
	SyncSwitch `json:",inline"`
	// Max is how many copies of this kind the tenant may have on the host. Unset, it is 1000, or 64 for each server of
	// spec.quota if that is more. More objects are not copied, with an event, and are tried again. Claims that the host
	// generates from templates do not count: a ResourceQuota bounds these. A vcluster.yaml does not have this field.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Max *int64 `json:"max,omitempty"`
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
	Hidden []DeviceClassPart `json:"hidden,omitempty"`
}

// LabelSelector returns the selector of the classes for when they are enabled, or an error if it does not parse.
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
	// DeviceClassConfig is spec.config, the configuration for the driver, and its copy in a claim's allocation.
	DeviceClassConfig DeviceClassPart = "Config"
	// DeviceClassSelectors is spec.selectors, the expressions that choose devices.
	DeviceClassSelectors DeviceClassPart = "Selectors"
	// DeviceClassLabels is metadata.labels.
	DeviceClassLabels DeviceClassPart = "Labels"
	// DeviceClassAnnotations is metadata.annotations.
	DeviceClassAnnotations DeviceClassPart = "Annotations"
)

// ConditionDRASynced on a TenantCluster is true while the sync of Dynamic Resource Allocation works, and absent if it
// was never enabled. Its message says why it does not work.
const ConditionDRASynced = "DRASynced"

// Reasons of ConditionDRASynced, besides ReasonSynced and ReasonInvalidSelector.
const (
	// ReasonSyncDisabled: nothing is enabled any more. Synced objects stay.
	ReasonSyncDisabled = "SyncDisabled"
	// ReasonNoDeviceClasses: claims or templates are enabled without the device classes, so none of them is allowed.
	ReasonNoDeviceClasses = "DeviceClassesNotEnabled"
	// ReasonAPINotServed: the host or the tenant has no resource.k8s.io/v1.
	ReasonAPINotServed = "APINotServed"
	// ReasonSameCluster: the host and the tenant are the same cluster, so there is nothing to sync.
	ReasonSameCluster = "SameCluster"
	// ReasonNotStarted: a controller of the sync could not be started.
	ReasonNotStarted = "NotStarted"
	// ReasonInvalidName: names on the host end in the TenantCluster's name, and this name would make them invalid.
	ReasonInvalidName = "InvalidName"
)

// Enabled reports whether anything is to be synced.
func (s *Sync) Enabled() bool {
	return s.FromHost.DeviceClasses.Enabled || s.ToHost.ResourceClaims.Enabled || s.ToHost.ResourceClaimTemplates.Enabled
}
