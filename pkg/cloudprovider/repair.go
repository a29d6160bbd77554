// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
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
	"GpuDriverWatch", "GpuThermalWatch", "GpuPowerWatch",
	// NVSentinel: syslog-health-monitor.
	"SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff",
}

// RepairPolicies are the conditions of a node for which Karpenter replaces its server, if the feature gate NodeRepair is on.
func (c *CloudProvider) RepairPolicies() []cloudprovider.RepairPolicy {
	policies := []cloudprovider.RepairPolicy{
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse, TolerationDuration: notReadyToleration},
		{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionUnknown, TolerationDuration: notReadyToleration},
	}
	for _, fault := range faults {
		policies = append(policies, cloudprovider.RepairPolicy{
			ConditionType: fault, ConditionStatus: corev1.ConditionTrue, TolerationDuration: faultToleration,
		})
	}
	return policies
}
