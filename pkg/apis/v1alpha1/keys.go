// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// Labels that nodes, node pools and pods can select on.
const (
	// NodeTypeLabelKey is the NodeType's name: on nodes, in their selectors, and as an annotation on claimed hosts.
	NodeTypeLabelKey = Group + "/node-type"
	// AcceleratedLabelKey is "true" on instance types with accelerators and absent from all others. It is only a
	// requirement for scheduling and never a label of a Node. Pods that ask for no accelerator require its absence,
	// which keeps them off these types.
	AcceleratedLabelKey = Group + "/accelerated"
	// ReservationIDLabelKey names the pool of servers that a reserved offering draws from.
	ReservationIDLabelKey = Group + "/reservation-id"
)

// Labels for the size of servers, on instance types and their nodes, so that requirements can compare sizes (Gt, Lt). A
// property of a NodeType with the same key sets the label if the type does not say the size otherwise.
const (
	// InstanceCPULabelKey is the number of cpus.
	InstanceCPULabelKey = Group + "/instance-cpu"
	// InstanceMemoryLabelKey is the memory in MiB.
	InstanceMemoryLabelKey = Group + "/instance-memory"
	// InstanceGPUCountLabelKey is the number of GPUs, by a device plugin (nvidia.com/gpu) or a DRA driver (gpu.nvidia.com).
	InstanceGPUCountLabelKey = Group + "/instance-gpu-count"
	// InstanceGPUManufacturerLabelKey is the maker of the GPUs, by the resource or the driver: nvidia, amd, intel.
	InstanceGPUManufacturerLabelKey = Group + "/instance-gpu-manufacturer"
	// InstanceGPUNameLabelKey is the model of the GPUs: the attribute productName of the devices, in lower case.
	InstanceGPUNameLabelKey = Group + "/instance-gpu-name"
	// InstanceGPUMemoryLabelKey is the memory of one GPU in MiB: the capacity memory of the devices.
	InstanceGPUMemoryLabelKey = Group + "/instance-gpu-memory"
)

// InstanceLabelKeys returns the keys of the labels for the size of servers.
func InstanceLabelKeys() []string {
	return []string{InstanceCPULabelKey, InstanceMemoryLabelKey, InstanceGPUCountLabelKey, InstanceGPUManufacturerLabelKey,
		InstanceGPUNameLabelKey, InstanceGPUMemoryLabelKey}
}

// Labels of BareMetalHosts that nodes inherit by default (flag --topology-labels).
const (
	RackLabelKey         = "rack"
	NVLinkDomainLabelKey = "nvlink-domain"
	DatacenterLabelKey   = "datacenter"
)

// RackUnitLabelKey is the height unit or slot of a BareMetalHost in its rack, as a number that starts with 1 at the
// bottom: "12". Views of racks order servers by it; nodes do not inherit it.
const RackUnitLabelKey = "rack-unit"

// GlobalZone is the zone of a server that has no datacenter label and whose NodeType names no zone.
const GlobalZone = "global"

// Keys of properties. Each has an alias (Aliases).
const (
	// PropertyOSImage names the OSImage to install.
	PropertyOSImage = Group + "/os-image"
	// PropertyServerName pins a Machine to the BareMetalHost of that name.
	PropertyServerName = Group + "/server-name"
	// PropertyImageURL is the URL of the disk image, by http, https, or oci with a digest: oci://registry.example.com/images/ubuntu@sha256:...
	PropertyImageURL = Group + "/image-url"
	// PropertyImageChecksum is the checksum of the disk image, or the URL of a file that holds it.
	PropertyImageChecksum = Group + "/image-checksum"
	// PropertyImageChecksumType is md5, sha256 or sha512; if unset, the length of the checksum decides.
	PropertyImageChecksumType = Group + "/image-checksum-type"
	// PropertySSHKeys names the SSHKeys whose owners may log in, separated by commas.
	PropertySSHKeys = Group + "/ssh-keys"
	// PropertyUserData is a document that cloud-init reads at the first boot: cloud-config, a script, or a MIME message.
	PropertyUserData = Group + "/user-data"
	// PropertyUserDataTemplate names the MachineConfigTemplate that renders the document for cloud-init.
	PropertyUserDataTemplate = Group + "/user-data-template"
	// PropertyNetworkDataTemplate names the MachineConfigTemplate that renders the network data.
	PropertyNetworkDataTemplate = Group + "/network-data-template"
	// PropertyNetworkCIDR is the network of the servers, in CIDR notation; its host part is the gateway.
	PropertyNetworkCIDR = Group + "/network-cidr"
	// PropertyNetworkIPRange are the ranges of addresses that servers may have: "a-b,c-d". If unset, the whole network.
	PropertyNetworkIPRange = Group + "/network-ip-range"
	// PropertyDNSServers are the addresses of name servers, separated by commas.
	PropertyDNSServers = Group + "/dns-servers"
	// PropertyNTPServers are the addresses or host names of time servers, separated by commas. cloud-init configures
	// them, unless the user data has "servers" of its own in its "ntp".
	PropertyNTPServers = Group + "/ntp-servers"
	// PropertyNetworkData is the whole network data. It replaces the network data that follows from the network.
	PropertyNetworkData = Group + "/network-data"
)

