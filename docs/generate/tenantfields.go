// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// crossing is something that a tenant writes, by itself (A) or with its provider's token (B), and others read.
type crossing struct {
	writer string
	// readers of it beside the tenant's own provider, and what bounds what it does to others.
	readers, bound string
}

const (
	manager = "the manager"
	nobody  = "nobody"
	size    = "its size (schema)"
	ownOnly = "nobody beside the tenant"
)

// written are the parts of kinds that a tenant or the token of its provider may write, by kind.
var written = map[string][]string{"Machine": {"spec"}, "MetalNodeClass": {"spec", "status"}, "TenantCluster": {"status"}}

// fields are decided on one by one. A new field of these parts needs an entry.
var fields = map[string]crossing{
	"Machine spec.bootstrap":   {"B, C", manager, "a name in the namespace of the Machine; the content goes to its own server"},
	"Machine spec.description": {"B, C", "people", "its size (schema); tools of operators show it as data"},
	"Machine spec.displayName": {"B, C", "people", "its size (schema); tools of operators show it as data"},
	"Machine spec.gang": {"A, B, C", "the manager, which decides on its Machines together",
		"Machines of its own namespace and TenantCluster; printable ASCII (schema)"},
	"Machine spec.kubeletArgs": {"A, B, C", manager, "parsed and encoded again; for its own server"},
	"Machine spec.labels":      {"A, B, C", manager, "keys and number (schema, policy); for its own node"},
	"Machine spec.node": {"A, B", "the manager, and operators in an event",
		"sizes are more than 0 and change nothing for others; unhealthy quarantines few servers of a type"},
	"Machine spec.nodeTypeRef": {"B, C", "the manager, which counts the server as claimed for all",
		"types that the TenantCluster allows, and its quota"},
	"Machine spec.power":      {"B, C", manager, "its own server"},
	"Machine spec.profileRef": {"B, C", manager, "profiles that the TenantCluster allows; others are not looked up"},
	"Machine spec.properties": {"A, B, C", manager,
		"keys and references that its NodeType, its pools or `spec.tenantProperties` allow; `spec.imageHosts`; 128 KiB " +
			"together"},
	"Machine spec.requestedDrivers": {"A, B, C", "the manager, which chooses the type", "types that the TenantCluster allows"},
	"Machine spec.requirements": {"A, B, C", "the manager, which chooses the server",
		"servers of types that the TenantCluster allows; 2000 values"},
	"Machine spec.resources":        {"A, B, C", "the manager, which chooses the type", "types that the TenantCluster allows"},
	"Machine spec.startupTaints":    {"A, B, C", manager, "for its own node"},
	"Machine spec.taints":           {"A, B, C", manager, "for its own node"},
	"Machine spec.tenantClusterRef": {"B, C", manager, "TenantClusters of its own namespace"},

	"MetalNodeClass spec.description":          {"A", ownOnly, size},
	"MetalNodeClass spec.displayName":          {"A", ownOnly, size},
	"MetalNodeClass spec.kubeletArgs":          {"A", "the manager, by Machines", "as in Machines"},
	"MetalNodeClass spec.properties":           {"A", "the manager, by Machines", "as in Machines"},
	"MetalNodeClass spec.providerRef":          {"A", ownOnly, "types that the TenantCluster allows"},
	"MetalNodeClass status.conditions":         {"A, B", ownOnly, "nothing is decided by it for others"},
	"MetalNodeClass status.observedGeneration": {"A, B", ownOnly, "nothing is decided by it for others"},

	"TenantCluster status.clusterUID": {"B", "the manager, which refuses it to other TenantClusters",
		"a UID that no TenantCluster has reported: **left to you** in the threat model"},
	"TenantCluster status.conditions":        {"B", "people", "of its own TenantCluster; tools of operators show it as data"},
	"TenantCluster status.kubernetesVersion": {"B", "people", "of its own TenantCluster"},
	"TenantCluster status.providerRenewTime": {"B", "the manager, which looks for changes of it; people",
		"of its own TenantCluster: says whether its provider works"},
	"TenantCluster status.observedClusterUID": {"B", "the manager, which compares it with clusterUID",
		"of its own TenantCluster; a UID (schema)"},
	"TenantCluster status.observedGeneration": {"B", "people", "of its own TenantCluster"},
	"TenantCluster status.allowedDevices":     {nobody, "a policy, for claims of its namespace", "the manager alone writes it (policy)"},
	"TenantCluster status.rollout":            {"B", "people, metrics", "of its own TenantCluster"},
}

