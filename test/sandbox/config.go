// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs the whole system on one machine: a management cluster with Metal3's own operator, a tenant
// cluster, a rack of emulated servers, and our manager and provider between them. All components are real, except the
// servers. Everything is in one directory, listens on loopback only, and ends with the process that called Up, even if
// that is killed.
package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

// Defaults of Config.
const (
	DefaultDir          = ".sandbox"
	DefaultTenant       = "tenant-a"
	DefaultStartTimeout = 10 * time.Minute
	// FeatureGates enable headroom, which the provider leaves off because it needs CRDs that not every tenant has.
	FeatureGates = "CapacityBuffer=true"
	// HostNamespace is the namespace of the BareMetalHosts in the management cluster.
	HostNamespace = "metal3-system"
)

// Environment variables with the versions of clusters: all tests on a sandbox can be run on other versions.
const (
	ManagementKubernetesVariable = "SANDBOX_MANAGEMENT_KUBERNETES"
	TenantKubernetesVariable     = "SANDBOX_TENANT_KUBERNETES"
)

// Names of our own processes, and of those of the management cluster that a test may stop.
const (
	ManagerName               = "manager"
	ProviderName              = "provider"
	WebhookName               = "webhook"
	ManagementEtcdName        = "management-etcd"
	ManagementAPIServerName   = "management-kube-apiserver"
	ManagementControllersName = "management-kube-controller-manager"
	Metal3Name                = "baremetal-operator"
)

// ownPrograms are our programs, which can be left out.
var ownPrograms = []string{ManagerName, ProviderName, WebhookName}

// Config of a sandbox.
type Config struct {
	// Dir holds everything: certificates, data, logs. It must be missing, empty, or of an earlier sandbox, which is
	// removed. Default: DefaultDir.
	Dir string
	// Binaries are the directories of the programs.
	Binaries cluster.Binaries
	// Fleet are the emulated servers.
	Fleet []fleet.Server
	// Tenant is the name of the TenantCluster, and of its namespace in the management cluster. Default: DefaultTenant.
	Tenant string
	// Without leaves out ManagerName, ProviderName or WebhookName, to run it by hand, in a debugger or in a test. Its
	// kubeconfig files and rights are made all the same.
	Without []string
	// TopologyLabels are the flag of that name of our programs. Default: their own.
	TopologyLabels []string
	// Bare leaves out all that the charts install: our definitions, rights, policies and programs, and the TenantCluster.
	Bare bool
	// Screen serves the page of "kubectl metal3 ui".
	Screen bool
	// ProviderArgs are more flags for the provider, for example --feature-gates=NodeRepair=true.
	ProviderArgs []string
	// ManagerArgs are more flags for the manager.
	ManagerArgs []string
	// KwokConfigs are paths of more configuration files for kwok, which emulates kubelets: stages that override the
	// sandbox's own by their weight.
	KwokConfigs []string
	// SpreadPods leaves the tenant's scheduler at its defaults. Otherwise it fills one server with accelerators before
	// the next, so that servers become empty and are released.
	SpreadPods bool
	// Scheduler is the configuration of the tenant's scheduler, in place of either. Default: none.
	Scheduler []byte
	// PodGroups has the tenant's API server serve PodGroups and its scheduler follow them, which Kubernetes does not by default.
	PodGroups bool
	// ManagementKubernetes and TenantKubernetes are the minor versions of the clusters, such as 1.37. Default: the environment variables
	// ManagementKubernetesVariable and TenantKubernetesVariable, or the control plane among Binaries.
	ManagementKubernetes, TenantKubernetes string
	// AuditLogs is the directory for the audit logs of the API servers. Default: no audit logs.
	AuditLogs string
	// ManagementEtcd gives the management cluster a separate etcd, for tests that delete it and keep the tenant.
	ManagementEtcd bool
	// Progress receives a line for each step or error; nil means none.
	Progress io.Writer
	// StartTimeout bounds Up. Default: DefaultStartTimeout.
	StartTimeout time.Duration
}

