// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// symptom is what a user sees first, and the reasons that it can have.
type symptom struct {
	title, text string
	// folders have the constants of the reasons, with what they mean.
	folders []string
	// remedies are what to do for each reason.
	remedies map[string]string
}

const apiFolder = "pkg/apis/v1alpha1"

// symptoms are in the order of the way from a pod to its node.
var symptoms = []symptom{
	{
		title: "A pod stays pending", folders: []string{"pkg/explain"},
		text: "The reason is that of the newest event of the pod from `karpenter`: `kubectl --kubeconfig acme-admin.kubeconfig describe pod " +
			"training-0`. `Nominated` is Karpenter's own: a server is on its way, and `ServerReady` of the NodeClaim in its message says how far " +
			"([slow servers](finite-hardware/slow-servers.md)). `kubectl metal3 explain pod training-0 --tenant-kubeconfig acme-admin.kubeconfig` " +
			"follows it down to the servers, also when the events are gone ([kubectl plugin](kubectl-plugin.md)).",
		remedies: map[string]string{
			explain.ReasonNoServerAvailable: "Wait for a server, or free one. The message counts the servers of each type by what keeps " +
				"them; see " +
				"[below](#a-free-server-is-not-used) for those that nobody uses.",
			explain.ReasonInsufficientDomainCapacity: "Wait until one domain has so many free servers, ask for fewer pods, or for a wider " +
				"domain " +
				"([topology](finite-hardware/topology.md)).",
			explain.ReasonGangIncomplete: "Create the missing pods, or correct the annotation of the size ([gangs](finite-hardware/gangs.md)).",
			explain.ReasonQuotaReached:   "Delete what is not needed, or ask the platform team for more: `spec.quota` of the TenantCluster.",
			explain.ReasonServerRefused: "The message has the manager's answer, which is the reason of a Machine: see " +
				"[below](#a-machine-gets-no-server). The provider asks again by itself.",
			explain.ReasonWaitingForNodeClaim: "Wait for the NodeClaim that the message names. It has an answer within " +
				"`--launch-timeout` of the provider.",
			explain.ReasonDevicesNotDeclared: "Declare the devices of the NodeType in the message, or have the pod select it by its labels: see " +
				"[resource claims](finite-hardware/dra.md#gpus-of-a-driver-under-the-name-of-a-resource).",
			explain.ReasonNoNodeTypeFits: "Change the pod's requests, selectors or tolerations, or the NodePool's requirements. The message " +
				"says for each type " +
				"what does not fit.",
			explain.ReasonNoCapacityType: "Let the NodePool, or the pod, have the capacity types `reserved` or `on-demand`.",
		},
	},
	{
		title: "A NodeClaim gets no server", folders: []string{"pkg/cloudprovider"},
		text: "Its events, and its condition `Launched`: `kubectl --kubeconfig acme-admin.kubeconfig describe nodeclaim default-x7f2k`. The " +
			"other reasons there are the manager's: see [below](#a-machine-gets-no-server).",
		remedies: map[string]string{
			"ServerRefused": "The message has the reason: see [below](#a-machine-gets-no-server). Its pods get another NodeClaim " +
				"by themselves.",
			"NodeClassReadinessUnknown": "Wait a moment. If it stays, look at the log of the provider.",
			"ManagementClusterUnavailable": "The provider tries again. See whether it reaches the management cluster, and whether its token is " +
				"valid ([a program is down](operations.md#a-program-is-down)).",
			"InvalidMachine": "The message is that of the webhook, a quota or a policy of the management cluster: correct what it names " +
				"([webhook messages](webhook-messages.md)).",
			"WaitingForManager": "The provider tries again. If the message is not about a gang, see whether the manager runs " +
				"([a program is down](operations.md#a-program-is-down)).",
			"MachineDeleted":      "Nothing: the pods get another NodeClaim. Somebody has deleted the Machine; the audit log says who.",
			"MachineNameTaken":    "Nothing: the next NodeClaim has another name.",
			"NodePoolUnavailable": "Nothing: the provider tries again. If it stays, look at its log.",
			"UnknownNodeType": "See whether the NodeType that the message names is there, and whether the provider may read it: the tenant's " +
				"chart in the management cluster grants that.",
			"PodNotPlaced": "Look at the events of the pod from kube-scheduler, which say what keeps it off the node, and correct that " +
				"([limits](finite-hardware/limits.md)).",
		},
	},
	{
		title: "A NodePool has no nodes, or too few", folders: []string{"pkg/controllers/tenant/unschedulable", "pkg/karpenter/staticpools",
			"pkg/controllers/tenant/nodeclass"},
		text: "Events of the NodePool, and the condition `Ready` of its MetalNodeClass: `kubectl --kubeconfig acme-admin.kubeconfig " +
			"describe nodepools,metalnodeclasses`.",
		remedies: map[string]string{
			"NoServerMatches": "Correct the requirement that the message names, or the labels of the servers " +
				"([topology](finite-hardware/topology.md)).",
			"NotEnoughServers": "Wait for a server, add some, or ask for fewer `replicas` ([static pools](finite-hardware/static-pools.md)).",
			"NoNodeProfile": "Have the NodeProfile that the message names be there, or name another " +
				"([node profiles](node-profiles.md)).",
			"InvalidProperties": "Correct the property that the message names, in the MetalNodeClass.",
			"InvalidKubeletArgs": "Correct `kubeletArgs` of the MetalNodeClass, or of the pool that it is made of: " +
				"the message has the argument.",
			"InUse": "The class goes with its last NodeClaim. Give its NodePools another class, or delete them.",
		},
	},
	{
		title: "A Machine gets no server", folders: []string{apiFolder},
		text: "The condition `Claimed` of the Machine is false: `kubectl get machines.karpenter.metal3.io -n acme -o wide`. Its NodeClaim " +
			"has the same in " +
			"`ServerReady`.",
		remedies: map[string]string{
			v1alpha1.ReasonNoCapacity:     "Wait for a server, or free one: see [below](#a-free-server-is-not-used).",
			v1alpha1.ReasonNoMatchingType: "Change the Machine's requirements, or the labels and resources of the NodeType that should match.",
			v1alpha1.ReasonInvalidSpec:    "Correct the field or property that the message names, in the object that it names.",
			v1alpha1.ReasonNotAllowed:     "Add the type to `spec.allowedNodeTypes` of the TenantCluster, or ask for another.",
			v1alpha1.ReasonNoAddress:      "Delete Machines that have an address of the pool, or make the pool larger ([network](network.md)).",
			v1alpha1.ReasonQuotaExceeded:  "Delete Machines, or raise `spec.quota` of the TenantCluster.",
			v1alpha1.ReasonTooManyClaims: "Find out why servers are given back before they are installed. The message says when the next one " +
				"comes " +
				"([a greedy tenant](security.md#a-greedy-tenant)).",
			v1alpha1.ReasonTenantDeleting: "The tenant is being deleted ([delete a tenant](operations.md#delete-a-tenant)). It gets no " +
				"server any more.",
			v1alpha1.ReasonGangIncomplete: "Wait for the other NodeClaims of the gang.",
		},
	},
	{
		title: "A server does not become a node", folders: []string{apiFolder},
		text: "The Machine has a server (`Claimed`), and `Provisioned`, `NetworkReady` or `Joined` is false: " +
			"[a Machine is in error](operations.md#a-machine-is-in-error).",
		remedies: map[string]string{
			v1alpha1.ReasonWaitingForBootstrapData: "The provider writes the user data. If it does not, look at its log, and whether it runs.",
			v1alpha1.ReasonWaitingForHook: "The owner of the hook has to remove it. The message has what it waits for " +
				"([network](network.md)).",
			v1alpha1.ReasonWaitingForNode: "The server has booted. Look at its console: cloud-init, `kubeadm join`, and whether it reaches " +
				"the tenant's API " +
				"server ([metal3](metal3.md#what-goes-wrong)).",
			v1alpha1.ReasonPoweredOff: "Switch it on: `spec.power.state` of the Machine.",
			v1alpha1.ReasonHostError: "Metal3 tries again by itself. The message says what failed, and operators read Metal3's words " +
				"on the BareMetalHost; repair the server, or delete the Machine to release it " +
				"([errors](finite-hardware/errors.md)).",
			v1alpha1.ReasonDeadlineExceeded: "The Machine is given up, and its pods get another server. If that happens often, look for a " +
				"broken image, or raise " +
				"`provisioningDeadline` of the NodeType ([slow servers](finite-hardware/slow-servers.md)).",
			v1alpha1.ReasonTooManyGivenUp: "Many servers fail alike: look for what they share, an image, a switch, a template " +
				"([slow servers](finite-hardware/slow-servers.md)).",
			v1alpha1.ReasonHostLost: "Someone has deleted the BareMetalHost, or given it to another consumer. Restore it " +
				"([backup](backup.md)), or delete the " +
				"Machine.",
			v1alpha1.ReasonHostDeleting: "The BareMetalHost goes once the Machine has. Delete the Machine, or the NodeClaim in the tenant.",
		},
	},
	{
		title:   "A node is there, and less than it should be",
		folders: []string{apiFolder, "pkg/controllers/tenant/nodeprofiles"},
		text: "Conditions of the NodeClaim: `ResourcesAdvertised` and `NodeAsPlanned`; and of the server, the annotation of its quarantine. " +
			"A node that stays `NotReady` says why in its own condition `Ready`: `kubectl --kubeconfig acme-admin.kubeconfig describe node`. " +
			"`cni plugin not initialized` is a tenant without a CNI plugin, which it must bring ([install](install.md)).",
		remedies: map[string]string{
			v1alpha1.ReasonResourcesMissing: "Look at the device plugin or the DRA driver on the node. The message has the resource.",
			v1alpha1.ReasonNodeSmaller: "Correct `resources` and `overhead` of the NodeType: pods that were planned for the node may not fit " +
				"([capacity](finite-hardware/capacity.md)).",
			"NodeProfileNotApplied":      "Have the NodeProfile that the message names be there again ([node profiles](node-profiles.md)).",
			v1alpha1.ReasonNodeUnhealthy: "Check the server, then take the [quarantine](operations.md#quarantine) away.",
		},
	},
	{
		title: "A node is not replaced, or was", folders: []string{"pkg/karpenter/rollout",
			"pkg/controllers/tenant/nodeclaimstatus", "pkg/controllers/tenant/garbagecollection", "pkg/controllers/tenant/repairs"},
		text: "Events of its NodeClaim and of the Node ([drift](finite-hardware/drift.md)). `DisruptionBlocked` is Karpenter's own: its " +
			"message has the budget, the pod or the PodDisruptionBudget.",
		remedies: map[string]string{
			"ServerDrifted":      "Nothing: Karpenter replaces the node as budgets, pods and free servers let it.",
			"ServerDriftUnknown": "Correct what the message names. Until then the node is not replaced because of it.",
			"RolloutBlocked": "Free a server of the type, or have the pods leave the node " +
				"([rollouts](finite-hardware/drift.md#rollouts-without-a-spare-server)).",
			"RolloutWithoutSpare": "Nothing: no server was free for its pods, and the node's own will be.",
			"ReplacementHeld": "Remove the annotation or NVSentinel's label from nodes that are well, or delete the NodeClaim to replace it now " +
				"([report a server](finite-hardware/scale-down.md#report-a-server)).",
			"ServerGivenUp":  "Nothing: its pods get another server. The operator checks this one ([quarantine](operations.md#quarantine)).",
			"MachineDeleted": "Nothing: its pods get another server. Somebody has deleted the Machine; the audit log says who.",
		},
	},
	{
		title: "A NodeType has no servers, or the wrong ones", folders: []string{apiFolder},
		text: "Conditions `Synced`, `HasCapacity` and `HardwareFits` of the NodeType or the NodeProvider: `kubectl metal3 explain " +
			"nodetype h100-8x`.",
		remedies: map[string]string{
			v1alpha1.ReasonInvalidSelector:  "Correct `bareMetalHosts.selector`.",
			v1alpha1.ReasonInvalidDevices:   "Correct `devices`: the message says what no driver can publish ([DRA](dra.md)).",
			v1alpha1.ReasonProviderNotFound: "Create the NodeProvider, or correct the reference to it.",
			v1alpha1.ReasonNoNodeTypes:      "Give the NodeProvider `nodeTypes`, or refer to another.",
			v1alpha1.ReasonTenantNamespace:  "Put the servers into a namespace without a TenantCluster.",
			v1alpha1.ReasonNameConflict:     "Rename the type in one of the two NodeProviders.",
			v1alpha1.ReasonNoHosts:          "Label BareMetalHosts as the selector asks, or correct the selector or the namespace.",
			v1alpha1.ReasonNoSelector: "Set `bareMetalHosts.selector`, or confirm that every server is meant by the annotation that " +
				"the message has.",
			v1alpha1.ReasonExhausted:        "Wait, free a server, or add one: see [below](#a-free-server-is-not-used).",
			v1alpha1.ReasonResourcesUnknown: "Set cpu and memory in `resources`, or have Metal3 inspect a server of the type.",
			v1alpha1.ReasonResourcesLowered: "A server has less than the others: correct its labels, or set `resources`.",
			v1alpha1.ReasonHostsTooSmall: "Correct `resources`, or the labels of the servers that the message names. They are not " +
				"claimed as this type.",
			v1alpha1.ReasonNodesSmaller: "Look at the servers that the event names. If they are whole, correct `resources` " +
				"([capacity](finite-hardware/capacity.md#what-a-node-has)).",
			v1alpha1.ReasonFabricShared: "Move tenants apart ([domains for one tenant " +
				"each](finite-hardware/topology.md#domains-for-one-tenant-each)).",
		},
	},
	{
		title: "A free server is not used", folders: []string{"pkg/inventory"},
		text: "`kubectl metal3 explain host server-01`, or the counts of `kubectl get nodetypes -o wide`. The commands are for a server " +
			"of the name " +
			"`server-01`.",
		remedies: hostRemedies(),
	},
	{
		title: "A tenant is not served", folders: []string{apiFolder, "pkg/controllers/management/tenantcluster"},
		text: "Conditions of its TenantCluster: `kubectl describe tenantcluster -n acme acme`. What harms the tenant is done only when an " +
			"operator " +
			"[confirms](operations.md#the-tenants-cluster) it, by the command in the message.",
		remedies: map[string]string{
			v1alpha1.ReasonNotReported: "Look at the tenant's provider: it does not run, or does not reach the management cluster.",
			v1alpha1.ReasonProviderSilent: "Look at the tenant's provider ([a program is down](operations.md#a-program-is-down)). Nodes and pods " +
				"go on without it.",
			v1alpha1.ReasonAnotherCluster: "Give the provider the kubeconfig of the right cluster, or confirm that this one is the " +
				"tenant's now.",
			v1alpha1.ReasonClusterTaken:      "Give the provider the kubeconfig of its own tenant, or delete the other TenantCluster.",
			v1alpha1.ReasonKubeconfigRefused: "[Renew the kubeconfig](operations.md#renew-a-kubeconfig).",
			v1alpha1.ReasonTooManyMachines: "If the tenant's cluster is complete, confirm. If it was restored without its NodeClaims, " +
				"restore them first.",
			"NotDrained": "The nodes that the message names were not drained in time, or not at all, and their servers are released all the " +
				"same ([delete a tenant](operations.md#delete-a-tenant)).",
			v1alpha1.ReasonInvalidPools: "Correct the pool of `privateNodes.autoNodes` that the message names.",
			v1alpha1.ReasonReleasesServers: "Put the pool or its quantity back, or confirm that its servers are released " +
				"([take pools from a tenant](operations.md#take-pools-from-a-tenant)).",
		},
	},
	{
		title:   "Devices are not in sync",
		folders: []string{"pkg/dra/claims", "pkg/dra/classes", apiFolder, "pkg/controllers/management/tenantcluster"},
		text:    "The condition `DRASynced` of the TenantCluster ([DRA](dra.md)).",
		remedies: map[string]string{
			v1alpha1.ReasonAPINotServed:    "Both clusters must serve `resource.k8s.io/v1`: Kubernetes 1.34 or newer.",
			v1alpha1.ReasonNoDeviceClasses: "Enable the sync of device classes, too: without it no class is allowed.",
			v1alpha1.ReasonSameCluster:     "Give the provider the tenant's kubeconfig: both lead to one cluster.",
			v1alpha1.ReasonInvalidName: "Of the TenantCluster: use a shorter name. Of a claim: use one without `-x-` in it, or `x-` or " +
				"`-x` at an end, as for its namespace.",
			"TooManyDeviceClasses":  "Select fewer: the first 256 by name are allowed ([DRA](dra.md#when-something-is-wrong)).",
			"SyncWarning":           "Its message begins with one of the other reasons here.",
			"DeviceClassNotAllowed": "Name a class that the tenant has, or have the platform team select this one.",
			"InvalidSelector":       "Correct `sync.fromHost.deviceClasses.selector`. Nothing is made or taken away until then.",
			"DeviceClassGone":       "Delete the claim and its pod, or have the platform team select the class again. The pod runs on.",
			"NameTaken":             "Give the claim another name: the host has an object of this one that is not its copy.",
			"RefusedByHost":         "The message is the host's. If it stays, see that the manager runs, which lists the classes.",
			"NoAdminAccess":         "Nothing, or leave `adminAccess` out: it is not passed on.",
			"MetadataTooLarge":      "Give the object fewer or shorter labels and annotations. All else is in sync.",
			"OpaqueConfigNotAllowed": "Leave the configuration out, or have the platform team name its driver in " +
				"`sync.toHost.opaqueConfigDrivers`.",
			"TooLarge":                "Make the claim smaller. It is tried again each minute.",
			"TooManyCopies":           "Delete claims that nobody uses. It is tried again each minute.",
			"DeletedOnHost":           "Make the claim again. Somebody on the host has deleted its copy; the audit log there says who.",
			"DeviceClassRemoved":      "Use another class, or have the platform team select this one again.",
			v1alpha1.ReasonNotStarted: "Look at the log of the provider. The message has the controller.",
		},
	},
}

