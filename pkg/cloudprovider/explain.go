// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/daemonset"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Gangs explains why pods that need each other get no server. The messages are empty for other pods.
type Gangs interface {
	// Waits returns why the gang of a pod is not complete.
	Waits(pod *corev1.Pod) string
	// Shortage returns for how many pods of the gang each domain has room.
	Shortage(pod *corev1.Pod) string
}

// Checks look for why a pod gets no server although a matching server is free: the quota, recent refusals, nodes of the
// tenant that had less than their type, DaemonSets that take the room, a gang that is not complete, and a gang that
// fits into no topology domain. daemonPod returns the pod of a DaemonSet that core plans with, or nil.
func (c *CloudProvider) Checks(gangs Gangs, daemonPod func(*appsv1.DaemonSet) *corev1.Pod) []explain.Check {
	says := func(why func(*corev1.Pod) string) func(context.Context, *corev1.Pod) (string, error) {
		return func(_ context.Context, pod *corev1.Pod) (string, error) { return why(pod), nil }
	}
	return []explain.Check{
		explain.Because(explain.ReasonGangIncomplete, says(gangs.Waits)),
		explain.Because(explain.ReasonQuotaReached, c.QuotaReached),
		explain.Because(explain.ReasonServerRefused, c.refusedFor),
		explain.Because(explain.ReasonNoNodeTypeFits, c.tooSmallFor),
		explain.Because(explain.ReasonNoNodeTypeFits, func(ctx context.Context, pod *corev1.Pod) (string, error) {
			return c.daemonSetsBeside(ctx, pod, daemonPod)
		}),
		explain.Because(explain.ReasonInsufficientDomainCapacity, says(gangs.Shortage)),
	}
}

// refusedFor returns a message if every NodePool that could get a server for a pod was refused it lately, or else "".
func (c *CloudProvider) refusedFor(ctx context.Context, pod *corev1.Pod) (string, error) {
	return c.forEachFree(ctx, pod, func(s scope, instanceType *cloudprovider.InstanceType) (message string, works bool) {
		if !holds(instanceType, resources.RequestsForPods(pod)) {
			return "", false
		}
		found, refused := c.refused(s, instanceType.Name)
		if !refused {
			found, refused = c.refusals.find(poolType{s.nodePool.Name, instanceType.Name, sizeOf(pod)})
		}
		return fmt.Sprintf("NodePool %s gets no server of NodeType %s before %s: %s: %s", s.nodePool.Name, instanceType.Name,
			found.until.UTC().Format(time.RFC3339), found.reason, found.message), !refused
	})
}

// tooSmallFor returns a message if the pod fits no type as planned, or else "". Nodes that the tenant had, or the
// tolerance of memory, may make the planned size smaller than the declared size.
func (c *CloudProvider) tooSmallFor(ctx context.Context, pod *corev1.Pod) (string, error) {
	return c.forEachFree(ctx, pod, func(s scope, instanceType *cloudprovider.InstanceType) (message string, works bool) {
		if holds(instanceType, resources.RequestsForPods(pod)) {
			return "", true
		}
		had := s.catalog.OwnNodes(s.filter())(instanceType.Name)
		if had == nil {
			return memoryTolerated(s, instanceType, resources.RequestsForPods(pod)), false
		}
		var parts []string
		for _, name := range capacity.Measured() {
			if quantity, known := had[name]; known {
				parts = append(parts, fmt.Sprintf("%s %s", name, quantity.String()))
			}
		}
		return fmt.Sprintf("too small: a node of NodeType %s with MetalNodeClass %s had %s", instanceType.Name, s.class.Name,
			strings.Join(parts, ", ")), false
	})
}

