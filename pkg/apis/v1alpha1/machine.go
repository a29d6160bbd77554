// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MachineSpec requests one physical server: either of a named type (nodeTypeRef), or of the cheapest type that has the
// resources and meets the requirements. The request is immutable: a Machine is one claim.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeTypeRef) != (has(self.requirements) || has(self.resources))",message="say either nodeTypeRef, or requirements and resources"
// +kubebuilder:validation:XValidation:rule="has(self.nodeTypeRef) == has(oldSelf.nodeTypeRef) && has(self.requirements) == has(oldSelf.requirements) && has(self.resources) == has(oldSelf.resources) && has(self.requestedDrivers) == has(oldSelf.requestedDrivers) && has(self.gang) == has(oldSelf.gang) && has(self.tenantClusterRef) == has(oldSelf.tenantClusterRef)",message="nodeTypeRef, requirements, resources, requestedDrivers, gang and tenantClusterRef are immutable: delete the Machine and make another"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.node) || has(self.node)",message="node cannot be taken away: the Machine would count as one that has not joined"
// +kubebuilder:validation:XValidation:rule="!has(self.kubeletArgs) || has(self.tenantClusterRef)",message="kubeletArgs are for the node that a server becomes, and without tenantClusterRef it becomes none: set it, or leave kubeletArgs out"
type MachineSpec struct {
	// DisplayName is what people call it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description of its purpose, for people to read.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// NodeTypeRef names the NodeType of the server.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeTypeRef is immutable: delete the Machine and make another"
	NodeTypeRef *NameReference `json:"nodeTypeRef,omitempty"`
	// Requirements that the labels of the type and the host must meet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.map(one, has(one.values) ? size(one.values) : 0).sum() <= 2000",message="all requirements have at most 2000 values together"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="requirements are immutable: delete the Machine and make another"
	Requirements []corev1.NodeSelectorRequirement `json:"requirements,omitempty"`
	// Resources that the server must have for pods. A server with accelerators is chosen only if resources ask for one
	// of them.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317)",message="a key has at most 317 characters"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="resources are immutable: delete the Machine and make another"
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// RequestedDrivers are the DRA drivers whose devices were allocated to resource claims of the pods. A server with
	// devices is chosen only if one of its drivers is named here, or if resources ask for one of its accelerators.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="requestedDrivers are immutable: delete the Machine and make another"
	RequestedDrivers []string `json:"requestedDrivers,omitempty"`
	// Properties of this Machine. They win over the properties of the NodeType and the NodeProvider.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317)",message="a key has at most 317 characters"
	// +kubebuilder:validation:XValidation:rule="self.map(key, size(key) + size(self[key])).sum() <= 131072",message="all keys and values have at most 131072 characters together: have the server fetch large files at boot, or refer to a MachineConfigTemplate"
	Properties Properties `json:"properties,omitempty"`
	// TenantClusterRef names the TenantCluster, in the Machine's namespace, that the server joins. Without it the
	// server stands alone and joins nothing: the spec.standAloneMachines of a TenantCluster in the namespace must allow
	// that. Without any TenantCluster, the namespace needs the label karpenter.metal3.io/stand-alone-machines=allowed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="tenantClusterRef is immutable: delete the Machine and make another"
	TenantClusterRef *NameReference `json:"tenantClusterRef,omitempty"`
	// Gang of the Machine. The Machines of a gang get their servers in one decision, or none of them does.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="gang is immutable: delete the Machine and make another"
	Gang *MachineGang `json:"gang,omitempty"`
	// Taints that the node registers with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints that the node registers with. A controller removes them before pods may run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// ProfileRef names the NodeProfile of the node. Unset: the profile of the pool, or the TenantCluster's default.
	// +optional
	ProfileRef *NameReference `json:"profileRef,omitempty"`
	// Labels that the node registers with, beside the labels from its type and host.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317)",message="a key has at most 317 characters"
	Labels map[string]string `json:"labels,omitempty"`
	// KubeletArgs are extra arguments of the node's kubelet. They are read when the server is given its user data; a
	// later change does not reach the server.
	// +optional
	KubeletArgs KubeletArgs `json:"kubeletArgs,omitempty"`
	// Node is the report of the tenant's provider on the node that the server is to become, or is. A stand-alone
	// Machine has none.
	// +optional
	Node *MachineNode `json:"node,omitempty"`
	// Bootstrap refers to what the server runs at its first boot.
	// +optional
	Bootstrap MachineBootstrap `json:"bootstrap,omitempty"`
	// Power says whether the server is on once its image is installed. If it is unset, the power is not changed.
	// +optional
	Power *MachinePower `json:"power,omitempty"`
}