// hostRemedies are what the inventory says itself, of a server in a typical state, and of those reasons that end by themselves.
func hostRemedies() map[string]string {
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3-system", Name: "server-01"}}
	host.Spec.ConsumerRef = &corev1.ObjectReference{Namespace: "acme", Name: "train-abcde"}
	remedies := map[string]string{
		string(inventory.ReasonClaimed):    "It is in use.",
		string(inventory.ReasonAssumed):    "It will be in use in a moment.",
		string(inventory.ReasonDeleting):   "It is leaving the fleet.",
		string(inventory.ReasonInspecting): "Wait until Metal3 has inspected it.",
		string(inventory.ReasonDomainHeld): "Wait, or let domains be shared " +
			"([domains for one tenant each](finite-hardware/topology.md#domains-for-one-tenant-each)).",
		string(inventory.ReasonUnknown): "A newer manager knows the state: update the plugin.",
	}
	for _, reason := range []inventory.Reason{
		inventory.ReasonQuarantined, inventory.ReasonError, inventory.ReasonPaused, inventory.ReasonDetached, inventory.ReasonUnhealthy,
		inventory.ReasonNodeReuse,
		inventory.ReasonMaintenance, inventory.ReasonRebooting, inventory.ReasonExternallyProvisioned, inventory.ReasonImageSet,
		inventory.ReasonNotReady, inventory.ReasonNotOperational, inventory.ReasonNotCleaned, inventory.ReasonTooSmall,
		inventory.ReasonNotInspected, inventory.ReasonRegisteredAnew,
	} {
		text, command, found := strings.Cut(reason.Remedy(host), "kubectl ")
		text = strings.ToUpper(text[:min(len(text), 1)]) + text[min(len(text), 1):]
		if found {
			text += "`kubectl " + command + "`"
		}
		remedies[string(reason)] = text
	}
	return remedies
}

