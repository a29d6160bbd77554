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
	// NodeTypeLabelKey is the name of the NodeType, on nodes and for what selects them. Claimed hosts have an annotation of the same key.
	NodeTypeLabelKey = Group + "/node-type"
	// AcceleratedLabelKey is "true" on instance types that have accelerators and absent from all others. It is a
	// requirement for scheduling only and never a label of a Node: pods that ask for no accelerator are kept off
	// such types by requiring its absence.
	AcceleratedLabelKey = Group + "/accelerated"
	// ReservationIDLabelKey names the pool of servers that a reserved offering draws from.
	ReservationIDLabelKey = Group + "/reservation-id"
)

// Labels of instance types and their nodes that say how big the servers are, so that requirements can compare them (Gt, Lt). A property of
// a NodeType of the same key is such a label where the type does not say it otherwise.
const (
	// InstanceCPULabelKey is the number of cpus.
	InstanceCPULabelKey = Group + "/instance-cpu"
	// InstanceMemoryLabelKey is the memory in MiB.
	InstanceMemoryLabelKey = Group + "/instance-memory"
	// InstanceGPUCountLabelKey is the number of GPUs, by a device plugin (nvidia.com/gpu) or a DRA driver (gpu.nvidia.com).
	InstanceGPUCountLabelKey = Group + "/instance-gpu-count"
	// InstanceGPUManufacturerLabelKey is who has made the GPUs, from the name of the resource or the driver: nvidia, amd, intel.
	InstanceGPUManufacturerLabelKey = Group + "/instance-gpu-manufacturer"
	// InstanceGPUNameLabelKey is the model of the GPUs: the attribute productName of the devices, in lower case.
	InstanceGPUNameLabelKey = Group + "/instance-gpu-name"
	// InstanceGPUMemoryLabelKey is the memory of one GPU in MiB: the capacity memory of the devices.
	InstanceGPUMemoryLabelKey = Group + "/instance-gpu-memory"
)

// InstanceLabelKeys are the keys of these labels.
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

// RackUnitLabelKey is the height unit or slot of a BareMetalHost in its rack, as a number of which 1 is the lowest: "12". What shows racks
// orders servers by it; nodes do not inherit it.
const RackUnitLabelKey = "rack-unit"

// GlobalZone is the zone of a server whose NodeType names none and that has no datacenter label.
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
	// PropertyImageChecksumType is md5, sha256 or sha512; found out from the length of the checksum if unset.
	PropertyImageChecksumType = Group + "/image-checksum-type"
	// PropertySSHKeys names the SSHKeys, separated by commas, whose owners may log in.
	PropertySSHKeys = Group + "/ssh-keys"
	// PropertyUserData is a document that cloud-init reads at the first boot: cloud-config, a script, or a MIME message.
	PropertyUserData = Group + "/user-data"
	// PropertyUserDataTemplate names the MachineConfigTemplate that makes the document for cloud-init.
	PropertyUserDataTemplate = Group + "/user-data-template"
	// PropertyNetworkDataTemplate names the MachineConfigTemplate that makes the network data.
	PropertyNetworkDataTemplate = Group + "/network-data-template"
	// PropertyNetworkCIDR is the network of the servers, in CIDR notation; its host part is the gateway.
	PropertyNetworkCIDR = Group + "/network-cidr"
	// PropertyNetworkIPRange are the ranges of addresses that servers may have: "a-b,c-d". All of the network if unset.
	PropertyNetworkIPRange = Group + "/network-ip-range"
	// PropertyDNSServers are the addresses of name servers, separated by commas.
	PropertyDNSServers = Group + "/dns-servers"
	// PropertyNTPServers are the addresses or host names of time servers, separated by commas. cloud-init configures them, unless the
	// user data has "servers" of its own in its "ntp".
	PropertyNTPServers = Group + "/ntp-servers"
	// PropertyNetworkData is the whole network data, instead of what is made from the network.
	PropertyNetworkData = Group + "/network-data"
)

