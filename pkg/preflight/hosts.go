// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const hostsCheck = "BareMetalHosts"

// operatorRemedy shows the log of baremetal-operator. An installation by docs/metal3.md has these names.
const operatorRemedy = "kubectl -n baremetal-operator-system logs deployment/baremetal-operator-controller-manager"

// seenWithin is how long baremetal-operator may take to write the status of a new host.
const seenWithin = 5 * time.Minute

func (c *Cluster) hosts(ctx context.Context) []Result {
	providers, nodeTypes, hosts := &v1alpha1.NodeProviderList{}, &v1alpha1.NodeTypeList{}, &bmov1alpha1.BareMetalHostList{}
	tenants := &v1alpha1.TenantClusterList{}
	for _, list := range []client.ObjectList{providers, nodeTypes, hosts, tenants} {
		if err := c.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return []Result{unreadable(hostsCheck, err)}
		}
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	var there sets.Set[string]
	err := c.Reader.List(ctx, namespaces, client.UnsafeDisableDeepCopy)
	if err == nil {
		there = sets.New[string]()
		for i := range namespaces.Items {
			there.Insert(namespaces.Items[i].Name)
		}
	}
	networked := lo.ContainsBy(tenants.Items, func(tenant v1alpha1.TenantCluster) bool { return tenant.Spec.Network != nil })
	results := checkHosts(providers.Items, nodeTypes.Items, hosts.Items, there, networked, c.Clock.Now())
	if err != nil {
		results = append(results, unreadable("namespaces", err))
	}
	return results
}

// checkHosts judges the hosts, namespace by namespace. there are the existing namespaces, nil if unknown. networked is
// true if a tenant has its own network.
func checkHosts(providers []v1alpha1.NodeProvider, nodeTypes []v1alpha1.NodeType, hosts []bmov1alpha1.BareMetalHost, there sets.Set[string],
	networked bool, now time.Time) []Result {
	known := inventory.NewInventory(inventory.Options{})
	byName := lo.KeyBy(lo.ToSlicePtr(providers), func(provider *v1alpha1.NodeProvider) string { return provider.Name })
	for i := range nodeTypes {
		known.AddType(&nodeTypes[i], byName[nodeTypes[i].Spec.ProviderRef.Name], "")
	}
	byNamespace := map[string][]*bmov1alpha1.BareMetalHost{}
	for i := range hosts {
		known.SetHost(&hosts[i])
		byNamespace[hosts[i].Namespace] = append(byNamespace[hosts[i].Namespace], &hosts[i])
	}
	users := map[string][]*v1alpha1.NodeProvider{}
	for i := range providers {
		namespace := providers[i].Spec.Metal3.ClusterRef.Namespace
		users[namespace] = append(users[namespace], &providers[i])
	}
	var results []Result
	if len(providers) == 0 {
		results = append(results, Result{Check: "NodeProviders", Level: Warn, Message: "there is none, so that no server is offered to tenants",
			Remedy: "kubectl apply -f provider.yaml (docs/first-server.md, step 3)"})
	}
	for _, namespace := range sets.List(sets.KeySet(byNamespace).Union(sets.KeySet(users))) {
		group := hostsOf{namespace: namespace, hosts: byNamespace[namespace], users: users[namespace], known: known,
			networked: networked, now: now}
		results = append(results, group.check(there)...)
	}
	return results
}

// hostsOf are the hosts of a namespace, and the NodeProviders that use them.
type hostsOf struct {
	namespace string
	hosts     []*bmov1alpha1.BareMetalHost
	users     []*v1alpha1.NodeProvider
	known     *inventory.Inventory
	networked bool
	now       time.Time
}

func (h *hostsOf) result(level Level, message, remedy string) Result {
	return Result{Check: "hosts in " + h.namespace, Level: level, Message: message, Remedy: remedy}
}