// Keys of Machines.
const (
	// MachineFinalizer keeps a Machine until its server is back in the pool.
	MachineFinalizer = Group + "/machine"
	// NodeClaimUIDAnnotationKey holds the UID of the NodeClaim that a Machine was made for. The provider sets it at
	// creation. A Machine of the right name with another UID belongs to an earlier NodeClaim.
	NodeClaimUIDAnnotationKey = Group + "/nodeclaim-uid"
	// NodeClaimLabelKey holds the name of the NodeClaim that a Machine was made for.
	NodeClaimLabelKey = Group + "/nodeclaim"
	// ClaimUIDAnnotationKey holds the UID that a Machine had when the manager first saw it. The Machine claims its
	// server and its address under this UID. It differs from the Machine's own UID after a tool restored the Machine
	// from a backup by recreating it.
	ClaimUIDAnnotationKey = Group + "/claim-uid"
	// ChosenHostAnnotationKey holds the host that the manager has chosen and the NodeType that it claims the host as,
	// as a JSON object with namespace, name, uid and nodeType. The manager writes it with its finalizer, before it
	// claims the host. After a crash in between, the manager finds the claim by this annotation, and does not take a
	// second host. Once status.hostRef is set, that counts instead.
	ChosenHostAnnotationKey = Group + "/chosen-host"
	// RebootAnnotationKey on a Machine reboots its server once. The value is hard (reset), soft (ask the operating
	// system first, reset if it does not answer) or empty, which means soft. The manager removes the annotation after
	// it has told Metal3. It takes effect once the image is installed and only while the server is to be on.
	RebootAnnotationKey = Group + "/reboot"
	// RebootOperationAnnotationKey on a Machine is the ID of the last operation that asked for a reboot of its server.
	// The provider writes it with the request, once for each operation. To the manager, two IDs are two requests.
	RebootOperationAnnotationKey = Group + "/reboot-operation"
	// ReasonAnnotationKey on a Machine tells people why its server was last rebooted or switched. No program reads it.
	ReasonAnnotationKey = Group + "/reason"
)

// Hooks hold a Machine, like Cluster API's pre-drain and pre-terminate hooks. A hook is an annotation: one of these
// prefixes, a slash, and a name. The manager writes it on the BareMetalHost, where no tenant can write, with the claim.
// It holds until its controller removes it. Its value is for that controller. The Machine has a copy.
const (
	// PreProvisionHookPrefix on a BareMetalHost holds its Machine before anything is installed. The Machine has a copy.
	PreProvisionHookPrefix = "pre-provision.hook." + Group
	// PreReturnHookPrefix on a BareMetalHost holds its Machine while the Machine is being deleted: after the server is
	// cleaned and before it goes back to the pool. NetworkHook holds earlier: after the server is switched off and
	// before it is cleaned. Until the hook is removed, no other Machine can claim the server. The Machine has a copy.
	PreReturnHookPrefix = "pre-return.hook." + Group
	// HookMessagePrefix begins an annotation for the owner of a hook; a slash and the name of the hook follow. The
	// owner can write there what it is waiting for. The manager repeats the text in the condition NetworkReady.
	HookMessagePrefix = "message.hook." + Group
	// NetworkHook is the name of the hook that moves a server into the network of its tenant and back. The manager sets
	// it for Machines whose TenantCluster has a spec.network, with that network as its value. Hooks of other names are
	// set on Machines before they have a server, and hold only if the manager has them in its flag --hooks.
	NetworkHook = "tenant-network"
)

