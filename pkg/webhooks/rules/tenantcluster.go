// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/pools"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// TenantCluster validates a TenantCluster that is created, or updated from before.
func TenantCluster(cluster Cluster, before, after *v1alpha1.TenantCluster) Result {
	r := &Result{}
	spec := field.NewPath("spec")
	if err := bootstrap.CheckEndpoint(after.Spec.APIServerEndpoint); err != nil {
		r.deny(RuleNames, field.Invalid(spec.Child("apiServerEndpoint"), after.Spec.APIServerEndpoint, err.Error()))
	}
	r.allowedNodeTypes(cluster, spec.Child("allowedNodeTypes"), after)
	r.nodeProfiles(cluster, spec, after)
	r.quotaTypes(cluster, spec.Child("quota", "nodeTypes"), after)
	if selector := after.Spec.Sync.FromHost.DeviceClasses.Selector; selector != nil {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			r.deny(RuleHostSelector, field.Invalid(spec.Child("sync", "fromHost", "deviceClasses", "selector"), "", err.Error()))
		}
	}
	r.sync(spec.Child("sync"), &after.Spec.Sync)
	r.podTranslation(spec.Child("sync", "toHost", "podTranslation"), &after.Spec.Sync.ToHost)
	for _, provider := range cluster.NodeProviders() {
		if before == nil && provider.Spec.Metal3.ClusterRef.Namespace == after.Namespace {
			r.deny(RuleNamespaces, field.Invalid(field.NewPath("metadata", "namespace"), after.Namespace,
				fmt.Sprintf("NodeProvider %s has its servers here, whose BMC credentials the tenant could read: choose another namespace",
					provider.Name)))
		}
		if after.Spec.Network == nil && !slices.Contains(provider.Spec.Metal3.ExclusiveTopology(), v1alpha1.NVLinkDomainLabelKey) {
			r.warn(RuleTopology, spec.Child("network"), "is not set, so no partition of an NVLink domain is made for this tenant, and NodeProvider "+
				"%s allows several tenants in one: other tenants there can reach the memory of its GPUs", provider.Name)
		}
	}
	if before != nil {
		r.networkChanged(spec.Child("network"), before.Spec.Network, after.Spec.Network)
		r.releases(cluster, before, after)
	}
	if after.Spec.PrivateNodes != nil {
		r.pools(cluster, spec.Child("privateNodes", "autoNodes"), after)
	}
	r.unbounded(before, after)
	r.confirmation(after)
	return r.done()
}

// confirmation warns of a confirmation that stays, and of one that confirms nothing. The API server does not ask the
// webhook about an edit of annotations alone: no fault in the spec may keep an operator from confirming.
func (r *Result) confirmation(tenant *v1alpha1.TenantCluster) {
	value := tenant.Confirmation(v1alpha1.ConfirmDeleteMachinesAnnotationKey)
	_, err := strconv.Atoi(value)
	path := key(field.NewPath("metadata", "annotations"), v1alpha1.ConfirmDeleteMachinesAnnotationKey)
	switch {
	case tenant.ConfirmsAnyDeletion():
		r.warn(RuleInUse, path, "releases any number of servers with the TenantCluster or its pools, also by mistake, "+
			"until you remove it")
	case value != "" && err != nil:
		r.warn(RuleInUse, path, "is %q, which confirms nothing: write how many Machines go, or %s", shown(value),
			v1alpha1.ConfirmAnyNumber)
	}
}

// sync warns of claims that get no device.
func (r *Result) sync(path *field.Path, sync *v1alpha1.Sync) {
	if sync.FromHost.DeviceClasses.Enabled {
		return
	}
	set := map[string]bool{"resourceClaims": sync.ToHost.ResourceClaims.Enabled,
		"resourceClaimTemplates": sync.ToHost.ResourceClaimTemplates.Enabled}
	for _, name := range sortedKeys(set) {
		if set[name] {
			r.warn(RuleReferences, path.Child("toHost", name, "enabled"),
				"no claim gets a device: none of the DeviceClasses is allowed while sync.fromHost.deviceClasses is not enabled: enable it")
		}
	}
}