// MaxPropertyLength is the greatest number of characters in the value of a property of a Machine or MetalNodeClass, and
// MaxPropertiesLength in all keys and values together. A class is copied into the Machine of each of its servers.
const (
	MaxPropertyLength   = 64 << 10
	MaxPropertiesLength = 128 << 10
)

// MachineGang says which Machines are of no use without each other.
type MachineGang struct {
	// Name is the same for all Machines of the gang in a namespace that have the same tenantClusterRef.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[ -~]+$`
	Name string `json:"name"`
	// MinCount is how many Machines of the gang, with or without a server, must exist before any of them gets one.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinCount int32 `json:"minCount"`
}

// MaxGangName is the greatest number of characters in the name of a gang.
const MaxGangName = 1024

// GangsOf returns the gangs in the annotation GangsAnnotationKey of a NodeClaim, or none if the annotation is invalid.
func GangsOf(nodeClaim metav1.Object) (gangs []MachineGang) {
	if text := nodeClaim.GetAnnotations()[GangsAnnotationKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &gangs); err != nil {
			return nil
		}
	}
	return gangs
}

// MachineBootstrap refers to what a server runs at its first boot.
type MachineBootstrap struct {
	// DataSecretName names the Secret in the Machine's namespace whose key userData holds the cloud-init user data. A
	// Machine with a tenant is not provisioned until this is set.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DataSecretName string `json:"dataSecretName,omitempty"`
}

// MachinePhase is the step of its life that a Machine is in, for people to read. Programs read the conditions.
// +kubebuilder:validation:Enum=Pending;Claiming;Claimed;Provisioning;Provisioned;Joined;Failed;Releasing
type MachinePhase string

const (
	// MachinePending has no server yet.
	MachinePending MachinePhase = "Pending"
	// MachineClaiming has chosen a server and is writing its claim on it.
	MachineClaiming MachinePhase = "Claiming"
	// MachineClaimed has its server and waits for its user data.
	MachineClaimed MachinePhase = "Claimed"
	// MachineProvisioning waits while Metal3 installs its image.
	MachineProvisioning MachinePhase = "Provisioning"
	// MachineProvisioned has booted its image; a stand-alone Machine ends here.
	MachineProvisioned MachinePhase = "Provisioned"
	// MachineJoined is a Node of its tenant.
	MachineJoined MachinePhase = "Joined"
	// MachineFailed needs attention; the conditions have the reason.
	MachineFailed MachinePhase = "Failed"
	// MachineReleasing releases its server.
	MachineReleasing MachinePhase = "Releasing"
)

// HostReference refers to a BareMetalHost.
type HostReference struct {
	// Namespace of the BareMetalHost.
	Namespace string `json:"namespace"`
	// Name of the BareMetalHost.
	Name string `json:"name"`
	// UID of the BareMetalHost.
	UID types.UID `json:"uid"`
}

// MachineProperty is one of the effective properties of a Machine.
type MachineProperty struct {
	// Key of the property.
	Key string `json:"key"`
	// Value of the property. Values that may hold secrets, such as user data, are described and not shown.
	// +optional
	Value string `json:"value,omitempty"`
	// Source is the kind and name of the object that holds the value.
	// +optional
	Source string `json:"source,omitempty"`
}