// Keys of BareMetalHosts, and of the Secrets beside them.
const (
	// MachineLabelKey and MachineUIDLabelKey mark the objects in the hosts' namespace that belong to a Machine.
	MachineLabelKey    = Group + "/machine"
	MachineUIDLabelKey = Group + "/machine-uid"
	// MachineAnnotationKey on a Secret holds namespace/name of the Machine that the Secret belongs to: an owner
	// reference cannot cross namespaces, and a label is too short for some names.
	MachineAnnotationKey = Group + "/machine"
	// NodeTypeAnnotationKey on a claimed host names the NodeType that the host was claimed as. It is written and
	// removed together with the consumer. A host may match several types, so the count against maxCapacity needs it.
	NodeTypeAnnotationKey = Group + "/node-type"
	// ClaimAnnotationKey on a claimed host has the time of the claim, the TenantCluster and the cost, as a JSON object.
	// It is written and removed together with the consumer, and the HostUsage gets these values from it.
	ClaimAnnotationKey = Group + "/claim"
	// QuarantinedAnnotationKey keeps a host from being claimed until an operator checks the server and removes the
	// annotation. The manager sets it when it gives a Machine up. An operator may set it too, with any value. It has no
	// effect on a Machine that has the host.
	QuarantinedAnnotationKey = Group + "/quarantined"
	// FaultAnnotationKey is on a host whose last use ended in a fault, beyond the limit of quarantined hosts: it is
	// given out after all others, until a Machine has run on it for an hour. The value has the form of a quarantine's.
	FaultAnnotationKey = Group + "/fault"
	// LastTenantAnnotationKey names the namespace of the Machine that a host was last installed for, while its data may
	// be on the disks. The manager sets it with the image, and removes it with the claim once Metal3 has cleaned the
	// host. Until then only Machines of that namespace get the host. An operator removes it after erasing the disks.
	LastTenantAnnotationKey = Group + "/last-tenant"
	// CleaningAnnotationKey on a claimed host begins with a metadata.generation. A host that has it when it is
	// available without an image holds nothing of its tenant. If it has another, its spec was changed, and cleaning may
	// have been off. A host that is installed in a tenant's network also has the time of its previous installation. A
	// host that is being cleaned also has a digest of the fields that matter for cleaning: the manager raises the
	// generation with each edit by others that it sees and that does not matter.
	CleaningAnnotationKey = Group + "/cleaning"
	// ReleasingAnnotationKey on a claimed host says that its release has begun and that it is switched off for good: it
	// leaves the network of its tenant, and only then are its disks erased. Nothing switches it on for its Machine any
	// more. The annotation is removed with the consumer.
	ReleasingAnnotationKey = Group + "/releasing"
	// MaintenanceAnnotationKey keeps a host out of the pool while it is set. Its value says why, for people.
	MaintenanceAnnotationKey = Group + "/maintenance"
	// SavedUserDataAnnotationKey on a host names the Secret that its spec.userData referred to before the claim, as
	// namespace/name, while a Machine has the host.
	SavedUserDataAnnotationKey = Group + "/saved-user-data"
	// SavedNetworkDataAnnotationKey on a host names the Secret that its spec.networkData referred to before, as
	// namespace/name, while that field refers to the network data of a Machine.
	SavedNetworkDataAnnotationKey = Group + "/saved-network-data"
	// RebootedAnnotationKey on a host says when Metal3 was told to reboot it for a request that its Machine may still
	// carry, with a digest of the ID of the operation. Metal3 removes its own annotation when it is done, so without
	// this one a run that was killed between the two writes would reboot the server a second time.
	RebootedAnnotationKey = Group + "/rebooted"
	// CAPIUnhealthyAnnotationKey marks a host that Cluster API's provider for Metal3 found unhealthy. The manager does
	// not claim the host.
	CAPIUnhealthyAnnotationKey = "capi.metal3.io/unhealthy"
	// CAPINodeReuseLabelKey marks a host that Cluster API's provider for Metal3 keeps for the next Machine of the same
	// control plane or MachineDeployment (spec.nodeReuse of a Metal3MachineTemplate). The manager does not claim it.
	CAPINodeReuseLabelKey = "infrastructure.cluster.x-k8s.io/node-reuse"
)

