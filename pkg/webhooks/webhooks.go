// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// Handlers returns what is served, by path. The paths are those in config/webhook.
func Handlers(all *fleet.Fleet, clk clock.PassiveClock) map[string]admission.Handler {
	unused := func(kind rules.Kind) func(rules.Fleet, string) rules.Verdict {
		return func(fleet rules.Fleet, name string) rules.Verdict { return rules.Deleted(fleet, kind, name) }
	}
	return map[string]admission.Handler{
		"/validate/nodeproviders": &handler[v1alpha1.NodeProvider, *v1alpha1.NodeProvider]{
			kind: "NodeProvider", fleet: all, clock: clk, written: rules.NodeProvider, deleted: rules.ProviderDeleted},
		"/validate/nodetypes": &handler[v1alpha1.NodeType, *v1alpha1.NodeType]{
			kind: "NodeType", fleet: all, clock: clk, written: rules.NodeType, deleted: unused(rules.KindNodeType)},
		"/validate/machines": &handler[v1alpha1.Machine, *v1alpha1.Machine]{
			kind: "Machine", fleet: all, clock: clk, written: rules.Machine},
		"/validate/tenantclusters": &handler[v1alpha1.TenantCluster, *v1alpha1.TenantCluster]{
			kind: "TenantCluster", fleet: all, clock: clk, written: rules.TenantCluster},
		"/validate/osimages": &handler[v1alpha1.OSImage, *v1alpha1.OSImage]{
			kind: "OSImage", fleet: all, clock: clk, written: rules.OSImage, deleted: unused(rules.KindOSImage)},
		"/validate/sshkeys": &handler[v1alpha1.SSHKey, *v1alpha1.SSHKey]{
			kind: "SSHKey", fleet: all, clock: clk, deleted: unused(rules.KindSSHKey),
			written: func(_ rules.Fleet, _, after *v1alpha1.SSHKey) rules.Verdict { return rules.SSHKey(after) }},
		"/validate/machineconfigtemplates": &handler[v1alpha1.MachineConfigTemplate, *v1alpha1.MachineConfigTemplate]{
			kind: "MachineConfigTemplate", fleet: all, clock: clk, deleted: unused(rules.KindMachineConfigTemplate),
			written: func(_ rules.Fleet, _, after *v1alpha1.MachineConfigTemplate) rules.Verdict {
				return rules.MachineConfigTemplate(after)
			}},
	}
}
