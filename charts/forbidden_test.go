// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

// The namespaces of the clusters that TestForbidden makes.
const (
	// hostNamespace has the servers and the credentials of their BMCs.
	hostNamespace = "metal3-system"
	// systemNamespace has the manager and the webhook; in the tenant cluster, the provider's account.
	systemNamespace = "karpenter-metal3"
	// tenantNamespace is the tenant's whose provider tries things, and otherNamespace is another tenant's.
	tenantNamespace, otherNamespace = "acme", "globex"
	// userNamespace is where a tenant's users work, in the tenant cluster.
	userNamespace = "default"
	// ownNamespace stands for that of the account.
	ownNamespace = "its own"
)

// forbidden is something that an account must not be able to do.
type forbidden struct {
	// why it matters.
	why string
	// verbs, separated by blanks.
	verbs string
	// resource is written as kubectl does: "machines.karpenter.metal3.io/status".
	resource string
	// namespaces, separated by commas. Empty is the whole cluster.
	namespaces string
	// name of the object, if there must be one of that name.
	name string
}

// every is all that one can do to objects.
const (
	reading = "get list watch"
	writing = "create update patch delete deletecollection"
	every   = reading + " " + writing
)

// inTheirReach are the namespaces in which an account could gain the most.
const inTheirReach = ownNamespace + ",kube-system,default"