// Annotations of BareMetalHosts that let a DHCP server assign addresses. Each is written under its alias too (Aliases).
const (
	// IPAddressAnnotationKey holds the address of the server and its prefix length: 192.168.100.10/24.
	IPAddressAnnotationKey = Group + "/ip-address"
	// GatewayAnnotationKey holds the address of the gateway.
	GatewayAnnotationKey = Group + "/gateway"
	// DNSServersAnnotationKey holds the addresses of the name servers, separated by commas.
	DNSServersAnnotationKey = Group + "/dns-servers"
	// NTPServersAnnotationKey holds the addresses or host names of the time servers, separated by commas.
	NTPServersAnnotationKey = Group + "/ntp-servers"
	// SavedNetworkAnnotationKey holds the earlier values of the annotations for a DHCP server, as a JSON object, null
	// for a missing one. It is there while these annotations hold the values of a Machine.
	SavedNetworkAnnotationKey = Group + "/saved-network"
)

// Keys of Karpenter's objects in the tenant cluster.
const (
	// NodeClassTerminationFinalizer keeps a MetalNodeClass while NodeClaims refer to it: without the class, nothing
	// could launch them again, drain them or compare them.
	NodeClassTerminationFinalizer = Group + "/termination"
	// RolloutAnnotationKey on a NodePool lists the NodeClaims that were deleted without a spare server so that their
	// servers are reinstalled, as JSON. An entry is removed at the first reconcile after the server is back.
	RolloutAnnotationKey = Group + "/rollout"
	// NarrowedAnnotationKey on a MetalNodeClass of a TenantCluster's pool names the properties that narrow the pool's
	// NodeTypes, separated by commas. Other properties narrow only when no node would be replaced for it.
	NarrowedAnnotationKey = Group + "/narrowed"
	// NodeProfileLabelKey names a NodeProfile: on a NodePool for its nodes, and on a Node if its pool or Machine does.
	NodeProfileLabelKey = Group + "/node-profile"
	// NodeProfileRestrictedLabelKey has the same value on the Node. No kubelet may set or remove it.
	NodeProfileRestrictedLabelKey = "node-restriction.kubernetes.io/node-profile"
	// NodeProfileAppliedAnnotationKey on a Node has everything that its NodeProfile has put onto it, as JSON, so that
	// it is removed with the profile. On NodeClaims and Machines it has what the node registers with.
	NodeProfileAppliedAnnotationKey = Group + "/node-profile-applied"
	// NodePoolHashAnnotationKey is in memory only, on NodePools and NodeClaims: the pool's hash without NodeProfile.
	NodePoolHashAnnotationKey = Group + "/nodepool-hash"
	// GangMinCountAnnotationKey on a pod says how many pods of its gang must run at one time, a whole number from 1. No
	// server is planned for the gang until there is room for that many.
	GangMinCountAnnotationKey = "gang." + Group + "/min-count"
	// GangIdleDurationAnnotationKey on a pod says how long its gang waits for more pods after the last one came,
	// instead of the provider's --gang-idle-duration. It is for gangs that do not give their size.
	GangIdleDurationAnnotationKey = "gang." + Group + "/idle-duration"
	// GangsAnnotationKey on a NodeClaim lists the gangs that the server was planned for, as a JSON list of
	// MachineGangs. A minCount is the number of servers that the gang needs together, 0 if each is of use by itself.
	GangsAnnotationKey = Group + "/gangs"
	// ReportIssueAnnotationKey on a NodeClaim makes the provider replace its server and the manager quarantine it, with
	// the value as the reason. A user writes it, or the provider for a label of NVSentinel.
	ReportIssueAnnotationKey = Group + "/report-issue"
	// RebootBootIDAnnotationKey on a Node that NVSentinel asks to reboot holds the boot ID at the time of the request.
	// The provider removes it with the label once the node has another boot ID.
	RebootBootIDAnnotationKey = Group + "/reboot-boot-id"
	// DriftAnnotationKey on a NodeClaim says in words what has changed since the server was installed.
	DriftAnnotationKey = Group + "/drift"
)