// memoryTolerated returns a message if the requests would fit a type with all the memory that its NodeType declares.
func memoryTolerated(s scope, instanceType *cloudprovider.InstanceType, requests corev1.ResourceList) string {
	nodeType := s.catalog.NodeType(instanceType.Name)
	if nodeType == nil {
		return ""
	}
	planned, declared := instanceType.Allocatable(), capacity.Declared(nodeType).Resources
	if asks := requests.Memory(); asks.Cmp(*planned.Memory()) <= 0 || asks.Cmp(*declared.Memory()) > 0 {
		return ""
	}
	return fmt.Sprintf("too small: NodeType %s is planned with memory %s, which each of its servers has, until a node of it "+
		"with MetalNodeClass %s has shown more", instanceType.Name, instanceType.Capacity.Memory(), s.class.Name)
}

// daemonSetsBeside returns a message if the pod fits no type beside the DaemonSets of its nodes, or else "". Core plans
// each new node with the pods of DaemonSets.
func (c *CloudProvider) daemonSetsBeside(ctx context.Context, pod *corev1.Pod,
	daemonPod func(*appsv1.DaemonSet) *corev1.Pod) (string, error) {
	daemonSets := &appsv1.DaemonSetList{}
	if err := c.tenant.List(ctx, daemonSets); err != nil {
		return "", fmt.Errorf("listing DaemonSets, %w", err)
	}
	daemons := map[string]*corev1.Pod{}
	for i := range daemonSets.Items {
		daemonSet := &daemonSets.Items[i]
		daemon := cmp.Or(daemonPod(daemonSet), daemonset.PodForDaemonSet(daemonSet))
		daemon.Spec.Affinity = daemonSet.Spec.Template.Spec.Affinity // a pod that runs is bound to its node by its affinity
		daemons[client.ObjectKeyFromObject(daemonSet).String()] = daemon
	}
	requests := resources.RequestsForPods(pod)
	return c.forEachFree(ctx, pod, func(s scope, instanceType *cloudprovider.InstanceType) (message string, works bool) {
		if !holds(instanceType, requests) {
			return "", false
		}
		total, takes := requests, map[string]corev1.ResourceList{}
		for name, daemon := range daemons {
			fits, _ := instancetypes.PoolFits(s.nodePool, daemon, karpv1.WellKnownLabels)
			if meetsAny(instanceType, fits) {
				takes[name] = resources.RequestsForPods(daemon)
				total = resources.Merge(total, takes[name])
			}
		}
		return describeShort(instanceType, requests, total, takes), resources.Fits(total, instanceType.Allocatable())
	})
}