// releases refuses an unconfirmed edit that deletes NodePools with Machines, because no budget limits their drain. It
// warns of an edit that removes NodeTypes with Machines.
func (r *Result) releases(cluster Cluster, before, after *v1alpha1.TenantCluster) {
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return
	}
	charged := cluster.Charged(client.ObjectKeyFromObject(after))
	expected := pools.Expected(before, charged)
	release := pools.ReleaseOf(expected.Lost(pools.PoolsOf(after, expected)), charged)
	if !release.Confirmed(after) {
		r.refuse(RuleInUse, "%s", release.Refusal(after))
	}
	servers := map[string]int{}
	for _, name := range quota.Used(charged, "", nil) {
		servers[name]++
	}
	for _, name := range sortedKeys(servers) {
		nodeType := cluster.NodeType(name)
		if nodeType != nil && before.Allows(name, nodeType.MadeBy()) && !after.Allows(name, nodeType.MadeBy()) {
			r.warn(RuleAllowed, field.NewPath("spec", "allowedNodeTypes"), "does not allow NodeType %s any more, and the tenant has servers of it "+
				"(%d): Karpenter replaces their nodes as drifted (InstanceTypeNotFound): allow it to keep them", name, servers[name])
		}
	}
}

// networkChanged warns that servers stay in their network: an address belongs to the network that a server is in.
func (r *Result) networkChanged(path *field.Path, before, after *v1alpha1.TenantNetwork) {
	old, now := networkName(before), networkName(after)
	if old != now {
		r.warn(RuleImmutable, path, "servers that the tenant has stay in the network that they are in (%s), and those that it gets from now on "+
			"come into another (%s): replace them if they are to be together", shown(old), shown(now))
	}
}

func networkName(network *v1alpha1.TenantNetwork) string {
	if network == nil {
		return "none of the tenant's own"
	}
	return network.String()
}

// allProviderTypes is the suffix after the name of a NodeProvider that stands for all of its types.
const allProviderTypes = ".*"

func (r *Result) allowedNodeTypes(cluster Cluster, path *field.Path, tenant *v1alpha1.TenantCluster) {
	if tenant.Spec.AllowedNodeTypes == nil {
		return
	}
	for i, entry := range *tenant.Spec.AllowedNodeTypes {
		entryPath := path.Index(i)
		name, provider := strings.CutSuffix(entry, allProviderTypes)
		switch problems := validation.IsDNS1123Subdomain(name); {
		case len(problems) > 0:
			r.deny(RuleAllowed, field.Invalid(entryPath, entry, "is neither the name of a NodeType nor that of a NodeProvider followed by .* or "+
				"by a dot and the name of its type: "+properties.Because(problems)))
		case r.warningsFull():
		case provider && !cluster.Exists(KindNodeProvider, name):
			r.warn(RuleReferences, entryPath, "there is no NodeProvider %q yet", name)
		case !provider && cluster.NodeType(name) == nil && qualified(cluster, name) == "":
			r.warn(RuleReferences, entryPath, "there is no NodeType %q yet (there are: %s)", name, orNone(typeNames(cluster)))
		}
	}
}

// quotaTypes warns of numbers for NodeTypes that do not exist. A type may be made later.
func (r *Result) quotaTypes(cluster Cluster, path *field.Path, tenant *v1alpha1.TenantCluster) {
	if tenant.Spec.Quota == nil {
		return
	}
	for _, name := range sortedKeys(tenant.Spec.Quota.NodeTypes) {
		if r.warningsFull() || cluster.NodeType(name) != nil {
			continue
		}
		meant := cmp.Or(qualified(cluster, name), closest(name, typeNames(cluster)))
		if meant != "" {
			meant = fmt.Sprintf(": is %s meant?", meant)
		}
		r.warn(RuleReferences, key(path, name), "there is no NodeType of this name yet, and the number bounds nothing "+
			"before there is%s", meant)
	}
}