func (h *hostsOf) check(there sets.Set[string]) []Result {
	users := lo.Map(h.users, func(user *v1alpha1.NodeProvider, _ int) string { return user.Name })
	slices.Sort(users)
	if len(h.hosts) == 0 {
		named := "NodeProvider " + conditions.List(users, maxNamed)
		if there != nil && !there.Has(h.namespace) {
			return []Result{h.result(Fail, "the namespace does not exist, and is that of "+named,
				shell.Command("kubectl create namespace %s", h.namespace))}
		}
		return []Result{h.result(Warn, "there is none, and the namespace is that of "+named,
			"kubectl apply -f server-01.yaml (docs/first-server.md, step 1)")}
	}
	results := []Result{h.counts()}
	for _, problem := range h.problems() {
		if hosts := h.matching(problem.holds); len(hosts) > 0 {
			names := lo.Map(hosts, func(host *bmov1alpha1.BareMetalHost, _ int) string { return host.Name })
			results = append(results, h.result(problem.level, fmt.Sprintf("%d of %d %s: %s", len(names), len(h.hosts), problem.what,
				conditions.List(names, maxNamed)), problem.remedy(hosts[0])))
		}
	}
	results = append(results, h.foreign()...)
	if len(users) == 0 {
		results = append(results, h.result(Warn, "no NodeProvider uses this namespace",
			"set spec.metal3.clusterRef.namespace of a NodeProvider to "+h.namespace))
	}
	slices.SortStableFunc(results, bySeverity)
	return results
}

