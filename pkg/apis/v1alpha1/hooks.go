// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// Hooks hold a Machine, in the manner of Cluster API's pre-drain and pre-terminate hooks. A hook is an annotation of
// the Machine: one of these prefixes, a slash, and a name. It holds the Machine until the controller that owns it
// takes it away. Its value is for that controller.
const (
	// PreProvisionHookPrefix holds a Machine that has its server, before anything is installed on it.
	PreProvisionHookPrefix = "pre-provision.hook." + Group
	// PreReturnHookPrefix holds a Machine that is being deleted and whose server has been cleaned, before the server
	// goes back to the pool. Until the hook is gone nobody else can claim the server.
	PreReturnHookPrefix = "pre-return.hook." + Group
	// HookMessagePrefix begins the annotation, with a slash and the name of a hook after it, in which the owner of the hook can
	// say what it is waiting for. The manager repeats it in the condition NetworkReady.
	HookMessagePrefix = "message.hook." + Group
	// NetworkHook is the name of the hook that moves a server into the network of its tenant and back. The manager
	// sets it on Machines whose TenantCluster has a spec.network, with that network as its value.
	NetworkHook = "tenant-network"
)

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
