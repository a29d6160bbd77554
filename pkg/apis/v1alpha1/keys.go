// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Labels that nodes, node pools and pods can select on.
const (
	// NodeTypeLabelKey is the property key of the reference for the name of the NodeType.
	NodeTypeLabelKey = "vcluster.com/node-type"
	// AcceleratedLabelKey is "true" on instance types that have accelerators and absent from all others. It is a
	// requirement for scheduling only and never a label of a Node: pods that ask for no accelerator are kept off
	// such types by requiring its absence.
	AcceleratedLabelKey = Group + "/accelerated"
	// ReservationIDLabelKey names the pool of servers that a reserved offering draws from.
	ReservationIDLabelKey = Group + "/reservation-id"
)

// Labels of BareMetalHosts that nodes inherit unless the manager is told of others (flag --topology-labels).
const (
	RackLabelKey         = "rack"
	NVLinkDomainLabelKey = "nvlink-domain"
	DatacenterLabelKey   = "datacenter"
)

// GlobalZone is the zone of a server whose NodeType names none and that has no datacenter label.
const GlobalZone = "global"

// Property keys, from the reference, to the letter.
const (
	// PropertyOSImage names the OSImage to install.
	PropertyOSImage = "vcluster.com/os-image"
	// PropertyServerName pins a Machine to the BareMetalHost of that name.
	PropertyServerName = "metal3.vcluster.com/server-name"
	// PropertyImageURL is the http or https URL of the disk image.
	PropertyImageURL = "metal3.vcluster.com/image-url"
	// PropertyImageChecksum is the checksum of the disk image, or the URL of a file that holds it.
	PropertyImageChecksum = "metal3.vcluster.com/image-checksum"
	// PropertyImageChecksumType is md5, sha256 or sha512; found out from the length of the checksum if unset.
	PropertyImageChecksumType = "metal3.vcluster.com/image-checksum-type"
	// PropertySSHKeys names the SSHKeys, separated by commas, whose owners may log in.
	PropertySSHKeys = "vcluster.com/ssh-keys"
	// PropertyUserData is a cloud-config document for the first boot.
	PropertyUserData = "vcluster.com/user-data"
	// PropertyUserDataTemplate names the MachineConfigTemplate that makes the cloud-config document.
	PropertyUserDataTemplate = "vcluster.com/user-data-template-config"
	// PropertyNetworkDataTemplate names the MachineConfigTemplate that makes the network data.
	PropertyNetworkDataTemplate = "vcluster.com/network-data-template-config"
	// PropertyNetworkCIDR is the network of the servers, in CIDR notation; its host part is the gateway.
	PropertyNetworkCIDR = "metal3.vcluster.com/network-cidr"
	// PropertyNetworkIPRange are the ranges of addresses that servers may have: "a-b,c-d". All of the network if unset.
	PropertyNetworkIPRange = "metal3.vcluster.com/network-ip-range"
	// PropertyDNSServers are the addresses of name servers, separated by commas.
	PropertyDNSServers = "metal3.vcluster.com/dns-servers"
	// PropertyNetworkData is the whole network data, instead of what is made from the network.
	PropertyNetworkData = "metal3.vcluster.com/network-data"
)

const (
	// MachineFinalizer keeps a Machine until its server is back in the pool.
	MachineFinalizer = Group + "/machine"
	// NodeClaimUIDAnnotationKey holds the UID of the NodeClaim that a Machine was made for. Set by the provider at
	// creation; a Machine of the right name and another UID belongs to an earlier NodeClaim.
	NodeClaimUIDAnnotationKey = Group + "/nodeclaim-uid"
	// NodeClaimLabelKey holds the name of the NodeClaim that a Machine was made for.
	NodeClaimLabelKey = Group + "/nodeclaim"
	// NodeNameAnnotationKey holds the name of the registered Node, set by the provider once it has seen the Node in
	// the tenant cluster. It is how the manager, which sees no tenant, learns that the Machine has joined.
	NodeNameAnnotationKey = Group + "/node-name"
	// ClaimUIDAnnotationKey holds the UID that a Machine had when the manager first saw it, under which it claims its server
	// and its address. It differs from the UID of a Machine that was restored from a backup by a tool that makes objects anew.
	ClaimUIDAnnotationKey = Group + "/claim-uid"
	// MachineLabelKey and MachineUIDLabelKey mark the objects in the hosts' namespace that belong to a Machine.
	MachineLabelKey    = Group + "/machine"
	MachineUIDLabelKey = Group + "/machine-uid"
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