// MachineStatus is the observed state of a Machine. The manager alone writes it.
type MachineStatus struct {
	// ObservedGeneration is the generation that the conditions describe. -1 until a controller has seen the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is the step of its life that the Machine is in. It is for people to read; programs read the conditions.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// HostRef is the chosen server. It is written before the claim on the server, so that the claim is found after a
	// crash in between.
	// +optional
	HostRef *HostReference `json:"hostRef,omitempty"`
	// NodeTypeRef is the chosen type.
	// +optional
	NodeTypeRef *NameReference `json:"nodeTypeRef,omitempty"`
	// Cost of the type when the manager chose it.
	// +optional
	Cost *int64 `json:"cost,omitempty"`
	// ClaimNumber is the position of this claim in the order of the claims of all Machines. Statuses of NodeTypes name
	// the last claim that they count (countedUntil). Set with providerID.
	// +optional
	ClaimNumber int64 `json:"claimNumber,omitempty"`
	// ProviderID of the node: metal3://<host namespace>/<host>/<machine>. Set once the server is claimed.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// NodeLabels are the labels that the node has from its type and its host, read when the manager chose the server.
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// NodeName is the name of the Node, once it has joined.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// HostState is Metal3's last seen provisioning state of the server.
	// +optional
	HostState string `json:"hostState,omitempty"`
	// Network of the tenant that the server moves into before its installation: vlan:100, vni:5000 or id:blue; empty if
	// it does not move. It is the TenantCluster's network at the time of the choice, and does not change afterwards.
	// +optional
	Network string `json:"network,omitempty"`
	// Progress on the way from the claim to the node.
	// +optional
	Progress *MachineProgress `json:"progress,omitempty"`
	// PropertiesHash is the hash of everything that shaped the installed machine: the reference to its image, its user
	// data, network and type. It is written with the claim, and again when the installation begins if it differs by
	// then.
	// +optional
	PropertiesHash string `json:"propertiesHash,omitempty"`
	// Installed lists the parts of the hash field by field, so that a change can be named.
	// +optional
	// +listType=map
	// +listMapKey=field
	Installed []InstalledField `json:"installed,omitempty"`
	// Properties are the effective properties, merged from the NodeProvider, the NodeType, the Machine and the objects
	// that they refer to. Each has the object that it comes from. Values that may hold secrets are left out.
	// +optional
	// +listType=map
	// +listMapKey=key
	Properties []MachineProperty `json:"properties,omitempty"`
	// Addresses of the server in the network that its properties describe.
	// +optional
	// +listType=atomic
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// Power is the power of the server as Metal3 reports it.
	// +optional
	Power *MachinePowerStatus `json:"power,omitempty"`
	// Conditions: Claimed, NetworkReady (with hooks only), Provisioned, Joined, Drifted, GivenUp, Released, and Ready,
	// which sums up the way to the node; Reconciling or Stalled while it is not ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Machine is a claim on one physical server. It is the contract between the provider, which asks by the spec, and the
// manager, which answers in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.hostRef) || (has(self.spec.properties) && self.spec.properties.exists(key, key.matches('metal3[.].+/server-name$'))) == (has(oldSelf.spec.properties) && oldSelf.spec.properties.exists(key, key.matches('metal3[.].+/server-name$'))) && (!has(self.spec.properties) || self.spec.properties.all(key, !key.matches('metal3[.].+/server-name$') || self.spec.properties[key] == oldSelf.status.hostRef.name || has(oldSelf.spec.properties) && key in oldSelf.spec.properties && self.spec.properties[key] == oldSelf.spec.properties[key]))",message="spec.properties[karpenter.metal3.io/server-name] is immutable once a server is claimed: delete the Machine and make another",fieldPath=".spec.properties"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.tenantClusterRef) || size(self.metadata.name) <= 63",message="the Node and the hostname of the server have this name: it has at most 63 characters"
// +kubebuilder:resource:scope=Namespaced,shortName=kmm,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.nodeTypeRef.name`
// +kubebuilder:printcolumn:name="Cost",type=integer,JSONPath=`.status.cost`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.hostRef.name`
// +kubebuilder:printcolumn:name="Metal3",type=string,JSONPath=`.status.hostState`
// +kubebuilder:printcolumn:name="Power",type=string,JSONPath=`.status.power.state`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenantClusterRef.name`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Drifted",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Drifted")].message`
// +kubebuilder:printcolumn:name="Address",type=string,priority=1,JSONPath=`.status.addresses[0].address`
// +kubebuilder:printcolumn:name="Provider ID",type=string,priority=1,JSONPath=`.status.providerID`
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineSpec `json:"spec"`
	// +kubebuilder:default:={"observedGeneration":-1}
	Status MachineStatus `json:"status,omitempty"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Machine `json:"items"`
}

// ClaimUID returns the UID under which the Machine claims its server and its address, and in their references to it. A
// Machine that was restored from a backup keeps it although its own UID is another. The annotation is metadata: it
// means nothing without namespace and name. A value that is no UID is ignored: labels and names of Secrets contain it.
func (m *Machine) ClaimUID() types.UID {
	if text := m.Annotations[ClaimUIDAnnotationKey]; uid.MatchString(text) {
		return types.UID(text)
	}
	return m.UID
}

// uid matches the UIDs that API servers make.
var uid = regexp.MustCompile(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`)

// IsRestored reports whether the Machine is the copy of a Machine that claimed under another UID.
func (m *Machine) IsRestored() bool { return m.ClaimUID() != m.UID }

// Values of RebootAnnotationKey.
const (
	RebootHard = "hard"
	RebootSoft = "soft"
)

// PowerState of a server.
type PowerState string