// Keys of Machines.
const (
	// MachineFinalizer keeps a Machine until its server is back in the pool.
	MachineFinalizer = Group + "/machine"
	// NodeClaimUIDAnnotationKey holds the UID of the NodeClaim that a Machine was made for. Set by the provider at
	// creation; a Machine of the right name and another UID belongs to an earlier NodeClaim.
	NodeClaimUIDAnnotationKey = Group + "/nodeclaim-uid"
	// NodeClaimLabelKey holds the name of the NodeClaim that a Machine was made for.
	NodeClaimLabelKey = Group + "/nodeclaim"
	// ClaimUIDAnnotationKey holds the UID that a Machine had when the manager first saw it, under which it claims its
	// server and its address. It differs from the UID of a Machine that was restored from a backup by a tool that
	// recreates objects.
	ClaimUIDAnnotationKey = Group + "/claim-uid"
	// ChosenHostAnnotationKey holds the host that the manager has chosen and the NodeType that it claims it as, as a
	// JSON object with namespace, name, uid and nodeType. The manager writes it with its finalizer, before it claims the
	// host. After a crash between the two it finds the claim by it, and does not take a second host. Once
	// status.hostRef is set, that counts and not this.
	ChosenHostAnnotationKey = Group + "/chosen-host"
	// RebootAnnotationKey on a Machine reboots its server once. The value is hard (reset), soft (ask the operating system
	// first, reset if it does not answer) or empty, which means soft. The manager removes the annotation after it has
	// told Metal3. It takes effect once the image is installed and only while the server is to be on.
	RebootAnnotationKey = Group + "/reboot"
	// RebootOperationAnnotationKey on a Machine is the ID of the operation that its server was last to be rebooted for. The provider
	// writes it with the request, and asks for each operation once. The manager takes two IDs for two requests.
	RebootOperationAnnotationKey = Group + "/reboot-operation"
	// ReasonAnnotationKey on a Machine is why a person has rebooted or switched its server last, for the next person. Nothing reads it.
	ReasonAnnotationKey = Group + "/reason"
)

// Hooks hold a Machine, in the manner of Cluster API's pre-drain and pre-terminate hooks. A hook is an annotation: one of
// these prefixes, a slash, and a name. The manager writes it on the BareMetalHost with the claim, where no tenant can write, and
// there it holds until the controller that owns it removes it. Its value is for that controller. On the Machine is a copy.
const (
	// PreProvisionHookPrefix on a BareMetalHost holds its Machine before anything is installed. On the Machine is a copy.
	PreProvisionHookPrefix = "pre-provision.hook." + Group
	// PreReturnHookPrefix on a BareMetalHost holds its Machine, which is being deleted, once the server has been cleaned and before it
	// goes back to the pool. NetworkHook holds it earlier: once the server is switched off, and before it is cleaned. Until the hook is
	// removed no other Machine can claim the server. On the Machine is a copy.
	PreReturnHookPrefix = "pre-return.hook." + Group
	// HookMessagePrefix begins the annotation, with a slash and the name of a hook after it, in which the owner of the
	// hook can write what it is waiting for. The manager repeats it in the condition NetworkReady.
	HookMessagePrefix = "message.hook." + Group
	// NetworkHook is the name of the hook that moves a server into the network of its tenant and back. The manager
	// sets it for Machines whose TenantCluster has a spec.network, with that network as its value. Hooks of other names are set on
	// Machines before they have a server, and hold only if the manager has them in its flag --hooks.
	NetworkHook = "tenant-network"
)