// describeShort lists the resources of a type that do not suffice for a pod and the DaemonSets, with their shares.
func describeShort(instanceType *cloudprovider.InstanceType, requests, total corev1.ResourceList,
	takes map[string]corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(total)) {
		has, asks, sum := instanceType.Allocatable()[name], requests[name], total[name]
		if sum.Cmp(has) <= 0 {
			continue
		}
		part := fmt.Sprintf("%s: a node has %s, the pod asks for %s", name, has.String(), asks.String())
		for _, daemonSet := range slices.Sorted(maps.Keys(takes)) {
			if takes := takes[daemonSet][name]; !takes.IsZero() {
				part += fmt.Sprintf(", DaemonSet %s takes %s", daemonSet, takes.String())
			}
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("NodeType %s is too small for the pod beside the DaemonSets: %s", instanceType.Name, strings.Join(parts, "; "))
}

// forEachFree calls why for each NodePool and type that could give the pod a free server within the quota, and joins
// the messages. It returns "" if one of them works: then Karpenter is working on it.
func (c *CloudProvider) forEachFree(ctx context.Context, pod *corev1.Pod,
	why func(scope, *cloudprovider.InstanceType) (message string, works bool)) (string, error) {
	return c.forEachInAnyQuota(ctx, pod, func(s scope, instanceType *cloudprovider.InstanceType) (message string,
		works bool) {
		if s.rest.Of(instanceType.Name) == 0 {
			return "", false
		}
		return why(s, instanceType)
	})
}

// forEachInAnyQuota is forEachFree without regard to the quota.
func (c *CloudProvider) forEachInAnyQuota(ctx context.Context, pod *corev1.Pod,
	why func(scope, *cloudprovider.InstanceType) (message string, works bool)) (string, error) {
	var messages []string
	anyWorks, err := c.anyType(ctx, pod, func(s scope, instanceType *cloudprovider.InstanceType, wanted []scheduling.Requirements) bool {
		if !instancetypes.HasFree(instanceType, wanted...) {
			return false
		}
		message, works := why(s, instanceType)
		if message != "" {
			messages = append(messages, message)
		}
		return works
	})
	if err != nil || anyWorks {
		return "", err
	}
	return conditions.Truncate(strings.Join(lo.Uniq(messages), "; "), conditions.MaxEventNote), nil
}

// anyType reports whether holds is true for any type of any NodePool that takes the pod. wanted are the alternatives
// that the pod and the NodePool require of nodes.
func (c *CloudProvider) anyType(ctx context.Context, pod *corev1.Pod,
	holds func(s scope, instanceType *cloudprovider.InstanceType, wanted []scheduling.Requirements) bool) (bool, error) {
	pools := &karpv1.NodePoolList{}
	if err := c.tenant.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing NodePools, %w", err)
	}
	for i := range pools.Items {
		wanted, unfit := instancetypes.PoolFits(&pools.Items[i], pod, karpv1.WellKnownLabels)
		if unfit != nil {
			continue
		}
		s, err := c.scopeOf(ctx, &pools.Items[i])
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, instanceType := range s.catalog.InstanceTypes(s.filter()) {
			if holds(s, instanceType, wanted) {
				return true, nil
			}
		}
	}
	return false, nil
}

// meetsAny reports whether a server of a type can meet one of the alternatives.
func meetsAny(instanceType *cloudprovider.InstanceType, alternatives []scheduling.Requirements) bool {
	return slices.ContainsFunc(alternatives, func(wanted scheduling.Requirements) bool {
		return instanceType.Requirements.Intersects(wanted) == nil
	})
}

// ByDriver reports whether DRA drivers serve the resources of DeviceClasses to a pod, that is, whether one of the types
// that the pod may get declares devices. A device plugin serves types without devices. The answer does not depend on
// free servers, because a planned pod stays planned in the same way.
func (c *CloudProvider) ByDriver(ctx context.Context, pod *corev1.Pod) (bool, error) {
	return c.anyType(ctx, pod, func(_ scope, instanceType *cloudprovider.InstanceType, wanted []scheduling.Requirements) bool {
		return len(instanceType.DynamicResources.ResourceSliceTemplates) > 0 && meetsAny(instanceType, wanted)
	})
}

// DevicesNotDeclared returns a message if a pod is planned with devices, but a free server without devices would do.
func (c *CloudProvider) DevicesNotDeclared(ctx context.Context, pod *corev1.Pod) (string, error) {
	return c.forEachInAnyQuota(ctx, pod, func(_ scope, instanceType *cloudprovider.InstanceType) (string, bool) {
		if len(instanceType.DynamicResources.ResourceSliceTemplates) > 0 || !holds(instanceType, resources.RequestsForPods(pod)) {
			return "", false
		}
		return fmt.Sprintf("NodeType %s has a free server and no devices, and the pod is planned with devices, because a DeviceClass "+
			"serves its resources and another NodeType that it may get declares devices: declare those of %s, too, or have the pod "+
			"select it by its labels", instanceType.Name, instanceType.Name), false
	})
}

// holds reports whether a server of a type has room for the requests and may serve them: a server with accelerators
// serves only pods that request them.
func holds(instanceType *cloudprovider.InstanceType, requests corev1.ResourceList) bool {
	all := instanceType.Capacity
	return resources.Fits(requests, instanceType.Allocatable()) &&
		(len(v1alpha1.Accelerators(all)) == 0 || v1alpha1.AsksForAccelerator(requests, all))
}