// keysOfTenants are the constants of labels, annotations and finalizers that a tenant or its provider's token may write where others read.
var keysOfTenants = map[string]crossing{
	"NodeClaimUIDAnnotationKey": {"B, C", "who looks at traces",
		"its own Machine; the ID of a trace is a hash of it and of the namespace"},
	"NodeClaimLabelKey":               {"B, C", "metrics and tools of operators", "its own Machine; shown as data"},
	"NodeProfileAppliedAnnotationKey": {"A, B", manager, "labels and taints that a node may have; its own node"},
	"RebootAnnotationKey":             {"B, C", "the manager, which reboots", "its own server; no rate"},
	"RebootOperationAnnotationKey":    {"B, C", "the manager, which tells two requests apart", "its own server; a digest is kept"},
	"ReasonAnnotationKey":             {"B, C", "people", "shown as data"},
	"UserDataSecretKey":               {"B, C", manager, "for its own server; 128 KiB (policy)"},
	"DRASyncFinalizer":                {"B", "who deletes the namespace", "claims of its own namespace"},
	"TenantPoolLabelKey":              {"A, B", ownOnly, "NodePools of the tenant cluster"},
	"ReportIssueAnnotationKey": {"A, B", "the manager, by spec.node.unhealthy of its Machine",
		"its own server; 512 characters; the limits of quarantine"},
	"RebootBootIDAnnotationKey":     {"A, B", ownOnly, "Nodes of the tenant cluster"},
	"DriftAnnotationKey":            {"A, B", ownOnly, "NodeClaims of the tenant cluster"},
	"RolloutAnnotationKey":          {"A, B", ownOnly, "NodePools of the tenant cluster"},
	"NarrowedAnnotationKey":         {"A, B", ownOnly, "MetalNodeClasses of the tenant cluster"},
	"GangMinCountAnnotationKey":     {"A", ownOnly, "pods of the tenant cluster"},
	"GangIdleDurationAnnotationKey": {"A", ownOnly, "pods of the tenant cluster"},
	"GangsAnnotationKey":            {"A, B", ownOnly, "NodeClaims of the tenant cluster"},
	"HostClaimAnnotationKey":        {"A, B", "its provider, which reads that claim on the host", "claims of its own namespace"},
	"NodeClassTerminationFinalizer": {"A, B", ownOnly, "MetalNodeClasses of the tenant cluster"},
	"NodeProfileLabelKey":           {"A, B", "the provider and the manager", "profiles that the TenantCluster allows"},
}

// keysOfOthers are written by the manager, operators and Metal3 alone, where tenants cannot write or a policy denies it, or are labels that
// follow from NodeTypes and hosts, whatever a tenant says.
var keysOfOthers = strings.Fields(`
	CAPINodeReuseLabelKey CAPIUnhealthyAnnotationKey ConfirmAcceptClusterAnnotationKey ConfirmCollectMachinesAnnotationKey ConfirmDeleteMachinesAnnotationKey
	DatacenterLabelKey AcceleratedLabelKey AddressPoolAnnotationKey ChosenHostAnnotationKey ClaimAnnotationKey ClaimUIDAnnotationKey
	CleaningAnnotationKey FaultAnnotationKey InstanceCPULabelKey InstanceGPUCountLabelKey InstanceGPUManufacturerLabelKey InstanceGPUMemoryLabelKey
	InstanceGPUNameLabelKey InstanceMemoryLabelKey LastTenantAnnotationKey MachineAnnotationKey MachineFinalizer MachineLabelKey
	MachineUIDLabelKey MaintenanceAnnotationKey NodeTypeAnnotationKey NodePoolHashAnnotationKey ProviderAnnotationsAnnotationKey
	ProviderLabelsAnnotationKey QuarantinedAnnotationKey RebootedAnnotationKey ReleasingAnnotationKey ReservationIDLabelKey SavedNetworkAnnotationKey
	SavedNetworkDataAnnotationKey SavedUserDataAnnotationKey SelectAllHostsAnnotationKey StandAloneMachinesLabelKey TenantClusterFinalizer HookMessagePrefix
	DNSServersAnnotationKey GatewayAnnotationKey IPAddressAnnotationKey NTPServersAnnotationKey NodeProfileRestrictedLabelKey
	NVLinkDomainLabelKey PreProvisionHookPrefix PreReturnHookPrefix RackLabelKey RackUnitLabelKey NodeTypeLabelKey`)