// Keys of BareMetalHosts, and of the Secrets beside them.
const (
	// MachineLabelKey and MachineUIDLabelKey mark the objects in the hosts' namespace that belong to a Machine.
	MachineLabelKey    = Group + "/machine"
	MachineUIDLabelKey = Group + "/machine-uid"
	// MachineAnnotationKey on a Secret holds namespace/name of the Machine that it belongs to: an owner reference cannot
	// cross namespaces, and a label is too short for some names.
	MachineAnnotationKey = Group + "/machine"
	// NodeTypeAnnotationKey on a claimed host names the NodeType that it was claimed as. It is written and removed
	// together with the consumer. A host may match several types, so the count against maxCapacity needs it.
	NodeTypeAnnotationKey = Group + "/node-type"
	// ClaimAnnotationKey on a claimed host says when it was claimed, for which TenantCluster and at which cost, as a JSON object. It is
	// written and removed together with the consumer, and is what the HostUsage says of the use.
	ClaimAnnotationKey = Group + "/claim"
	// QuarantinedAnnotationKey keeps a host from being claimed until an operator removes it, after checking the server.
	// The manager sets it when a Machine is given up. An operator may set it too, with any value. It has no effect on a
	// Machine that has the host.
	QuarantinedAnnotationKey = Group + "/quarantined"
	// FaultAnnotationKey is on a host whose last use ended in a fault, beyond the limit of those that are quarantined: it is given out after
	// all others, until a Machine has run on it for an hour. The value has the form of QuarantinedAnnotationKey's value.
	FaultAnnotationKey = Group + "/fault"
	// LastTenantAnnotationKey names the namespace of the Machine that a host was last installed for, for as long as its disks
	// may hold what that left there. The manager sets it together with the image, and removes it with the claim once Metal3 has
	// cleaned the host. Until then only Machines of that namespace get the host. An operator removes it after erasing the disks.
	LastTenantAnnotationKey = Group + "/last-tenant"
	// CleaningAnnotationKey is on a claimed host: the metadata.generation as of which nothing of its tenant will be left on it once it
	// is available without an image. With another generation, the spec was changed meanwhile, and cleaning may have been off. On a host
	// that is installed in a tenant's network, the time of its last installation before follows. On a host that is cleaned, a digest
	// follows of what matters for that, and the generation grows with each edit of others that the manager sees and that does not matter.
	CleaningAnnotationKey = Group + "/cleaning"
	// ReleasingAnnotationKey on a claimed host says that its release has begun, and that it is switched off for good: it leaves the
	// network of its tenant, and only then are its disks erased. Nothing switches it on for its Machine any more. It is removed with the
	// consumer.
	ReleasingAnnotationKey = Group + "/releasing"
	// MaintenanceAnnotationKey takes a host out of the pool for as long as it is there. Its value says why, for people.
	MaintenanceAnnotationKey = Group + "/maintenance"
	// SavedUserDataAnnotationKey on a host names the Secret that its spec.userData referred to, as namespace/name, while a Machine has the
	// host.
	SavedUserDataAnnotationKey = Group + "/saved-user-data"
	// SavedNetworkDataAnnotationKey on a host names the Secret that its spec.networkData referred to, as namespace/name, while that
	// refers to the network data of a Machine.
	SavedNetworkDataAnnotationKey = Group + "/saved-network-data"
	// RebootedAnnotationKey on a host says when Metal3 was told to reboot it for a request that its Machine may still carry, and for
	// which operation, as a digest of its ID.
	// Metal3 removes its own annotation when it is done, so without this one a run that was killed between the two
	// writes would reboot the server a second time.
	RebootedAnnotationKey = Group + "/rebooted"
	// CAPIUnhealthyAnnotationKey marks a host that Cluster API's provider for Metal3 found to be unhealthy. Such a host
	// is not claimed.
	CAPIUnhealthyAnnotationKey = "capi.metal3.io/unhealthy"
	// CAPINodeReuseLabelKey marks a host that Cluster API's provider for Metal3 has released and keeps for the next Machine of the same
	// control plane or MachineDeployment (spec.nodeReuse of a Metal3MachineTemplate). Such a host is not claimed.
	CAPINodeReuseLabelKey = "infrastructure.cluster.x-k8s.io/node-reuse"
)

