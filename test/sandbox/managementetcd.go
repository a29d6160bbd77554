// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// Names of processes of the management cluster that a test may want to stop, beside our own.
const (
	ManagementEtcdName        = "management-etcd"
	ManagementAPIServerName   = "management-kube-apiserver"
	ManagementControllersName = "management-kube-controller-manager"
	Metal3Name                = "baremetal-operator"
)

func (s *Sandbox) startManagementEtcd(ctx context.Context) (*controlplane.Etcd, error) {
	ports, err := controlplane.FreePorts(2)
	if err != nil {
		return nil, err
	}
	return controlplane.StartEtcd(ctx, controlplane.EtcdConfig{
		Name: ManagementEtcdName, Dir: filepath.Join(s.config.Dir, ManagementEtcdName), Binaries: s.config.Binaries, Supervisor: s.supervisor,
		Clock: s.config.Clock, ClientPort: ports[0], PeerPort: ports[1],
	})
}

// ManagementEtcd returns the etcd of the management cluster.
func (s *Sandbox) ManagementEtcd() *controlplane.Etcd { return s.managementEtcd }

// PrepareAgain installs the CRDs, the namespaces and the rights of our programs in a management cluster that has lost
// its data.
func (s *Sandbox) PrepareAgain(ctx context.Context) error {
	if err := PrepareManagement(ctx, s.managementClient, s.config.Binaries, HostNamespace, s.config.Tenant); err != nil {
		return err
	}
	if err := grant(ctx, s.management, s.managementClient, managerUser, "manager.yaml", s.config.Tenant, s.kubeconfigs.Manager); err != nil {
		return err
	}
	if err := grant(ctx, s.management, s.managementClient, webhookUser, "webhook.yaml", metav1.NamespaceDefault,
		s.kubeconfigs.Webhook); err != nil {
		return err
	}
	return grantProvider(ctx, s.management, s.managementClient, s.config.Tenant, s.kubeconfigs.ProviderManagement, managementRights...)
}
