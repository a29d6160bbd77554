// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal tests with real parts of Metal3 and Kubernetes. Only the metal is emulated. The tests run by `make
// e2e-metal`, which gets Ironic and the disk of a server from Debian; without it they are skipped, and say so.
//
//   - TestServers: our manager, baremetal-operator and Ironic register, inspect, install, clean and release servers, of
//     which some have faults. Some are behind IPMI: Ironic's ipmitool speaks to OpenIPMI's simulator.
//   - TestChain: a tenant's pod requests a GPU; a server is claimed, installed, boots, joins the tenant's cluster by
//     cloud-init and kubeadm, and runs the pod; the server is released when the pod is deleted. Our programs run as
//     processes; test/kind has them as pods.
//   - TestNetworkBoot: a virtual machine with an empty disk boots by network from Ironic's conductor to be inspected, installed and
//     cleaned, by dnsmasq, iPXE, and an agent of our own in a ramdisk of Debian's kernel; a pod runs on it, and what it has written is not
//     on the disk afterwards.
//   - TestClaimBringsServer: the same for pods with ResourceClaims, also for shared and partitioned devices, and for one with an extended
//     resource that a driver serves.
//   - TestServer..., TestVirtualMachine...: servers boot and join a cluster, without Metal3.
//   - TestATenantsPodGetsDevices: Dynamic Resource Allocation on a server that boots, with containerd and CDI, a driver of
//     devices, two vClusters, and our manager, webhook and providers with their rights of config/rbac. What a container
//     gets is asserted by its environment: a pod without its devices is Ready too.
//   - TestAServerJoinsAVCluster: a server joins a vCluster by kubeadm.
//   - TestServerJoinsByMirror: a server installs what it lacks, and joins, with nothing in its network but a mirror.
//   - TestSlurm: stand-alone Machines are nodes of Slurm, and run a job.
package metal
