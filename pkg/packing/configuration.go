// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

const (
	// DefaultWeight of packing among the scheduler's preferences. The scheduler's own are between 1 and 3. One GPU of
	// eight is 12 points of a hundred, and the scheduler's habit to spread the pods of one Deployment is worth up to
	// 200: below 20, packing would lose to it.
	DefaultWeight = 20
	// MaxWeight is the greatest weight that can be asked for: kube-scheduler adds up a hundred times the weights of all
	// its preferences, and this stays far from overflowing.
	MaxWeight = 1000

	// fit is the plugin of kube-scheduler that knows how much a node has left.
	fit = "NodeResourcesFit"
)

// DefaultResources are the accelerators of the device plugins that are in use. A name that no node has does no harm.
func DefaultResources() []corev1.ResourceName {
	return []corev1.ResourceName{
		"amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi", "nvidia.com/gpu",
	}
}

// Settings say what is packed.
type Settings struct {
	// SchedulerName is the profile that packs. Pods that name no scheduler have default-scheduler.
	SchedulerName string
	// Resources that are packed, by name; their order and repetitions do not matter. cpu and memory may be among them, and
	// then all pods are packed.
	Resources []corev1.ResourceName
	// Weight of packing among the scheduler's preferences, from 1 to MaxWeight.
	Weight int32
	// Kubeconfig is the path of the kubeconfig that the scheduler is to use. Empty: the service account of its pod.
	Kubeconfig string
}

// DefaultSettings pack DefaultResources for all pods that name no scheduler.
func DefaultSettings() Settings {
	return Settings{SchedulerName: corev1.DefaultSchedulerName, Resources: DefaultResources(), Weight: DefaultWeight}
}

// Validate returns one sentence that names the setting that is wrong.
func (s Settings) Validate() error {
	if problems := validation.IsDNS1123Subdomain(s.SchedulerName); len(problems) > 0 {
		return fmt.Errorf("the scheduler name %q is not valid (%s): use a name like %s", s.SchedulerName, strings.Join(problems, ", "), corev1.DefaultSchedulerName)
	}
	if s.Weight < 1 || s.Weight > MaxWeight {
		return fmt.Errorf("the weight of packing is %d: it must be between 1 and %d", s.Weight, MaxWeight)
	}
	if len(s.Resources) == 0 {
		return fmt.Errorf("there is no resource to pack: name one, for example %s", DefaultResources()[0])
	}
	for _, name := range s.Resources {
		if problems := validation.IsQualifiedName(string(name)); len(problems) > 0 {
			return fmt.Errorf("%q is not the name of a resource (%s): use a name like %s", name, strings.Join(problems, ", "), DefaultResources()[0])
		}
	}
	return nil
}

// Configuration returns the configuration of a scheduler that packs. The settings must be valid.
func Configuration(settings Settings) *configv1.KubeSchedulerConfiguration {
	configuration := &configv1.KubeSchedulerConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"},
		Profiles: []configv1.KubeSchedulerProfile{{
			SchedulerName: ptr.To(settings.SchedulerName),
			// Naming a default plugin replaces its weight and leaves the others as they are.
			Plugins: &configv1.Plugins{Score: configv1.PluginSet{
				Enabled: []configv1.Plugin{{Name: fit, Weight: ptr.To(settings.Weight)}},
			}},
			PluginConfig: []configv1.PluginConfig{{Name: fit, Args: runtime.RawExtension{Object: fitArgs(settings.Resources)}}},
		}},
	}
	configuration.ClientConnection.Kubeconfig = settings.Kubeconfig
	return configuration
}

// fitArgs have a node scored by how much of the resources is taken on it. The scheduler leaves out those that the pod
// does not ask for.
func fitArgs(resources []corev1.ResourceName) *configv1.NodeResourcesFitArgs {
	args := &configv1.NodeResourcesFitArgs{
		TypeMeta:        metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: fit + "Args"},
		ScoringStrategy: &configv1.ScoringStrategy{Type: configv1.MostAllocated},
	}
	for _, name := range With(resources) {
		args.ScoringStrategy.Resources = append(args.ScoringStrategy.Resources, configv1.ResourceSpec{Name: string(name), Weight: 1})
	}
	return args
}