// closest returns the name with the fewest edits from another name, "" if over a third of the characters must change.
func closest(name string, names []string) (found string) {
	fewest := max(len(name), 3)/3 + 1
	for _, other := range names {
		if edits := distance(name, other, fewest); edits < fewest {
			found, fewest = other, edits
		}
	}
	return found
}

// distance returns how many characters to insert, remove or replace to turn one name into the other, at most most. It
// does not compare names whose lengths differ by that much, or names that no NodeType can have.
func distance(a, b string, most int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= most || len(a) > validation.LabelValueMaxLength {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left, corner := i+1, i
		for j := range len(b) {
			edits := min(left, row[j+1]) + 1
			if a[i] == b[j] {
				edits = min(edits, corner)
			} else {
				edits = min(edits, corner+1)
			}
			corner, row[j], left = row[j+1], left, edits
		}
		row[len(b)] = left
	}
	return min(row[len(b)], most)
}

// qualified returns the type in a name that consists of a NodeProvider, a dot and a type that the NodeProvider lists.
// It returns "" for any other name.
func qualified(cluster Cluster, name string) string {
	for _, provider := range cluster.NodeProviders() {
		if nodeType, found := strings.CutPrefix(name, provider.Name+"."); found && slices.Contains(templateNames(provider), nodeType) {
			return nodeType
		}
	}
	return ""
}

func (r *Result) pools(cluster Cluster, path *field.Path, tenant *v1alpha1.TenantCluster) {
	types := typesOf(cluster)
	names, pins := poolNames{}, map[string]string{}
	entries := tenant.Spec.PrivateNodes.AutoNodes
	kubelet := r.kubeletConfig(tenant.Spec.PrivateNodes)
	for i := range entries {
		entryPath, entry := path.Index(i), &entries[i]
		if !cluster.Exists(KindNodeProvider, entry.Provider) {
			r.warn(RuleReferences, entryPath.Child("provider"), "there is no NodeProvider %q yet: the pools get no servers before there is",
				entry.Provider)
		}
		r.properties(cluster, entryPath.Child("properties"), properties.Layer{Source: "autoNodes", Values: entry.Properties})
		for j := range entry.Static {
			p := pool{entryPath.Child("static").Index(j), tenant, entry, &entry.Static[j].NodesTemplate, "static", &kubelet}
			r.pool(cluster, p, types, names)
			r.staticPool(cluster, p, &entry.Static[j], types, pins)
		}
		for j := range entry.Dynamic {
			p := pool{entryPath.Child("dynamic").Index(j), tenant, entry, &entry.Dynamic[j].NodesTemplate, "dynamic", &kubelet}
			r.pool(cluster, p, types, names)
		}
	}
	r.sharedNames(names)
}

// poolNames maps the name and then the kind of a pool to the place where it is written.
type poolNames map[string]map[string]*field.Path

// sharedNames warns of a static and a dynamic pool with the same name: in the tenant, one of them gets another name. It
// refuses names that are not possible.
func (r *Result) sharedNames(names poolNames) {
	for _, name := range sortedKeys(names) {
		first, second := names[name]["static"], names[name]["dynamic"]
		if first == nil || second == nil {
			continue
		}
		namePath, taken := second.Child("name"), ""
		for _, long := range []string{name + "-static", name + "-dynamic"} {
			if names[long] != nil {
				taken = long
			}
		}
		switch {
		case taken != "":
			r.deny(RuleNames, field.Invalid(namePath, name,
				fmt.Sprintf("is the name of %s too, and another pool is called %s, which is what one of the "+
					"two may be called in the tenant: give each pool of the tenant a name of its own", first, taken)))
		case len(name)+len("-dynamic") > validation.LabelValueMaxLength:
			r.deny(RuleNames, field.Invalid(namePath, name,
				fmt.Sprintf("is the name of %s too, and with the addition -dynamic, which one of the two "+
					"needs in the tenant, it is longer than %d characters: give each pool of the tenant a name of its own", first,
					validation.LabelValueMaxLength)))
		default:
			r.warn(RuleNames, namePath, "is the name of %s too: in the tenant one of the two is called %s-dynamic or %[2]s-static, as the "+
				"condition PoolsSynced says", first, name)
		}
	}
}