// quiet are reasons, behind their folder, that nobody reads or that nothing follows from.
var quiet = sets.New("pkg/cloudprovider ServerClaimed", "pkg/karpenter/nodeprofiles NodeProfile")

const troubleshootingHead = `<!-- Generated from docs/generate/troubleshooting.go and the comments of the reasons by ` + "`make " +
	"generate`" + `. Do not edit. -->

# Troubleshooting

By what you see first. Conditions and events have a reason, and a message with names and numbers. Each reason that may need a person is below. Look it up
here, and read the message: it is more exact. What Metal3 itself gets wrong is in [Get Metal3](metal3.md#what-goes-wrong), what admission refuses in
[its messages](webhook-messages.md), and an outage of a whole program in [a program is down](operations.md#a-program-is-down).

`

// troubleshooting returns the page. It is an error if a reason anywhere in pkg that may need a person has no remedy.
func troubleshooting() (string, error) {
	var page strings.Builder
	page.WriteString(troubleshootingHead)
	missing, meanings := map[string]bool{}, map[string]map[string]string{}
	if err := filepath.WalkDir("pkg", func(folder string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		reasons, err := reasonsOf(folder)
		if err != nil {
			return err
		}
		meanings[folder] = map[string]string{}
		for _, reason := range reasons {
			meanings[folder][reason.value] = reason.text
			key := folder + " " + reason.value
			missing[key] = folder == apiFolder && v1alpha1.IsWarning(reason.value) || folder != apiFolder && !quiet.Has(key)
		}
		return nil
	}); err != nil {
		return "", err
	}
	for _, s := range symptoms {
		fmt.Fprintf(&page, "## %s\n\n%s\n\n| reason | meaning | what to do |\n|---|---|---|\n", s.title, s.text)
		for _, reason := range slices.Sorted(maps.Keys(s.remedies)) {
			meaning := ""
			for _, folder := range s.folders {
				meaning = cmp.Or(meaning, meanings[folder][reason])
				missing[folder+" "+reason] = false
			}
			if meaning == "" {
				return "", fmt.Errorf("%s has no comment in %v", reason, s.folders)
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", reason, meaning, s.remedies[reason])
		}
		page.WriteString("\n")
	}
	maps.DeleteFunc(missing, func(_ string, lacks bool) bool { return !lacks })
	if len(missing) > 0 {
		return "", fmt.Errorf("there is no remedy for the reasons %s: add them to docs/generate/troubleshooting.go",
			strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return strings.TrimRight(page.String(), "\n") + "\n", nil
}