// escalation is what would give an account the rights of another, whoever it is. No account can do any of it.
var escalation = []forbidden{
	{"it would give itself more rights", writing + " bind escalate", "clusterroles.rbac.authorization.k8s.io", "", ""},
	{"it would give itself more rights", writing, "clusterrolebindings.rbac.authorization.k8s.io", "", ""},
	{"it would give itself more rights", writing + " bind escalate", "roles.rbac.authorization.k8s.io", inTheirReach, ""},
	{"it would give itself more rights", writing, "rolebindings.rbac.authorization.k8s.io", inTheirReach, ""},
	{"it would be somebody else", "impersonate", "users", "", "kubernetes-admin"},
	{"it would be an administrator", "impersonate", "groups", "", "system:masters"},
	{"it would be another program", "impersonate", "serviceaccounts", inTheirReach, "default"},
	{"it would be another program", "create", "serviceaccounts/token", inTheirReach, "default"},
	{"it would make a client certificate", "create", "certificatesigningrequests.certificates.k8s.io", "", ""},
	{"it would have its certificate signed", "update patch", "certificatesigningrequests.certificates.k8s.io/approval", "", "mine"},
	{"it would run a pod with the rights of another", "create update patch", "pods", inTheirReach, ""},
	{"it would run a pod with the rights of another", writing, "deployments.apps", inTheirReach, ""},
	{"it would be in another program", "create get", "pods/exec", inTheirReach, "some"},
	{"it would be in another program", "create get", "pods/attach", inTheirReach, "some"},
	{"it would be in another program", "update patch", "pods/ephemeralcontainers", inTheirReach, "some"},
	{"it would talk to other programs", "create get", "pods/portforward", inTheirReach, "some"},
	{"logs can have secrets in them", "get", "pods/log", inTheirReach, "some"},
	{"kubelet would do all of that for it", "create get", "nodes/proxy", "", "some"},
	{"it would see and change what others write", writing, "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
	{"it would change what kinds there are", writing, "customresourcedefinitions.apiextensions.k8s.io", "", ""},
	{"it would change other programs' settings", writing, "configmaps", inTheirReach, ""},
	{"namespaces are the platform's", writing, "namespaces", "", ""},
}

// accountTable is where an account is, and what it must not be able to do.
type accountTable struct {
	namespace string
	forbidden []forbidden
}

// managementAccounts are the service accounts that the charts make in the management cluster, and what they must not do.
// The manager's release names the namespaces of the servers (manager.hostNamespaces).
var managementAccounts = map[string]accountTable{
	"karpenter-metal3-manager": {systemNamespace, []forbidden{
		{"servers are registered by people, and it claims them by patches", "create update delete deletecollection", "baremetalhosts.metal3.io",
			hostNamespace, ""},
		{"what Metal3 says of a server is Metal3's", "update patch", "baremetalhosts.metal3.io/status", hostNamespace, ""},
		{"it writes user data, one by one", "update deletecollection", "secrets", hostNamespace, ""},
		{"user data is written where the servers are, and nowhere else", writing, "secrets", systemNamespace + "," + tenantNamespace +
			",kube-system", ""},
		{"providers ask for servers, and it answers", "create update deletecollection", "machines.karpenter.metal3.io", tenantNamespace, ""},
		{"what a tenant may have is the platform's to say", "create update delete deletecollection", "tenantclusters.karpenter.metal3.io",
			tenantNamespace, ""},
		{"what servers there are is the platform's to say", writing, "nodeproviders.karpenter.metal3.io", "", ""},
		{"what runs on them too", writing, "osimages.karpenter.metal3.io", "", ""},
		{"who may log in to them too", writing, "sshkeys.karpenter.metal3.io", "", ""},
		{"how they are set up too", writing, "machineconfigtemplates.karpenter.metal3.io", "", ""},
		{"an address is taken and given back, never moved", "update patch deletecollection", "ipaddresses.karpenter.metal3.io", "", ""},
		{"the lease of another program", "get update patch delete", "leases.coordination.k8s.io", systemNamespace, "another"},
		{"leases elsewhere", every, "leases.coordination.k8s.io", "kube-system", "any"},
		{"who is asked about writes is not its business", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
		{"it has nothing to do with pods", reading + " delete", "pods", tenantNamespace, ""},
		{"nor with nodes", every, "nodes", "", ""},
	}},
	"karpenter-metal3-webhook": {systemNamespace, []forbidden{
		{"it admits or rejects, and changes nothing", writing, "baremetalhosts.metal3.io", hostNamespace, ""},
		{"it admits or rejects, and changes nothing", writing, "machines.karpenter.metal3.io", tenantNamespace, ""},
		{"it admits or rejects, and changes nothing", writing, "tenantclusters.karpenter.metal3.io", tenantNamespace, ""},
		{"it admits or rejects, and changes nothing", writing, "nodeproviders.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "nodetypes.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "osimages.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "sshkeys.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "machineconfigtemplates.karpenter.metal3.io", "", ""},
		{"nor any state", "update patch", "machines.karpenter.metal3.io/status", tenantNamespace, ""},
		{"of the Secrets it has its own certificate, by name", "get update", "secrets", systemNamespace, "another"},
		{"of the Secrets it has its own certificate, by name", "list watch", "secrets", systemNamespace, ""},
		{"its own it writes by compare-and-swap, and nobody needs it deleted", "patch delete", "secrets", systemNamespace,
			"karpenter-metal3-webhook-certs"},
		{"BMC credentials, user data, join tokens", every, "secrets", hostNamespace + "," + tenantNamespace + ",kube-system", ""},
		{"all of them", "list watch", "secrets", "", ""},
		{"it tells the API server to trust it, and only for what the platform has installed", "create patch delete deletecollection",
			"validatingwebhookconfigurations.admissionregistration.k8s.io", "", "karpenter-metal3"},
		{"the configurations of others", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "another"},
		{"it has nothing to do with pods", reading + " delete", "pods", tenantNamespace, ""},
		{"nor with nodes", every, "nodes", "", ""},
		{"it elects nobody", every, "leases.coordination.k8s.io", systemNamespace, "any"},
	}},
	"karpenter-metal3-provider-" + tenantNamespace: {tenantNamespace, []forbidden{
		{"which servers there are, and who has them, is no tenant's to see", every, "baremetalhosts.metal3.io", hostNamespace + "," +
			tenantNamespace, ""},
		{"nor in the whole cluster", "list watch", "baremetalhosts.metal3.io", "", ""},
		{"nor what Metal3 has found in them", reading, "hardwaredata.metal3.io", hostNamespace, ""},
		{"BMC credentials, user data of other tenants, certificates", every, "secrets", hostNamespace + "," + otherNamespace + "," +
			systemNamespace + ",kube-system,default", ""},
		{"all of them", "list watch deletecollection", "secrets", "", ""},
		{"it writes user data of its own, one by one", "watch patch deletecollection", "secrets", tenantNamespace, ""},
		{"other tenants' servers", every, "machines.karpenter.metal3.io", otherNamespace, ""},
		{"what the manager says of other tenants' servers", "get update patch", "machines.karpenter.metal3.io/status", otherNamespace, "theirs"},
		{"all of them", "list watch deletecollection", "machines.karpenter.metal3.io", "", ""},
		{"it asks for a server, and the manager answers", "update patch", "machines.karpenter.metal3.io/status", tenantNamespace, "mine"},
		{"it changes Machines by patches, one by one", "update deletecollection", "machines.karpenter.metal3.io", tenantNamespace, ""},
		{"other tenants' settings, quota and kubeconfig", every, "tenantclusters.karpenter.metal3.io", otherNamespace, ""},
		{"other tenants' state", "get update patch", "tenantclusters.karpenter.metal3.io/status", otherNamespace, "globex"},
		{"all of them", "list watch", "tenantclusters.karpenter.metal3.io", "", ""},
		{"what the tenant may have is not its to say", writing, "tenantclusters.karpenter.metal3.io", tenantNamespace, "acme"},
		{"what servers there are is the platform's to say", writing, "nodetypes.karpenter.metal3.io", "", ""},
		{"what servers there are is the platform's to say", "update patch", "nodetypes.karpenter.metal3.io/status", "", "gpu"},
		{"what servers there are is the platform's to say", writing, "nodeproviders.karpenter.metal3.io", "", ""},
		{"images, and with what they are fetched", every, "osimages.karpenter.metal3.io", "", ""},
		{"keys of administrators", every, "sshkeys.karpenter.metal3.io", "", ""},
		{"how other tenants' servers are set up", every, "machineconfigtemplates.karpenter.metal3.io", "", ""},
		{"addresses tell of other tenants' networks", every, "ipaddresses.karpenter.metal3.io", "", ""},
		{"other tenants' devices", every, "resourceclaims.resource.k8s.io", otherNamespace, ""},
		{"other tenants' devices", every, "resourceclaimtemplates.resource.k8s.io", otherNamespace, ""},
		{"what is allocated is the scheduler's to say", "update patch", "resourceclaims.resource.k8s.io/status", tenantNamespace, "mine"},
		{"which classes there are is the platform's to say", writing, "deviceclasses.resource.k8s.io", "", ""},
		{"which devices there are is no tenant's to see", every, "resourceslices.resource.k8s.io", "", ""},
		{"other tenants' pods", every, "pods", otherNamespace, ""},
		{"its own are only looked at", "delete deletecollection", "pods", tenantNamespace, ""},
		{"who else there is", "list watch", "namespaces", "", ""},
		{"who else there is", "get", "namespaces", "", otherNamespace},
		{"nodes of the management cluster", every, "nodes", "", ""},
		{"another tenant's provider would stop, or work twice", every, "leases.coordination.k8s.io", otherNamespace + "," + systemNamespace +
			",kube-system", "any"},
		{"who is asked about writes is not its business", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
	}},
}

// tenantAccounts are those in the tenant cluster.
var tenantAccounts = map[string]accountTable{
	"karpenter-metal3-provider": {systemNamespace, []forbidden{
		{"the tenant's own Secrets are none of the platform's", every, "secrets", userNamespace + "," + systemNamespace + ",kube-public", ""},
		{"all of them", "list watch deletecollection", "secrets", "", ""},
		{"join tokens are written one by one", "watch patch deletecollection", "secrets", "kube-system", ""},
		{"of the ConfigMaps it has the cluster's CA, by name", "get", "configmaps", "kube-public", "another"},
		{"of the ConfigMaps it has the cluster's CA, by name", reading, "configmaps", userNamespace + ",kube-system", "any"},
		{"all of them", "list watch", "configmaps", "", ""},
		{"kubelet makes nodes", "create update deletecollection", "nodes", "", ""},
		{"Karpenter changes its objects by patches, one by one", "update deletecollection", "nodepools.karpenter.sh", "", ""},
		{"Karpenter changes its objects by patches, one by one", "update deletecollection", "nodeclaims.karpenter.sh", "", ""},
		{"what drivers publish is theirs", writing, "resourceslices.resource.k8s.io", "", ""},
		{"volumes are looked at for where pods can be", writing, "persistentvolumes", "", ""},
		{"volumes are looked at for where pods can be", writing, "persistentvolumeclaims", userNamespace, ""},
		{"the tenant says how many pods may be away", writing, "poddisruptionbudgets.policy", userNamespace, ""},
		{"workloads are looked at for what their pods ask for", writing, "daemonsets.apps", userNamespace, ""},
		{"workloads are looked at for what their pods ask for", writing, "statefulsets.apps", userNamespace, ""},
		{"pods are evicted or deleted one by one", "deletecollection", "pods", userNamespace, ""},
		{"accounts are the tenant's", every, "serviceaccounts", userNamespace + ",kube-system", ""},
		{"who is asked about writes is the tenant's to say", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
		{"other programs elect among themselves", every, "leases.coordination.k8s.io", "kube-system", "any"},
	}},
}