// pool is one pool of a tenant, and its place in the spec.
type pool struct {
	path     *field.Path
	tenant   *v1alpha1.TenantCluster
	entry    *v1alpha1.AutoNodes
	template *v1alpha1.NodesTemplate
	// kind is static or dynamic.
	kind string
	// kubelet is the kubelet configuration of all pools.
	kubelet *compat.KubeletConfig
}

// pool validates what static and dynamic pools have in common.
func (r *Result) pool(cluster Cluster, p pool, types []offeredType, names poolNames) {
	kinds := names[p.template.Name]
	switch first := kinds[p.kind]; {
	case first != nil:
		r.deny(RuleNames, field.Invalid(p.path.Child("name"), p.template.Name,
			fmt.Sprintf("is the name of %s already: give each %s pool of the tenant a name of its own", first, p.kind)))
	case kinds == nil:
		names[p.template.Name] = map[string]*field.Path{p.kind: p.path}
	default:
		kinds[p.kind] = p.path
	}
	r.properties(cluster, p.path.Child("properties"), properties.Layer{Source: "pool " + p.template.Name, Values: p.template.Properties})
	r.deny(RuleNodes, bootstrap.CheckLabels(p.path.Child("nodeLabels"), p.template.NodeLabels)...)
	r.deny(RuleNodes, bootstrap.CheckTaints(p.path.Child("taints"), p.template.Taints)...)
	r.nodeProfile(cluster, p.path.Child("profile"), p.tenant, p.template.Profile)
	r.kubeletArgs(p.path.Child("kubeletArgs"), p.template.KubeletArgs)
	if age := p.template.ExpireAfter; age != "" && age != "Never" {
		r.warn(RuleInUse, p.path.Child("expireAfter"), "%s", v1alpha1.ExpiryWarning)
	}
	if count := len(p.kubelet.With(p.template.KubeletArgs)); count > v1alpha1.MaxKubeletArgs {
		r.deny(RuleKubeletArgs, field.Invalid(p.path.Child("kubeletArgs"), count,
			fmt.Sprintf("is how many arguments a kubelet of the pool would get, with those of privateNodes.kubelet.config, and "+
				"%d is the most: put some into the image", v1alpha1.MaxKubeletArgs)))
	}
	limits := corev1.ResourceList{}
	for name, quantity := range p.template.Limits {
		if name != nodesLimit {
			limits[name] = quantity
		} else if quantity.Sign() < 0 || !whole(quantity) {
			r.deny(RuleResources,
				field.Invalid(key(p.path.Child("limits"), string(name)), quantity.String(), "nodes are counted in whole ones: write a whole number"))
		}
	}
	r.quantities(p.path.Child("limits"), limits, false)
	r.nodeTypeSelector(p, types)
}

// nodesLimit is the limit on the number of a pool's nodes.
const nodesLimit corev1.ResourceName = "nodes"

// staticPool validates the fields of static pools only.
func (r *Result) staticPool(cluster Cluster, p pool, static *v1alpha1.StaticNodes, types []offeredType, pins map[string]string) {
	for _, name := range sortedKeys(static.Limits) {
		if name != nodesLimit {
			r.deny(RuleResources, field.Forbidden(key(p.path.Child("limits"), string(name)), "a static pool has no limit but nodes: take it away"))
		}
	}
	server := static.Properties[v1alpha1.PropertyServerName]
	if server == "" {
		return
	}
	path := key(p.path.Child("properties"), v1alpha1.PropertyServerName)
	if first, taken := pins[server]; taken {
		r.deny(RulePinning, field.Duplicate(path, server))
		r.Errors[len(r.Errors)-1].Detail = first + " is pinned to this server already"
	}
	pins[server] = p.path.String()
	provider := providerNamed(cluster, p.entry.Provider)
	if provider == nil || len(validation.IsDNS1123Subdomain(server)) > 0 {
		return // reported already
	}
	r.pinnedPool(cluster, p, path, provider.Spec.Metal3.ClusterRef.Namespace, server, types)
}

