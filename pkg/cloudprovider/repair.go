// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

const (
	// notReadyToleration is longer than a reboot: a big server needs 15 minutes to initialize its memory.
	notReadyToleration = 30 * time.Minute
	// DefaultFaultToleration is for hardware faults. It leaves time to reset the device, and to move pods by hand.
	DefaultFaultToleration = 10 * time.Minute
)

// faults are conditions of nodes that are True while a fault makes the node useless. The conditions of
// node-problem-detector are in its default configuration. NVSentinel sets the conditions of NVIDIA GPUs, only for fatal
// faults, from the kernel log and from DCGM, which the GPU operator installs. The GPU operator by itself sets none.
var faults = []corev1.NodeConditionType{
	// node-problem-detector: kernel-monitor.json.
	"KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown",
	// NVSentinel: gpu-health-monitor.
	"GpuMemWatch", "GpuPcieWatch", "GpuInforomWatch", "GpuSmWatch", "GpuNvlinkWatch", "GpuMcuWatch", "GpuPmuWatch",
	"GpuDriverWatch", "GpuThermalWatch", "GpuPowerWatch", "GpuNvswitchFatalWatch",
	// NVSentinel: syslog-health-monitor.
	"SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff",
}

// issueReported is the condition that Machines record when a user or NVSentinel has reported an issue of the server.
const issueReported = "IssueReported"

// anyReason is an expression that matches every reason. Karpenter takes a policy without an expression for the
// fallback, and wants exactly one fallback.
const anyReason = ".*"

// DefaultRebootConditions are faults that a reset often ends: faults of the driver, of memory that is remapped when the
// GPU starts, and errors that the driver reports. A GPU off the bus, or a broken link or sensor, stays broken.
func DefaultRebootConditions() []string {
	return []string{"GpuDriverWatch", "GpuMemWatch", "SysLogsXIDError"}
}

// CheckRebootConditions returns an error that names the first condition that is not in faults.
func CheckRebootConditions(conditions []string) error {
	for _, condition := range conditions {
		if !slices.Contains(faults, corev1.NodeConditionType(condition)) {
			return fmt.Errorf("--reboot-conditions names %q: no server is rebooted for that condition; there are %v", condition, faults)
		}
	}
	return nil
}

// RepairPolicies are the node conditions that make Karpenter repair a server, if the feature gate NodeRepair is on. The
// reason of a condition does not matter, and pods do not delay the repair. For the former repair all are replacements.
func (c *CloudProvider) RepairPolicies() []cloudprovider.RepairPolicy {
	policy := func(condition corev1.NodeConditionType, status corev1.ConditionStatus, reason string, toleration time.Duration,
		action cloudprovider.RepairAction,
	) cloudprovider.RepairPolicy {
		return cloudprovider.RepairPolicy{ConditionType: condition, ConditionStatus: status, ReasonRegex: reason, TolerationDuration: toleration,
			TerminationGracePeriod: new(time.Duration), Action: action}
	}
	policies := []cloudprovider.RepairPolicy{
		policy(corev1.NodeReady, corev1.ConditionFalse, "", notReadyToleration, cloudprovider.ReplaceNode),
		policy(corev1.NodeReady, corev1.ConditionUnknown, anyReason, notReadyToleration, cloudprovider.ReplaceNode),
	}
	toleration := cmp.Or(c.options.FaultToleration, DefaultFaultToleration)
	for _, fault := range faults {
		action := cloudprovider.ReplaceNode
		if !c.options.LegacyRepair && slices.Contains(c.options.RebootConditions, string(fault)) {
			action = cloudprovider.RebootNode
		}
		policies = append(policies, policy(fault, corev1.ConditionTrue, anyReason, toleration, action))
	}
	return policies
}

// Reboot requests one reset of a NodeClaim's server for each operation. One write records the operation and the request
// on the Machine. A second call for the same operation requests nothing, even after the manager has served and removed
// the request. Reboot returns before the reset.
func (c *CloudProvider) Reboot(ctx context.Context, nodeClaim *karpv1.NodeClaim, operationID string) error {
	machine, err := c.machineOf(ctx, nodeClaim)
	switch {
	case err != nil:
		return err
	case machine.Annotations[v1alpha1.RebootOperationAnnotationKey] == operationID:
		return nil
	case !machine.DeletionTimestamp.IsZero():
		return cloudprovider.NewNodeRebootFailedError(fmt.Errorf("machine %s is being deleted", machine.Name))
	case machine.Spec.Power != nil && machine.Spec.Power.State == v1alpha1.PowerOff:
		return cloudprovider.NewNodeRebootFailedError(fmt.Errorf(
			"spec.power.state of machine %s is Off: a server that is to be off is not rebooted", machine.Name))
	}
	return kube.Patch(ctx, c.management.Client, machine, "requesting a reboot by", func() {
		// A kernel that a GPU hangs may never shut down by itself.
		machine.Annotations = lo.Assign(machine.Annotations, map[string]string{
			v1alpha1.RebootAnnotationKey: v1alpha1.RebootHard, v1alpha1.RebootOperationAnnotationKey: operationID})
	})
}