const (
	// PowerOn is a server that has power.
	PowerOn PowerState = "On"
	// PowerOff is a server without power.
	PowerOff PowerState = "Off"
)

// MachinePower says whether a server is to have power.
type MachinePower struct {
	// State that the server is to have once its image is installed, On or Off; empty or unset means On. Installing
	// takes power, so a Machine that is Off from the start is installed first and then switched off.
	// +optional
	// +kubebuilder:validation:Enum=On;Off;""
	State PowerState `json:"state,omitempty"`
}

// MachinePowerStatus is the power of a server as Metal3 reports it.
type MachinePowerStatus struct {
	// State that Metal3 has seen last, On or Off.
	// +optional
	// +kubebuilder:validation:Enum=On;Off
	State PowerState `json:"state,omitempty"`
	// LastReboot is when a reboot was last requested from Metal3 for the annotation karpenter.metal3.io/reboot.
	// +optional
	LastReboot *metav1.Time `json:"lastReboot,omitempty"`
}

// ChosenHost is the value of ChosenHostAnnotationKey, as JSON.
//
// +kubebuilder:object:generate=false
type ChosenHost struct {
	HostReference `json:",inline"`
	// NodeType that the host is claimed as.
	NodeType string `json:"nodeType"`
}

// ChosenHost returns the host that the manager has chosen for the Machine, nil if there is none. Once the host is
// claimed, the status has it, and counts from then on. Every account that may write Machines can set the annotation: it
// gives no right to a host. Fields that this version does not know are ignored. The error is about an unreadable value:
// whether a host is claimed for the Machine is then unknown, so nothing may be deleted or released because of it.
func (m *Machine) ChosenHost() (*ChosenHost, error) {
	text := m.Annotations[ChosenHostAnnotationKey]
	if text == "" {
		return nil, nil
	}
	chosen := &ChosenHost{}
	err := json.Unmarshal([]byte(text), chosen)
	if err == nil && (chosen.Namespace == "" || chosen.Name == "" || chosen.UID == "" || chosen.NodeType == "") {
		err = errors.New("namespace, name, uid and nodeType are required")
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s of Machine %s/%s is %.256q, which names no host, %w", ChosenHostAnnotationKey, m.Namespace,
			m.Name, text, err)
	}
	return chosen, nil
}

// IsOnItsWay reports whether a Machine has a server that is still to become a node or, without a tenant, provisioned.
func (m *Machine) IsOnItsWay() bool {
	switch m.Status.Phase {
	case MachineClaimed, MachineProvisioning:
		return true
	case MachineProvisioned:
		return m.Spec.TenantClusterRef != nil // without a tenant it has arrived
	}
	return false
}

// Host returns the host that the Machine has, or that was chosen for it and may be claimed; false if there is none.
func (m *Machine) Host() (HostReference, bool) {
	if m.Status.HostRef != nil {
		return *m.Status.HostRef, true
	}
	if chosen, _ := m.ChosenHost(); chosen != nil {
		return chosen.HostReference, true
	}
	return HostReference{}, false
}

// HasHost reports whether the Machine has a host or a host was chosen for it, even if the choice cannot be read.
func (m *Machine) HasHost() bool {
	return m.Status.HostRef != nil || m.Annotations[ChosenHostAnnotationKey] != ""
}

// SetChosenHost writes the annotation that ChosenHost reads.
func (m *Machine) SetChosenHost(host HostReference, nodeType string) {
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	text, _ := json.Marshal(ChosenHost{HostReference: host, NodeType: nodeType}) // strings do not fail
	m.Annotations[ChosenHostAnnotationKey] = string(text)
}

// OnErrorPolicy decides what happens to a Machine when Metal3 reports an error of its server.
// +kubebuilder:validation:Enum=Hold;Replace
type OnErrorPolicy string

const (
	// OnErrorHold keeps the Machine, in error, for inspection.
	OnErrorHold OnErrorPolicy = "Hold"
	// OnErrorReplace gives the claim up and quarantines the server.
	OnErrorReplace OnErrorPolicy = "Replace"
)

// MachineStage is a part of the way from the claim to the node that can be seen from outside. A Machine reaches each at
// most once.
// +kubebuilder:validation:Enum=Network;UserData;Waiting;Preparing;Writing;Booting;Provisioned;Joined
type MachineStage string