// Annotations of BareMetalHosts by which a DHCP server can assign addresses. Each is written under its alias, too (Aliases).
const (
	// IPAddressAnnotationKey holds the address of the server and its prefix length: 192.168.100.10/24.
	IPAddressAnnotationKey = Group + "/ip-address"
	// GatewayAnnotationKey holds the address of the gateway.
	GatewayAnnotationKey = Group + "/gateway"
	// DNSServersAnnotationKey holds the addresses of the name servers, separated by commas.
	DNSServersAnnotationKey = Group + "/dns-servers"
	// NTPServersAnnotationKey holds the addresses or host names of the time servers, separated by commas.
	NTPServersAnnotationKey = Group + "/ntp-servers"
	// SavedNetworkAnnotationKey holds, as a JSON object, what the annotations for a DHCP server were before the server was
	// claimed; null for one that was not there. It is there as long as they hold the values of a Machine.
	SavedNetworkAnnotationKey = Group + "/saved-network"
)

// Keys of Karpenter's objects in the tenant cluster.
const (
	// NodeClassTerminationFinalizer keeps a MetalNodeClass while NodeClaims refer to it: without it they could not be
	// launched again, drained or compared any more.
	NodeClassTerminationFinalizer = Group + "/termination"
	// RolloutAnnotationKey is on NodePools: the NodeClaims that were deleted without a spare server, so that their
	// servers are reinstalled, as JSON. An entry is removed at the first reconcile after the server is back.
	RolloutAnnotationKey = Group + "/rollout"
	// NarrowedAnnotationKey is on MetalNodeClasses of a TenantCluster's pools: the properties that narrow the NodeTypes of the pool, as
	// keys separated by commas. A property that is not among them narrows only when no node would be replaced for it.
	NarrowedAnnotationKey = Group + "/narrowed"
	// NodeProfileLabelKey is the label that names a NodeProfile: on a NodePool for its nodes, and on a Node whose pool or Machine names one.
	NodeProfileLabelKey = Group + "/node-profile"
	// NodeProfileRestrictedLabelKey has the same value on the Node. No kubelet may set or remove it.
	NodeProfileRestrictedLabelKey = "node-restriction.kubernetes.io/node-profile"
	// NodeProfileAppliedAnnotationKey is on Nodes: what their NodeProfile has put onto them, as JSON, so that it is removed with
	// the profile. On NodeClaims and Machines it holds what the node registers with.
	NodeProfileAppliedAnnotationKey = Group + "/node-profile-applied"
	// NodePoolHashAnnotationKey is on NodePools and NodeClaims in memory only: the hash of the NodePool without its NodeProfile.
	NodePoolHashAnnotationKey = Group + "/nodepool-hash"
	// GangMinCountAnnotationKey is on pods: how many pods of their gang must run at one time, a whole number from 1. No server is planned for
	// the gang before there is room for so many.
	GangMinCountAnnotationKey = "gang." + Group + "/min-count"
	// GangIdleDurationAnnotationKey is on pods of a gang that does not say its size: how long it waits for more pods after the last has come,
	// instead of the provider's --gang-idle-duration.
	GangIdleDurationAnnotationKey = "gang." + Group + "/idle-duration"
	// GangsAnnotationKey is on NodeClaims: the gangs that the server was planned for, as a JSON list of MachineGangs. A minCount is how
	// many servers the gang needs together, 0 if each is of use by itself.
	GangsAnnotationKey = Group + "/gangs"
	// ReportIssueAnnotationKey on a NodeClaim has its server replaced and quarantined, with its value for the reason. A user writes it, or the
	// provider for a label of NVSentinel.
	ReportIssueAnnotationKey = Group + "/report-issue"
	// RebootBootIDAnnotationKey is on Nodes that NVSentinel asks to reboot: the ID of the boot in which it asked. The provider removes it
	// with the label once the node has another.
	RebootBootIDAnnotationKey = Group + "/reboot-boot-id"
	// DriftAnnotationKey is on NodeClaims: what has changed since the server was installed, in words.
	DriftAnnotationKey = Group + "/drift"
)

