// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

// The namespaces of the clusters that TestForbidden makes.
const (
	// hostNamespace has the servers and the credentials of their BMCs.
	hostNamespace = "metal3-system"
	// systemNamespace has the manager and the webhook; in the tenant cluster, the provider's account.
	systemNamespace = "karpenter-metal3"
	// tenantNamespace is that of the tenant whose provider is tested, and otherNamespace that of another tenant.
	tenantNamespace, otherNamespace = "acme", "globex"
	// userNamespace is where a tenant's users work, in the tenant cluster.
	userNamespace = "default"
	// ownNamespace stands for that of the account.
	ownNamespace = "its own"
)

// forbidden is a set of requests that an account must not be allowed.
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

// every has all verbs.
const (
	reading = "get list watch"
	writing = "create update patch delete deletecollection"
	every   = reading + " " + writing
)

// inTheirReach are the namespaces in which rights would help an account most.
const inTheirReach = ownNamespace + ",kube-system,default"

// escalation has the requests by which an account would get the rights of another one. All are forbidden for all
// accounts.
var escalation = []forbidden{
	{"it would give itself more rights", writing + " bind escalate", "clusterroles.rbac.authorization.k8s.io", "", ""},
	{"it would give itself more rights", writing, "clusterrolebindings.rbac.authorization.k8s.io", "", ""},
	{"it would give itself more rights", writing + " bind escalate", "roles.rbac.authorization.k8s.io", inTheirReach, ""},
	{"it would give itself more rights", writing, "rolebindings.rbac.authorization.k8s.io", inTheirReach, ""},
	{"it would act as another user", "impersonate", "users", "", "kubernetes-admin"},
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

// accountTable has an account, and what is forbidden for it.
type accountTable struct {
	namespace string
	forbidden []forbidden
}

// managementAccounts are the service accounts of the charts in the management cluster, and what is forbidden for them.
// The manager's release names the namespaces of the servers (manager.hostNamespaces).
var managementAccounts = map[string]accountTable{
	"karpenter-metal3-manager": {systemNamespace, []forbidden{
		{"servers are registered by people, and it claims them by patches", "create update delete deletecollection", "baremetalhosts.metal3.io",
			hostNamespace, ""},
		{"servers of other teams", "patch", "baremetalhosts.metal3.io", tenantNamespace + "," + systemNamespace + ",kube-system,default", ""},
		{"only Metal3 writes the status of a server", "update patch", "baremetalhosts.metal3.io/status", hostNamespace, ""},
		{"it writes user data, one by one", "update deletecollection", "secrets", hostNamespace, ""},
		{"it reads the user data of a Machine by its name", "list watch", "secrets", tenantNamespace, ""},
		{"Secrets of the platform, and of those who have no tenant", reading, "secrets", systemNamespace + ",kube-system,default", ""},
		{"all of them", "list watch", "secrets", "", ""},
		{"who watches Secrets reads them all", "watch", "secrets", hostNamespace, ""},
		{"user data is written only in the servers' namespace", writing, "secrets", tenantNamespace + ",kube-system,default", ""},
		{"it writes one Secret there, the webhook's certificates, by name", "update patch delete deletecollection", "secrets", systemNamespace,
			"another"},
		{"it updates them by compare-and-swap, and never deletes them", "patch delete", "secrets", systemNamespace,
			"karpenter-metal3-webhook-certs"},
		{"providers create Machines, and it writes their status",
			"create update deletecollection", "machines.karpenter.metal3.io", tenantNamespace, ""},
		{"the platform team decides what a tenant may use", "create update delete deletecollection", "tenantclusters.karpenter.metal3.io",
			tenantNamespace, ""},
		{"the platform team registers servers and types", writing, "nodeproviders.karpenter.metal3.io", "", ""},
		{"the platform team decides what nodes have", writing, "nodeprofiles.karpenter.metal3.io", "", ""},
		{"the platform team decides what is installed", writing, "osimages.karpenter.metal3.io", "", ""},
		{"SSH keys give access to servers", writing, "sshkeys.karpenter.metal3.io", "", ""},
		{"the platform team writes the templates of user data", writing, "machineconfigtemplates.karpenter.metal3.io", "", ""},
		{"an address is created and deleted, never changed", "update patch deletecollection", "ipaddresses.karpenter.metal3.io", "", ""},
		{"the record of a server is written one by one", "update deletecollection", "hostusages.karpenter.metal3.io", hostNamespace, ""},
		{"leases of other programs", "get update patch delete", "leases.coordination.k8s.io", systemNamespace, "another"},
		{"leases elsewhere", every, "leases.coordination.k8s.io", "kube-system", "any"},
		{"it must not change which webhooks are called", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
		{"configurations of other webhooks", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "another"},
		{"configurations of other webhooks", every, "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "another"},
		{"it writes the CA bundle of our webhook, which the platform team installs", "create patch delete deletecollection",
			"validatingwebhookconfigurations.admissionregistration.k8s.io", "", "karpenter-metal3"},
		{"it writes the CA bundle of our webhook, which the platform team installs", "create patch delete deletecollection",
			"mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "karpenter-metal3"},
		{"it does not use pods", reading + " delete", "pods", tenantNamespace, ""},
		{"it does not use nodes", every, "nodes", "", ""},
	}},
	"karpenter-metal3-webhook": {systemNamespace, []forbidden{
		{"it admits or rejects, and changes nothing", writing, "baremetalhosts.metal3.io", hostNamespace, ""},
		{"it admits or rejects, and changes nothing", writing, "machines.karpenter.metal3.io", tenantNamespace, ""},
		{"it admits or rejects, and changes nothing", writing, "tenantclusters.karpenter.metal3.io", tenantNamespace, ""},
		{"it admits or rejects, and changes nothing", writing, "nodeproviders.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "nodetypes.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "nodeprofiles.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "osimages.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "sshkeys.karpenter.metal3.io", "", ""},
		{"it admits or rejects, and changes nothing", writing, "machineconfigtemplates.karpenter.metal3.io", "", ""},
		{"it does not write status", "update patch", "machines.karpenter.metal3.io/status", tenantNamespace, ""},
		{"it may read one Secret, its own certificate, by name", reading, "secrets", systemNamespace, "another"},
		{"it may read one Secret, its own certificate, by name", "list watch", "secrets", systemNamespace, ""},
		{"the manager makes its certificates", writing, "secrets", systemNamespace, "karpenter-metal3-webhook-certs"},
		{"BMC credentials, user data, join tokens", every, "secrets", hostNamespace + "," + tenantNamespace + ",kube-system", ""},
		{"all of them", "list watch", "secrets", "", ""},
		{"it would be asked about everything that is written, and change it", every,
			"validatingwebhookconfigurations.admissionregistration.k8s.io", "", "karpenter-metal3"},
		{"it would be asked about everything that is written, and change it", every,
			"mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "karpenter-metal3"},
		{"it does not use pods", reading + " delete", "pods", tenantNamespace, ""},
		{"it does not use nodes", every, "nodes", "", ""},
		{"it has no leader election", every, "leases.coordination.k8s.io", systemNamespace, "any"},
	}},
	"karpenter-metal3-provider-" + tenantNamespace: {tenantNamespace, []forbidden{
		{"a tenant must not see the servers and their consumers", every, "baremetalhosts.metal3.io", hostNamespace + "," +
			tenantNamespace, ""},
		{"servers in all namespaces", "list watch", "baremetalhosts.metal3.io", "", ""},
		{"inspection data of the servers", reading, "hardwaredata.metal3.io", hostNamespace, ""},
		{"BMC credentials, user data of other tenants, certificates", every, "secrets", hostNamespace + "," + otherNamespace + "," +
			systemNamespace + ",kube-system,default", ""},
		{"all of them", "list watch deletecollection", "secrets", "", ""},
		{"it writes user data of its own, one by one", "watch patch deletecollection", "secrets", tenantNamespace, ""},
		{"it empties them, and Kubernetes deletes them with their Machines", "delete", "secrets", tenantNamespace, ""},
		{"other tenants' servers", every, "machines.karpenter.metal3.io", otherNamespace, ""},
		{"status of other tenants' servers", "get update patch", "machines.karpenter.metal3.io/status",
			otherNamespace, "theirs"},
		{"all of them", "list watch deletecollection", "machines.karpenter.metal3.io", "", ""},
		{"it creates Machines, and the manager writes their status",
			"update patch", "machines.karpenter.metal3.io/status", tenantNamespace, "mine"},
		{"it changes Machines by patches, one by one", "update deletecollection", "machines.karpenter.metal3.io", tenantNamespace, ""},
		{"other tenants' settings, quota and kubeconfig", every, "tenantclusters.karpenter.metal3.io", otherNamespace, ""},
		{"other tenants' state", "get update patch", "tenantclusters.karpenter.metal3.io/status", otherNamespace, "globex"},
		{"all of them", "list watch", "tenantclusters.karpenter.metal3.io", "", ""},
		{"the platform team decides what the tenant may use", writing, "tenantclusters.karpenter.metal3.io", tenantNamespace, "acme"},
		{"the platform team registers servers and types", writing, "nodetypes.karpenter.metal3.io", "", ""},
		{"the platform team registers servers and types", "update patch", "nodetypes.karpenter.metal3.io/status", "", "gpu"},
		{"the platform team registers servers and types", writing, "nodeproviders.karpenter.metal3.io", "", ""},
		{"the platform team decides what nodes have", writing, "nodeprofiles.karpenter.metal3.io", "", ""},
		{"images, and the credentials to fetch them", every, "osimages.karpenter.metal3.io", "", ""},
		{"keys of administrators", every, "sshkeys.karpenter.metal3.io", "", ""},
		{"how other tenants' servers are set up", every, "machineconfigtemplates.karpenter.metal3.io", "", ""},
		{"addresses reveal other tenants' networks", every, "ipaddresses.karpenter.metal3.io", "", ""},
		{"who had which server is between the platform and each tenant", every, "hostusages.karpenter.metal3.io", hostNamespace, ""},
		{"other tenants' devices", every, "resourceclaims.resource.k8s.io", otherNamespace, ""},
		{"other tenants' devices", every, "resourceclaimtemplates.resource.k8s.io", otherNamespace, ""},
		{"only the scheduler writes allocations", "update patch", "resourceclaims.resource.k8s.io/status", tenantNamespace, "mine"},
		{"the platform team defines device classes", writing, "deviceclasses.resource.k8s.io", "", ""},
		{"a tenant must not see all devices", every, "resourceslices.resource.k8s.io", "", ""},
		{"other tenants' pods", every, "pods", otherNamespace, ""},
		{"it only reads its own pods", "delete deletecollection", "pods", tenantNamespace, ""},
		{"it must not see other tenants", "list watch", "namespaces", "", ""},
		{"it must not see other tenants", "get", "namespaces", "", otherNamespace},
		{"nodes of the management cluster", every, "nodes", "", ""},
		{"another tenant's provider would stop, or work twice", every, "leases.coordination.k8s.io", otherNamespace + "," + systemNamespace +
			",kube-system", "any"},
		{"its own lease is in the tenant cluster", every, "leases.coordination.k8s.io", tenantNamespace, "any"},
		{"it must not change which webhooks are called", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
	}},
}

// tenantAccounts are those in the tenant cluster.
var tenantAccounts = map[string]accountTable{
	"karpenter-metal3-provider": {systemNamespace, []forbidden{
		{"the platform must not read the tenant's own Secrets", every, "secrets", userNamespace + "," + systemNamespace + ",kube-public", ""},
		{"all of them", "list watch deletecollection", "secrets", "", ""},
		{"join tokens are written one by one", "watch patch deletecollection", "secrets", "kube-system", ""},
		{"it may read one ConfigMap, the cluster's CA, by name", "get", "configmaps", "kube-public", "another"},
		{"it may read one ConfigMap, the cluster's CA, by name", reading, "configmaps", userNamespace + ",kube-system", "any"},
		{"all of them", "list watch", "configmaps", "", ""},
		{"kubelets create nodes", "create update deletecollection", "nodes", "", ""},
		{"Karpenter changes its objects by patches, one by one", "update deletecollection", "nodepools.karpenter.sh", "", ""},
		{"Karpenter changes its objects by patches, one by one", "update deletecollection", "nodeclaims.karpenter.sh", "", ""},
		{"only drivers publish devices", writing, "resourceslices.resource.k8s.io", "", ""},
		{"volumes are only read, for the topology of pods", writing, "persistentvolumes", "", ""},
		{"volumes are only read, for the topology of pods", writing, "persistentvolumeclaims", userNamespace, ""},
		{"only the tenant writes disruption budgets", writing, "poddisruptionbudgets.policy", userNamespace, ""},
		{"workloads are only read, for the requests of their pods", writing, "daemonsets.apps", userNamespace, ""},
		{"workloads are only read, for the requests of their pods", writing, "statefulsets.apps", userNamespace, ""},
		{"pods are evicted or deleted one by one", "deletecollection", "pods", userNamespace, ""},
		{"service accounts belong to the tenant", every, "serviceaccounts", userNamespace + ",kube-system", ""},
		{"it would lift the restriction of its own Secrets", "update patch delete deletecollection",
			"validatingadmissionpolicies.admissionregistration.k8s.io", "", "karpenter-metal3-tokens"},
		{"it would lift the restriction of its own Secrets", "update patch delete deletecollection",
			"validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "karpenter-metal3-tokens"},
		{"the tenant decides which webhooks are called", every, "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
		{"leases of other programs", "get update patch delete", "leases.coordination.k8s.io", "kube-system", "another"},
	}},
}