// matching returns the hosts for which holds is true and that are not being deleted, sorted by name.
func (h *hostsOf) matching(holds func(*bmov1alpha1.BareMetalHost) bool) []*bmov1alpha1.BareMetalHost {
	found := slices.DeleteFunc(slices.Clone(h.hosts), func(host *bmov1alpha1.BareMetalHost) bool {
		return !host.DeletionTimestamp.IsZero() || !holds(host)
	})
	slices.SortFunc(found, func(a, b *bmov1alpha1.BareMetalHost) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// same returns one remedy for every host.
func same(remedy string) func(*bmov1alpha1.BareMetalHost) string {
	return func(*bmov1alpha1.BareMetalHost) string { return remedy }
}

// problem is a possible fault of hosts: a text about the hosts for which holds is true, and the first one's remedy.
type problem struct {
	level  Level
	holds  func(*bmov1alpha1.BareMetalHost) bool
	what   string
	remedy func(*bmov1alpha1.BareMetalHost) string
}

func (h *hostsOf) problems() []problem {
	const notCleaned = "are not cleaned between their owners (spec.automatedCleaningMode is disabled)"
	uncleaned := problem{Warn, isUncleaned, notCleaned + ", so that they are not claimed for another tenant",
		inventory.ReasonNotCleaned.Remedy}
	for _, user := range h.users {
		if user.Spec.Metal3.UncleanedServers == v1alpha1.UncleanedServersAnyTenant {
			uncleaned.what = notCleaned + ", and NodeProvider " + user.Name +
				" gives them to all tenants (spec.metal3.uncleanedServers is AnyTenant): each can read what the one before has left"
			uncleaned.remedy = same(shell.Command("kubectl patch nodeprovider %s --type=merge --patch=%s", user.Name,
				`{"spec": {"metal3": {"uncleanedServers": "SameTenant"}}}`))
			break
		}
	}
	// The text of an error may contain the address of a BMC or a URL, so the message omits it; kubectl shows it.
	errorTypes := lo.Map(h.matching(isInError), func(host *bmov1alpha1.BareMetalHost, _ int) string { return string(host.Status.ErrorType) })
	slices.Sort(errorTypes)
	return []problem{
		{Fail, h.isUnseen, "have no state: baremetal-operator does not run, does not watch this namespace (its variable WATCH_NAMESPACE), or " +
			"does not reach Ironic", same(operatorRemedy)},
		{Warn, isInError, "are in error (" + strings.Join(slices.Compact(errorTypes), ", ") + ")", inventory.ReasonError.Remedy},
		uncleaned,
		{Warn, isUninspected, "are not inspected, so that nothing is known of their hardware, and a server that is smaller than its " +
			"NodeType is not noticed", inventory.ReasonNotInspected.Remedy},
		{Warn, isWithoutMAC, "have no spec.bootMACAddress, which all but virtual media need", func(host *bmov1alpha1.BareMetalHost) string {
			return shell.Command("kubectl patch baremetalhost -n %s %s --type=merge --patch=%s", host.Namespace, host.Name,
				`{"spec": {"bootMACAddress": "MAC of the card that it boots from"}}`)
		}},
		{Warn, func(host *bmov1alpha1.BareMetalHost) bool { return h.networked && !bootsFromMedia(host) }, "boot by network, and a " +
			"TenantCluster has spec.network: Ironic takes for the agent of a server who asks first, from whatever network it is asked",
			same("give spec.bmc.address a scheme of virtual media, or keep lookups from tenants' networks (docs/network.md)")},
		{Warn, isDetached, "are detached: Metal3 does nothing on them", inventory.ReasonDetached.Remedy},
		{Warn, isPaused, "are paused: Metal3 does nothing on them", inventory.ReasonPaused.Remedy},
	}
}

// isUnseen reports whether baremetal-operator has written nothing on a host. It ignores paused hosts.
func (h *hostsOf) isUnseen(host *bmov1alpha1.BareMetalHost) bool {
	return host.Status.Provisioning.State == bmov1alpha1.StateNone && !isPaused(host) && h.now.Sub(host.CreationTimestamp.Time) > seenWithin
}

func isInError(host *bmov1alpha1.BareMetalHost) bool { return inventory.EligibilityOf(host).Error }

func isUncleaned(host *bmov1alpha1.BareMetalHost) bool {
	return host.Spec.AutomatedCleaningMode == bmov1alpha1.CleaningModeDisabled
}

func isUninspected(host *bmov1alpha1.BareMetalHost) bool {
	return host.InspectionDisabled() && host.Status.HardwareDetails == nil
}

func isWithoutMAC(host *bmov1alpha1.BareMetalHost) bool {
	return host.Spec.BootMACAddress == "" && !bootsFromMedia(host)
}

func bootsFromMedia(host *bmov1alpha1.BareMetalHost) bool {
	scheme, _, _ := strings.Cut(host.Spec.BMC.Address, "://")
	return strings.Contains(scheme, "virtualmedia")
}

func isDetached(host *bmov1alpha1.BareMetalHost) bool {
	return metav1.HasAnnotation(host.ObjectMeta, bmov1alpha1.DetachedAnnotation) ||
		host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached
}

func isPaused(host *bmov1alpha1.BareMetalHost) bool {
	return metav1.HasAnnotation(host.ObjectMeta, bmov1alpha1.PausedAnnotation)
}

func (h *hostsOf) typesOf(host *bmov1alpha1.BareMetalHost) []string {
	server, _ := h.known.Server(client.ObjectKeyFromObject(host))
	return server.Types
}

// counts says how many hosts Machines can have. It warns of free hosts without a type only if no host has one.
func (h *hostsOf) counts() Result {
	available, claimed, typed := 0, 0, 0
	var others []string
	for _, host := range h.hosts {
		server, _ := h.known.Server(client.ObjectKeyFromObject(host))
		if len(server.Types) > 0 {
			typed++
		}
		switch {
		case server.Eligibility.Claimed:
			claimed++
		case server.Eligibility.Claimable && len(server.Types) == 0:
			others = append(others, host.Name)
		case lo.SomeBy(lo.Values(server.States), func(state inventory.TypeState) bool { return state.State == inventory.StateAvailable }):
			available++
		}
	}
	result := h.result(OK, fmt.Sprintf("%d, of which %d can be claimed and %d are claimed", len(h.hosts), available, claimed), "")
	if len(others) > 0 {
		slices.Sort(others)
		result.Message += fmt.Sprintf("; %d more are free and match no NodeType, so that no Machine claims them: %s", len(others),
			conditions.List(others, maxNamed))
		if typed == 0 {
			result.Level, result.Remedy = Warn, inventory.NoTypeRemedy
		}
	}
	return result
}

// foreign says which hosts others use, and which of these hosts a Machine claims once they are released. It names the
// users, because preflight is for operators.
func (h *hostsOf) foreign() []Result {
	var alone, matching []string
	for _, host := range h.hosts {
		user, types := inventory.EligibilityOf(host).UsedBy, h.typesOf(host)
		switch {
		case user == "":
		case len(types) == 0:
			alone = append(alone, host.Name+" ("+user+")")
		default:
			matching = append(matching, fmt.Sprintf("%s (%s, NodeType %s)", host.Name, user, conditions.List(types, maxNamed)))
		}
	}
	slices.Sort(alone)
	slices.Sort(matching)
	var results []Result
	if len(alone) > 0 {
		results = append(results, h.result(OK, fmt.Sprintf("%d of %d are used by others, and left alone: %s", len(alone), len(h.hosts),
			conditions.List(alone, maxNamed)), ""))
	}
	if len(matching) > 0 {
		results = append(results, h.result(Warn, fmt.Sprintf("%d of %d are used by others and match a NodeType, so that a Machine may claim "+
			"them once they are released: %s", len(matching), len(h.hosts), conditions.List(matching, maxNamed)),
			"have bareMetalHosts.selector of the NodeType ask for a label that says for whom a server is (docs/neighbours.md)"))
	}
	return results
}