// pinnedPool validates the server of a pinned pool.
func (r *Result) pinnedPool(cluster Cluster, p pool, path *field.Path, namespace, server string, types []offeredType) {
	found, known := cluster.Server(keyOf(namespace, server))
	if !known {
		r.deny(RulePinning, field.Invalid(path, server, "there is no BareMetalHost of this name in namespace "+namespace+
			": correct it, or register the server first"))
		return
	}
	fitting := p.fitting(types)
	if fitting != nil && !slices.ContainsFunc(found.Types, func(name string) bool { return slices.Contains(fitting, name) }) {
		r.deny(RulePinning, field.Invalid(path, server,
			fmt.Sprintf("the server is of NodeType %s, and the pool is for %s: pin to another server, or select another type", orNone(found.Types),
				orNone(fitting))))
	}
	// Not denied: the rest of the TenantCluster must not depend on another tenant.
	if slices.ContainsFunc(cluster.PinnedTo(server), func(other *v1alpha1.Machine) bool {
		return other.Namespace != p.tenant.Namespace && slices.Contains(hostNamespaces(cluster, other), namespace)
	}) {
		r.warn(RulePinning, path, "a Machine of another tenant is pinned to server %s: the pool gets no server before that is gone", server)
		return
	}
	switch {
	case found.Eligibility.Reason == inventory.ReasonQuarantined: // the remedy comes first: a long cause is cut
		r.warn(RulePinning, path, "server %s is quarantined: the pool waits until an operator removes the annotation %s from it",
			server, v1alpha1.QuarantinedAnnotationKey)
	case !found.Eligibility.For(p.tenant.Namespace, false).Claimable:
		r.warn(RulePinning, path, "server %s %s: the pool waits for it, and gets no other", server, found.Eligibility.Message)
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return list(names)
}

// unbounded warns if an edit, or a new TenantCluster, allows its tenant everything.
func (r *Result) unbounded(before, after *v1alpha1.TenantCluster) {
	if !r.Allowed() {
		return
	}
	spec := field.NewPath("spec")
	if after.Spec.AllowedNodeTypes == nil && (before == nil || before.Spec.AllowedNodeTypes != nil) {
		r.warn(RuleAllowed, spec.Child("allowedNodeTypes"), "is not set: the tenant may have servers of every NodeType, also of those that are "+
			"made later; name them, or <provider>.*")
	}
	if quota := after.Spec.Quota; !bounded(after) && (before == nil || bounded(before)) {
		if quota != nil && len(quota.NodeTypes) > 0 {
			r.warn(RuleQuota, spec.Child("quota"), "bounds only some NodeTypes: of any other the tenant may have every server "+
				"that is free; set servers or gpus, or have allowedNodeTypes name no others")
		} else {
			r.warn(RuleQuota, spec.Child("quota"), "is not set: the tenant may have every server that is free; set servers, "+
				"gpus, nodeTypes or all")
		}
	}
}

// bounded reports whether the quota of a tenant limits its servers of each NodeType that it may have.
func bounded(tenant *v1alpha1.TenantCluster) bool {
	quota, allowed := tenant.Spec.Quota, tenant.Spec.AllowedNodeTypes
	if quota == nil {
		return false
	}
	named := func(name string) bool { _, named := quota.NodeTypes[name]; return named }
	return quota.Servers != nil || quota.GPUs != nil || allowed != nil && lo.EveryBy(*allowed, named)
}