// Stages, in the order of the way.
const (
	// StageNetwork: the server moves into the network of the tenant.
	StageNetwork MachineStage = "Network"
	// StageUserData: user data is being prepared.
	StageUserData MachineStage = "UserData"
	// StageWaiting: Metal3 has not started on the server.
	StageWaiting MachineStage = "Waiting"
	// StagePreparing: Metal3 prepares the server.
	StagePreparing MachineStage = "Preparing"
	// StageWriting: Metal3 writes the image.
	StageWriting MachineStage = "Writing"
	// StageBooting: the server boots, and its node has not registered.
	StageBooting MachineStage = "Booting"
	// StageProvisioned: the image is installed. It is the last stage of a Machine without a tenant.
	StageProvisioned MachineStage = "Provisioned"
	// StageJoined: the node has registered. It is the last stage of a tenant's Machine.
	StageJoined MachineStage = "Joined"
)

// MachineProgress is the progress of a Machine from its claim to its node.
type MachineProgress struct {
	// Step that the Machine is at, counted from 1.
	Step int32 `json:"step"`
	// Steps on the whole way.
	Steps int32 `json:"steps"`
	// Stage that the Machine has reached: a step, or a part of one.
	// +optional
	Stage MachineStage `json:"stage,omitempty"`
	// Description of the stage, for people to read: "writing image".
	Description string `json:"description"`
	// StartTime is when the server was claimed.
	StartTime metav1.Time `json:"startTime"`
	// LastProgressTime is when a step, or a part of one, was last seen to begin, or when the Machine last resumed after
	// it was suspended. The NodeType's provisioningDeadline counts from here.
	LastProgressTime metav1.Time `json:"lastProgressTime"`
	// Suspended is true while the deadline does not count, because no progress is possible: Metal3 reports an error and
	// onError of the NodeType is Hold, the host is paused or detached, or the spec switches the server off.
	// +optional
	Suspended bool `json:"suspended,omitempty"`
	// Interrupted is true once the Machine was suspended. Its duration is then not used for estimates.
	// +optional
	Interrupted bool `json:"interrupted,omitempty"`
	// ExpectedReadyTime is when Machines of this type usually have joined. Unset until one has ever joined.
	// +optional
	ExpectedReadyTime *metav1.Time `json:"expectedReadyTime,omitempty"`
}

// ProvisioningEstimate is how long servers of a type take from the claim to the node, learned from earlier Machines.
type ProvisioningEstimate struct {
	// TypicalSeconds from the claim to the node: the median of the Machines of each namespace, and of these medians the
	// lower median. It stays while it changes by less than a tenth, and also after the last of these Machines is gone.
	TypicalSeconds int64 `json:"typicalSeconds"`
}

// InstalledField is one thing that shaped an installed machine: a property, or the text of an object that a property
// refers to. For an OSImage it is only the name, and not the content.
type InstalledField struct {
	// Field is the key of a property, spec.overhead.kubeReserved of the NodeType, or the kind, name and field of an
	// object that was written into the user data or network data.
	Field string `json:"field"`
	// Value that was installed, if it may be shown. Empty for documents, which may hold secrets.
	// +optional
	Value string `json:"value,omitempty"`
	// Digest of the whole value, which shows a change. The digest of a URL leaves out user and password.
	Digest string `json:"digest"`
}

// Reasons of the condition Drifted of a Machine. Karpenter uses them as the reason of Drifted on the NodeClaim too.
const (
	// ReasonUpToDate: a Machine made now would be installed in the same way.
	ReasonUpToDate = "UpToDate"
	// ReasonNodeTypeChanged: the NodeType sets aside another amount for kubelet than when the machine was installed.
	ReasonNodeTypeChanged = "NodeTypeChanged"
	// ReasonOSImageChanged: a Machine made now would get another image.
	ReasonOSImageChanged = "OSImageChanged"
	// ReasonUserDataChanged: the user data, its template or the SSH keys in it have changed.
	ReasonUserDataChanged = "UserDataChanged"
	// ReasonNetworkChanged: the network, or the network data or its template, has changed.
	ReasonNetworkChanged = "NetworkChanged"
	// ReasonNodeClassChanged: the MetalNodeClass has other properties than the Machine was made with, or is for another
	// NodeProvider. On the NodeClaim only: the manager sees no tenant.
	ReasonNodeClassChanged = "NodeClassChanged"
	// ReasonKubeletArgsChanged: the MetalNodeClass has other kubeletArgs than the node was started with. On the
	// NodeClaim only.
	ReasonKubeletArgsChanged = "KubeletArgsChanged"
	// ReasonKubernetesVersionChanged: the tenant's API server has a newer minor version than the node was installed with, and
	// privateNodes.autoUpgrade is enabled. On the NodeClaim only.
	ReasonKubernetesVersionChanged = "KubernetesVersionChanged"
)
