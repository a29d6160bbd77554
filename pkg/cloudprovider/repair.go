// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

const (
	// notReadyToleration is longer than a reboot: a big server needs 15 minutes to initialize its memory.
	notReadyToleration = 30 * time.Minute
	// faultToleration is for conditions that report faults of the hardware. It leaves time to reset the device, and to move
	// pods by hand.
	faultToleration = 10 * time.Minute
)

// faults are conditions of nodes that are True while something is broken that makes a node of no use. Those of
// node-problem-detector are in its default configuration; those of NVIDIA's are set by NVSentinel, out of what DCGM, which
// the GPU operator installs, and the kernel's log say, and only for what is fatal. The GPU operator by itself sets none.
var faults = []corev1.NodeConditionType{
	// node-problem-detector: kernel-monitor.json.
	"KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown",
	// NVSentinel: gpu-health-monitor.
	"GpuMemWatch", "GpuPcieWatch", "GpuInforomWatch", "GpuSmWatch", "GpuNvlinkWatch", "GpuMcuWatch", "GpuPmuWatch",
	"GpuDriverWatch", "GpuThermalWatch", "GpuPowerWatch", "GpuNvswitchFatalWatch",
	// NVSentinel: syslog-health-monitor.
	"SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff",
}

// anyReason makes a policy one for its condition alone. Karpenter takes a policy without an expression for the fallback, and wants
// exactly one.
const anyReason = ".*"

// RepairPolicies are the conditions of a node for which Karpenter replaces its server, if the feature gate NodeRepair is on. Their reason
// does not matter, and pods do not delay the replacement. The fallback has the longest toleration.
func (c *CloudProvider) RepairPolicies() []cloudprovider.RepairPolicy {
	policy := func(condition corev1.NodeConditionType, status corev1.ConditionStatus, reason string, toleration time.Duration,
	) cloudprovider.RepairPolicy {
		return cloudprovider.RepairPolicy{ConditionType: condition, ConditionStatus: status, ReasonRegex: reason, TolerationDuration: toleration,
			TerminationGracePeriod: new(time.Duration), Action: cloudprovider.ReplaceNode}
	}
	policies := []cloudprovider.RepairPolicy{
		policy(corev1.NodeReady, corev1.ConditionFalse, "", notReadyToleration),
		policy(corev1.NodeReady, corev1.ConditionUnknown, anyReason, notReadyToleration),
	}
	for _, fault := range faults {
		policies = append(policies, policy(fault, corev1.ConditionTrue, anyReason, faultToleration))
	}
	return policies
}

// Reboot implements cloudprovider.CloudProvider. No policy asks for it.
func (c *CloudProvider) Reboot(context.Context, *karpv1.NodeClaim, string) error {
	return cloudprovider.NewNodeRebootNotImplementedError()
}

// recordUnhealthy writes on a Machine that is deleted because its node is unhealthy why that is, so that the manager quarantines
// the server. Otherwise Karpenter might replace a broken server by itself.
func (c *CloudProvider) recordUnhealthy(ctx context.Context, machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim) error {
	if !isRepair(nodeClaim) || machine.ReportedNode().Unhealthy != nil {
		return nil
	}
	if !options.FromContext(ctx).FeatureGates.NodeRepair {
		return nil // Karpenter repairs nothing then: the tenant has made the NodeClaim look so
	}
	node := &corev1.Node{}
	if err := c.tenant.Get(ctx, types.NamespacedName{Name: nodeClaim.Status.NodeName}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading node %s, %w", nodeClaim.Status.NodeName, err)
	}
	why := c.unhealthy(node, nodeClaim.DeletionTimestamp.Time)
	if why == nil {
		return nil
	}
	return kube.Patch(ctx, c.management.Client, machine, "recording that its node is unhealthy on", func() {
		machine.ReportNode(func(reported *v1alpha1.MachineNode) { reported.Unhealthy = why })
	})
}

// isRepair returns whether core has deleted the NodeClaim to replace an unhealthy node: then pods cannot delay it. With a
// terminationGracePeriod they have some time from the deletion on.
func isRepair(nodeClaim *karpv1.NodeClaim) bool {
	if nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Status.NodeName == "" {
		return false
	}
	end, err := time.Parse(time.RFC3339, nodeClaim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey])
	return err == nil && !end.After(nodeClaim.DeletionTimestamp.Time)
}

// unhealthy returns the condition of a node that had lasted for longer than is tolerated, nil if there was none.
func (c *CloudProvider) unhealthy(node *corev1.Node, moment time.Time) *v1alpha1.UnhealthyNode {
	for _, policy := range c.RepairPolicies() {
		for _, condition := range node.Status.Conditions {
			if condition.Type == policy.ConditionType && condition.Status == policy.ConditionStatus &&
				!condition.LastTransitionTime.Add(policy.TolerationDuration).After(moment) {
				message := []rune(condition.Message)
				return &v1alpha1.UnhealthyNode{
					Condition: string(condition.Type), Status: condition.Status, Since: condition.LastTransitionTime,
					Message: string(message[:min(len(message), v1alpha1.MaxUnhealthyMessage)]),
				}
			}
		}
	}
	return nil
}