// Keys of TenantClusters, NodeProviders and NodeTypes, and of what is made for them.
const (
	// TenantClusterFinalizer keeps a TenantCluster until its servers are back in the pool.
	TenantClusterFinalizer = Group + "/tenantcluster"
	// ConfirmAcceptClusterAnnotationKey on a TenantCluster confirms that another cluster is the tenant's from now on. Its value is the
	// token in the condition ClusterIdentified. The manager removes it.
	ConfirmAcceptClusterAnnotationKey = "confirm." + Group + "/accept-cluster"
	// ConfirmCollectMachinesAnnotationKey on a TenantCluster confirms that Machines whose NodeClaims are gone are deleted although there
	// are many. Its value is the time at which the condition CollectionAllowed became false.
	ConfirmCollectMachinesAnnotationKey = "confirm." + Group + "/collect-machines"
	// ConfirmDeleteMachinesAnnotationKey on a TenantCluster confirms that it is deleted although it has Machines, or that
	// its spec does not call for NodePools with Machines any more, or for no server of theirs. Its value is how many
	// Machines there are, and the manager removes it after use; or it is any, for whatever number, and stays.
	ConfirmDeleteMachinesAnnotationKey = "confirm." + Group + "/delete-machines"
	// TenantPoolLabelKey marks the NodePools and MetalNodeClasses that a TenantCluster's autoNodes call for. Its value
	// is made of the namespace and name of the TenantCluster.
	TenantPoolLabelKey = Group + "/tenantcluster"
	// StandAloneMachinesLabelKey on a namespace without TenantClusters lets Machines there have servers. The platform sets it:
	// users of a namespace cannot change its labels.
	StandAloneMachinesLabelKey = Group + "/stand-alone-machines"
	// StandAloneMachinesLabelValue is its value.
	StandAloneMachinesLabelValue = "allowed"
	// ProviderLabelsAnnotationKey on a NodeType holds the names, separated by commas, of the labels that its NodeProvider has written, and
	// removes when they are not in its template any more.
	ProviderLabelsAnnotationKey = Group + "/provider-labels"
	// ProviderAnnotationsAnnotationKey on a NodeType holds the same of annotations.
	ProviderAnnotationsAnnotationKey = Group + "/provider-annotations"
	// SelectAllHostsAnnotationKey on a NodeProvider or a NodeType names the types, separated by commas, whose empty or
	// missing selector is meant: they have every server of the namespace.
	SelectAllHostsAnnotationKey = Group + "/select-all-hosts"
)

// Keys of the objects that the DRA sync writes.
const (
	// AddressPoolAnnotationKey is on IPAddresses, and holds the pool that the address was taken from as a JSON object: its
	// network, and its ranges if it has any.
	AddressPoolAnnotationKey = Group + "/address-pool"
	// HostClaimAnnotationKey is on the claims that the provider makes in the tenant, and holds the name of the host's claim.
	HostClaimAnnotationKey = Group + "/host-claim"
	// DRASyncFinalizer is on the tenant's objects that have a copy on the host, and on the copies.
	DRASyncFinalizer = Group + "/dra-sync"
)

// UserDataSecretKey is the key of the user data in the Secret that Machine.spec.bootstrap.dataSecretName names and
// in the one that the BareMetalHost refers to.
const UserDataSecretKey = "userData"

// NameReference refers to an object by name, in the namespace of the referrer or, for cluster-scoped kinds, in none.
type NameReference struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ReasonNodeUnhealthy: a server is quarantined because the node on it was unhealthy and Karpenter has replaced it.
const ReasonNodeUnhealthy = "NodeUnhealthy"

// HookKey is the annotation of the hook of that name.
func HookKey(prefix, name string) string { return prefix + "/" + name }

// Hooks returns the names of the hooks with the prefix that annotations hold, sorted.
func Hooks(annotations map[string]string, prefix string) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name, found := strings.CutPrefix(key, prefix+"/"); found {
			names = append(names, name)
		}
	}
	return names
}