// recordUnhealthy records on a Machine why its node is unhealthy, if that is why it is deleted. The manager then
// quarantines the server. Otherwise Karpenter might replace a broken server by itself. If the API server refuses the
// record, the Machine goes without: a retry would be refused, too, and the server would never be given back.
func (c *CloudProvider) recordUnhealthy(ctx context.Context, machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim) error {
	if machine.ReportedNode().Unhealthy != nil {
		return nil
	}
	why, err := c.whyRepaired(ctx, nodeClaim, machine)
	if err != nil || why == nil {
		return err
	}
	unrecorded := machine.DeepCopy()
	err = kube.Patch(ctx, c.management.Client, machine, "recording that its node is unhealthy on", func() {
		machine.ReportNode(func(reported *v1alpha1.MachineNode) { reported.Unhealthy = why })
	})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		log.FromContext(ctx).Error(err, "the server is released without a quarantine", "why", why.String())
		*machine, err = *unrecorded, nil
	}
	return err
}

// whyRepaired returns why a NodeClaim is replaced: the issue that is reported on it, or the fault that made core delete
// it (isRepair). It returns nil for any other deletion. A reboot that is not over by then has failed, even if the node
// looked well before. A reboot that the manager has not requested says nothing of the server: then the node decides.
func (c *CloudProvider) whyRepaired(ctx context.Context, nodeClaim *karpv1.NodeClaim, machine *v1alpha1.Machine,
) (*v1alpha1.UnhealthyNode, error) {
	issue, reported := nodeClaim.Annotations[v1alpha1.ReportIssueAnnotationKey]
	if reported && !nodeClaim.DeletionTimestamp.IsZero() {
		return &v1alpha1.UnhealthyNode{Condition: issueReported, Status: corev1.ConditionTrue, Since: *nodeClaim.DeletionTimestamp,
			Message: shortened(issue)}, nil
	}
	cluster := &v1alpha1.TenantCluster{}
	found, err := kube.Find(ctx, c.management.Client, c.tenantKey(), cluster)
	if drained := found && !cluster.DeletionTimestamp.IsZero(); err != nil || drained || !isRepair(nodeClaim) {
		return nil, err
	}
	_, requested := machine.Annotations[v1alpha1.RebootAnnotationKey]
	if reboot := nodeClaim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeRebooting); reboot.IsTrue() &&
		reboot.Reason == karpv1.RebootReasonIssued && !requested {
		return &v1alpha1.UnhealthyNode{Condition: reboot.Type, Status: corev1.ConditionTrue, Since: reboot.LastTransitionTime,
			Message: shortened(reboot.Message + ", and the node has not come back")}, nil
	}
	if !options.FromContext(ctx).FeatureGates.NodeRepair {
		return nil, nil // Karpenter repairs nothing then: the tenant has made the NodeClaim look so
	}
	node := &corev1.Node{}
	if err := c.tenant.Get(ctx, types.NamespacedName{Name: nodeClaim.Status.NodeName}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading node %s, %w", nodeClaim.Status.NodeName, err)
	}
	return c.unhealthy(node, nodeClaim), nil
}

// isRepair reports whether core has deleted the NodeClaim to replace an unhealthy node. Before a repair deletes a
// NodeClaim, core sets a termination time. For any other deletion, core computes that time from the deletion and the
// NodeClaim's own terminationGracePeriod. So any other time is a repair's, whatever the clocks show.
func isRepair(nodeClaim *karpv1.NodeClaim) bool {
	if nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Status.NodeName == "" {
		return false
	}
	end, err := time.Parse(time.RFC3339, nodeClaim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey])
	period := nodeClaim.Spec.TerminationGracePeriod
	return err == nil && (period == nil || period.Duration == 0 || !end.Equal(nodeClaim.DeletionTimestamp.Add(period.Duration)))
}

// unhealthy returns the condition that made core replace a node, or nil if the node has none. Core has measured how
// long the condition lasted. With a terminationGracePeriod of 0 a repair looks like any other deletion, so only a fault
// counts: a node that is not ready may be booting.
func (c *CloudProvider) unhealthy(node *corev1.Node, nodeClaim *karpv1.NodeClaim) *v1alpha1.UnhealthyNode {
	anyDeletion := nodeClaim.Spec.TerminationGracePeriod != nil && nodeClaim.Spec.TerminationGracePeriod.Duration == 0
	var why *v1alpha1.UnhealthyNode
	var first time.Time
	for _, policy := range c.RepairPolicies() {
		for _, condition := range node.Status.Conditions {
			over := condition.LastTransitionTime.Add(policy.TolerationDuration)
			if condition.Type != policy.ConditionType || condition.Status != policy.ConditionStatus || (why != nil && !over.Before(first)) ||
				(anyDeletion && condition.Type == corev1.NodeReady) {
				continue
			}
			why, first = &v1alpha1.UnhealthyNode{Condition: string(condition.Type), Status: condition.Status,
				Since: condition.LastTransitionTime, Message: shortened(condition.Message)}, over
			if why.Since.IsZero() { // optional in Kubernetes
				why.Since = *nodeClaim.DeletionTimestamp
			}
		}
	}
	return why
}

// shortened cuts a message to the length that a Machine takes.
func shortened(message string) string {
	runes := []rune(message)
	return string(runes[:min(len(runes), v1alpha1.MaxUnhealthyMessage)])
}