// complete fills in defaults, makes paths absolute, and validates. It changes nothing on disk.
func (c *Config) complete() error {
	if c.Dir == "" {
		c.Dir = DefaultDir
	}
	if c.Tenant == "" {
		c.Tenant = DefaultTenant
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Bare {
		c.Without = ownPrograms
	}
	c.ManagementKubernetes = cmp.Or(c.ManagementKubernetes, os.Getenv(ManagementKubernetesVariable))
	c.TenantKubernetes = cmp.Or(c.TenantKubernetes, os.Getenv(TenantKubernetesVariable))
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("finding the sandbox directory %s, %w", c.Dir, err)
	}
	c.Dir = dir
	if faults := validation.IsDNS1123Label(c.Tenant); len(faults) > 0 {
		return fmt.Errorf("tenant %q cannot be the name of a namespace: %s", c.Tenant, strings.Join(faults, ", "))
	}
	if slices.Contains([]string{HostNamespace, "default", "kube-system"}, c.Tenant) {
		return fmt.Errorf("tenant %q would share its namespace with something else; choose another name", c.Tenant)
	}
	for _, name := range c.Without {
		if !slices.Contains(ownPrograms, name) {
			return fmt.Errorf("cannot do without %q; what can be left out is %s", name, strings.Join(ownPrograms, ", "))
		}
	}
	if len(c.Fleet) == 0 {
		return errors.New("the fleet has no servers; give a fleet file with at least one")
	}
	return c.checkBinaries()
}

func (c *Config) checkBinaries() error {
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", Metal3Name, "kwok"}
	for _, name := range ownPrograms {
		if !slices.Contains(c.Without, name) {
			names = append(names, name)
		}
	}
	if c.Screen {
		names = append(names, screenName)
	}
	for _, name := range names {
		if _, err := c.Binaries.Find(name); err != nil {
			return err
		}
	}
	_, err := c.Binaries.Metal3CRDs()
	return err
}

// Kubeconfigs are the kubeconfig files of a sandbox in dir, by user.
type Kubeconfigs struct {
	// Management and Tenant are the administrator's.
	Management, Tenant string
	// Manager is the manager's for the management cluster.
	Manager string
	// ProviderManagement and ProviderTenant are the provider's for either cluster.
	ProviderManagement, ProviderTenant string
	// Webhook is the webhook's for the management cluster.
	Webhook string
	// ViewerManagement and ViewerTenant are those of the page about the fleet, for either cluster.
	ViewerManagement, ViewerTenant string
}

// KubeconfigsIn returns the paths of the kubeconfig files of a sandbox in dir.
func KubeconfigsIn(dir string) Kubeconfigs {
	return Kubeconfigs{
		Management:         filepath.Join(dir, "management.kubeconfig"),
		Tenant:             filepath.Join(dir, "tenant.kubeconfig"),
		Manager:            filepath.Join(dir, "users", "manager.kubeconfig"),
		ProviderManagement: filepath.Join(dir, "users", "provider-management.kubeconfig"),
		ProviderTenant:     filepath.Join(dir, "users", "provider-tenant.kubeconfig"),
		Webhook:            filepath.Join(dir, "users", "webhook.kubeconfig"),
		ViewerManagement:   filepath.Join(dir, "users", "viewer-management.kubeconfig"),
		ViewerTenant:       filepath.Join(dir, "users", "viewer-tenant.kubeconfig"),
	}
}

// prepareDir makes the directory, or empties it of what an earlier sandbox left. The caller holds its lock.
func prepareDir(dir string) error {
	for _, name := range []string{"etcd", "management-etcd", "management", "tenant", "users", "kwok", "log", "run", "management.kubeconfig",
		"tenant.kubeconfig"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("removing the remains of an earlier sandbox, %w", err)
		}
	}
	return nil
}

// packed returns the resources of the fleet that the tenant's scheduler packs, besides the usual accelerators.
func (c *Config) packed() []corev1.ResourceName {
	if c.SpreadPods {
		return nil
	}
	resources := []corev1.ResourceName{"nvidia.com/gpu"}
	for _, server := range c.Fleet {
		resources = append(resources, v1alpha1.Accelerators(server.Capacity)...)
	}
	slices.Sort(resources)
	return slices.Compact(resources)
}
