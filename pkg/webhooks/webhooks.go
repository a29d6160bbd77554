// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// Handlers returns what is served, by path. The paths are those in config/webhook.
func Handlers(all *cluster.Cluster, clk clock.PassiveClock) map[string]admission.Handler {
	unused := func(kind rules.Kind) func(rules.Cluster, string) rules.Result {
		return func(cluster rules.Cluster, name string) rules.Result { return rules.Deleted(cluster, kind, name) }
	}
	return map[string]admission.Handler{
		"/validate/nodeproviders": &handler[v1alpha1.NodeProvider, *v1alpha1.NodeProvider]{
			kind: "NodeProvider", cluster: all, clock: clk, written: rules.NodeProvider, deleted: rules.ProviderDeleted},
		"/validate/nodetypes": &handler[v1alpha1.NodeType, *v1alpha1.NodeType]{
			kind: "NodeType", cluster: all, clock: clk, written: rules.NodeType, deleted: unused(rules.KindNodeType)},
		"/validate/machines": &handler[v1alpha1.Machine, *v1alpha1.Machine]{
			kind: "Machine", cluster: all, clock: clk, written: rules.Machine},
		"/validate/tenantclusters": &handler[v1alpha1.TenantCluster, *v1alpha1.TenantCluster]{
			kind: "TenantCluster", cluster: all, clock: clk, written: rules.TenantCluster},
		"/validate/osimages": &handler[v1alpha1.OSImage, *v1alpha1.OSImage]{
			kind: "OSImage", cluster: all, clock: clk, written: rules.OSImage, deleted: unused(rules.KindOSImage)},
		"/validate/sshkeys": &handler[v1alpha1.SSHKey, *v1alpha1.SSHKey]{
			kind: "SSHKey", cluster: all, clock: clk, deleted: unused(rules.KindSSHKey),
			written: func(_ rules.Cluster, _, after *v1alpha1.SSHKey) rules.Result { return rules.SSHKey(after) }},
		"/validate/machineconfigtemplates": &handler[v1alpha1.MachineConfigTemplate, *v1alpha1.MachineConfigTemplate]{
			kind: "MachineConfigTemplate", cluster: all, clock: clk, deleted: unused(rules.KindMachineConfigTemplate),
			written: func(_ rules.Cluster, _, after *v1alpha1.MachineConfigTemplate) rules.Result {
				return rules.MachineConfigTemplate(after)
			}},
	}
}