// tenantFields is the page about what tenants write and others read. The error names what is not decided on, or decided and gone.
func tenantFields(words vocabulary, crds []*apiextensionsv1.CustomResourceDefinition) (string, error) {
	var page strings.Builder
	page.WriteString(tenantHead)
	undecided, gone := []string{}, maps.Clone(fields)
	for _, crd := range crds {
		kind := crd.Spec.Names.Kind
		for _, part := range written[kind] {
			properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part].Properties
			for _, name := range slices.Sorted(maps.Keys(properties)) {
				path := part + "." + name
				row, decided := fields[kind+" "+path]
				if !decided {
					undecided = append(undecided, "field "+path+" of "+kind)
				}
				delete(gone, kind+" "+path)
				fmt.Fprintf(&page, "| %s `%s` | %s | %s | %s |\n", kind, path, row.writer, row.readers, row.bound)
			}
		}
	}
	page.WriteString(tenantKeys)
	left := maps.Clone(keysOfTenants)
	others := slices.Clone(keysOfOthers)
	for _, key := range words.keys {
		row, theirs := keysOfTenants[key.name]
		if index := slices.Index(others, key.name); index >= 0 {
			others = slices.Delete(others, index, index+1)
		} else if !theirs {
			undecided = append(undecided, "constant "+key.name)
		}
		if delete(left, key.name); theirs {
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", key.value, row.writer, row.readers, row.bound)
		}
	}
	stale := slices.Concat(slices.Sorted(maps.Keys(gone)), slices.Sorted(maps.Keys(left)), others)
	if len(undecided)+len(stale) > 0 {
		return "", fmt.Errorf("docs/generate/tenantfields.go: decide who writes, who reads and what bounds %q; remove %q, which are gone",
			undecided, stale)
	}
	page.WriteString(tenantSinks)
	return page.String(), nil
}

const tenantHead = `<!-- Generated from docs/generate/tenantfields.go by ` + "`make generate`" + `. Do not edit. -->

# What a tenant writes and others read

All of the API that the administrator of a tenant (A), the token of its provider (B) or a user of its namespace (C) writes, who beside
that tenant reads it, and what bounds the effect. What one tenant says decides nothing for others, beyond the bounds below.
The [threat model](threat-model.md) defines the personas. The build fails if a field or a key has no decision here.

## Fields

| field | written by | read by | bounded by |
|---|---|---|---|
`

const tenantKeys = `
## Keys of metadata and Secrets

All others are written by the manager, operators and Metal3, where tenants cannot write or [a policy](rights.md) denies it.

| key | written by | read by | bounded by |
|---|---|---|---|
`

const tenantSinks = `
## Text that becomes more than text

Text of a tenant, or of its API server, which may say anything, becomes a word of a command that a person is told to run, the name of a file, or a vote on
what others get, in these places alone. It never becomes a process: our programs start none. A test compares the code with a list of all such places
(TestForeignText).

| text | written by | becomes | made harmless by | test |
|---|---|---|---|---|
| TenantCluster ` + "`status.observedClusterUID`" + ` | B, A | an input of the token that accepts another cluster | the schema takes UIDs alone, and the token is a hash | TestReportIsNoCommand |
| names of MetalNodeClasses, NodeClaims and Nodes | A | words of commands in remedies | each word is quoted for a shell, and is no option | TestCommand, TestCommandsAreQuoted |
| names of Machines, TenantClusters and namespaces | B, C | words of commands in remedies | as above; the API server takes names of Kubernetes alone | TestCommand, TestCommandsAreQuoted |
| names of pods and containers in the tenant cluster | A | the name of a log in a support bundle | letters, digits, dots and dashes are left; no folder | TestBundleOfALiar |
| ` + "`karpenter.metal3.io/nodeclaim-uid`" + ` | B, C | the ID of a trace | hashed together with the namespace of the Machine | TestTwoPrograms |
| Machine ` + "`spec.node`" + ` | A, B | a vote | see the table of fields | |
`