// Keys of TenantClusters, NodeProviders and NodeTypes, and of objects that are made for them.
const (
	// TenantClusterFinalizer keeps a TenantCluster until its servers are back in the pool.
	TenantClusterFinalizer = Group + "/tenantcluster"
	// ConfirmAcceptClusterAnnotationKey on a TenantCluster confirms that another cluster is the tenant's from now on.
	// Its value is the token in the condition ClusterIdentified. The manager removes it.
	ConfirmAcceptClusterAnnotationKey = "confirm." + Group + "/accept-cluster"
	// ConfirmCollectMachinesAnnotationKey on a TenantCluster confirms the deletion of many Machines whose NodeClaims
	// are gone. Its value is the time at which the condition CollectionAllowed became false.
	ConfirmCollectMachinesAnnotationKey = "confirm." + Group + "/collect-machines"
	// ConfirmDeleteMachinesAnnotationKey on a TenantCluster confirms its deletion although it has Machines. It also
	// confirms a spec that no longer calls for NodePools with Machines, or for servers in them. Its value is the number
	// of Machines, and the manager removes it after use. The value any confirms every number, and stays.
	ConfirmDeleteMachinesAnnotationKey = "confirm." + Group + "/delete-machines"
	// TenantPoolLabelKey marks the NodePools and MetalNodeClasses that a TenantCluster's autoNodes call for. Its value
	// is made from the namespace and name of the TenantCluster.
	TenantPoolLabelKey = Group + "/tenantcluster"
	// StandAloneMachinesLabelKey on a namespace without TenantClusters lets Machines there have servers. The platform
	// sets it: users of a namespace cannot change its labels.
	StandAloneMachinesLabelKey = Group + "/stand-alone-machines"
	// StandAloneMachinesLabelValue is the value of StandAloneMachinesLabelKey.
	StandAloneMachinesLabelValue = "allowed"
	// ProviderLabelsAnnotationKey on a NodeType names the labels that its NodeProvider has written, separated by
	// commas. The NodeProvider removes a label that is no longer in its template.
	ProviderLabelsAnnotationKey = Group + "/provider-labels"
	// ProviderAnnotationsAnnotationKey on a NodeType does the same for the annotations from its NodeProvider.
	ProviderAnnotationsAnnotationKey = Group + "/provider-annotations"
	// SelectAllHostsAnnotationKey on a NodeProvider or a NodeType names the types, separated by commas, whose empty or
	// missing selector is meant: they have every server of the namespace.
	SelectAllHostsAnnotationKey = Group + "/select-all-hosts"
)

// Keys of the objects that the DRA sync writes.
const (
	// AddressPoolAnnotationKey on an IPAddress holds the pool that the address was taken from, as a JSON object: its
	// network, and its ranges if it has any.
	AddressPoolAnnotationKey = Group + "/address-pool"
	// HostClaimAnnotationKey on a claim that the provider makes in the tenant holds the name of the host's claim.
	HostClaimAnnotationKey = Group + "/host-claim"
	// DRASyncFinalizer is on the tenant's objects that have a copy on the host, and on the copies.
	DRASyncFinalizer = Group + "/dra-sync"
)

// UserDataSecretKey is the key of the user data in a Secret: the one in Machine.spec.bootstrap.dataSecretName, and the
// Secret that the BareMetalHost refers to.
const UserDataSecretKey = "userData"

// NameReference refers to an object by name: in the namespace of the referrer, or of a cluster-scoped kind.
type NameReference struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ReasonNodeUnhealthy: a server is quarantined because its node was unhealthy and Karpenter has replaced the node.
const ReasonNodeUnhealthy = "NodeUnhealthy"

// HookKey returns the annotation of the hook of that name.
func HookKey(prefix, name string) string { return prefix + "/" + name }

// Hooks returns the names of the hooks with the prefix in annotations, sorted.
func Hooks(annotations map[string]string, prefix string) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name, found := strings.CutPrefix(key, prefix+"/"); found {
			names = append(names, name)
		}
	}
	return names
}
