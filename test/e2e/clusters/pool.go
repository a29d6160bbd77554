// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// Pool is what makes servers nodes of a tenant. All three objects have the same name.
type Pool struct {
	Provider *v1alpha1.NodeProvider
	Class    *v1alpha1.MetalNodeClass
	NodePool *karpv1.NodePool
}

// NewPool returns a pool of the servers whose label group is the name. They are of one NodeType, which has that name, too, and these
// resources. Empty nodes stay.
func NewPool(name string, properties map[string]string, has corev1.ResourceList) Pool {
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: name}}
	provider.Spec.Properties = properties
	provider.Spec.Metal3.ClusterRef.Namespace = sandbox.HostNamespace
	nodeType := v1alpha1.NodeTypeTemplate{Name: name}
	nodeType.Resources = has
	nodeType.BareMetalHosts = &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": name}}}
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{nodeType}
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.ProviderRef = &v1alpha1.NameReference{Name: name}
	nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nodePool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: name}
	nodePool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: v1alpha1.NodeTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
	}
	nodePool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	nodePool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
	nodePool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	return Pool{provider, class, nodePool}
}

// AreFree returns an error unless so many servers of a NodeType are free.
func (c *Clusters) AreFree(ctx context.Context, nodeType string, servers int32) error {
	found := &v1alpha1.NodeType{}
	if err := c.Management.Get(ctx, client.ObjectKey{Name: nodeType}, found); err != nil {
		return err
	}
	if got := found.Status.Capacity.Available; got != servers {
		return fmt.Errorf("%d are", got)
	}
	return nil
}

// MakeNamespace makes a namespace of the tenant for pods, if it is not there: made says which.
func (c *Clusters) MakeNamespace(ctx context.Context, name string) (made bool, err error) {
	err = c.Tenant.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, err
	}
	// Without it the API server denies pods.
	return err == nil, poll.Await(ctx, "namespace "+name+" has its ServiceAccount", func(ctx context.Context) error {
		return c.Tenant.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// PodEvents returns the events on a pod, "REASON: MESSAGE" each, and not those on an earlier pod of its name.
func (c *Clusters) PodEvents(ctx context.Context, pod client.ObjectKey) ([]string, error) {
	found, events := &corev1.Pod{}, &corev1.EventList{}
	if err := c.Tenant.Get(ctx, pod, found); err != nil {
		return nil, err
	}
	if err := c.Tenant.List(ctx, events, client.InNamespace(pod.Namespace)); err != nil {
		return nil, err
	}
	var messages []string
	for _, event := range events.Items {
		if event.InvolvedObject.UID == found.UID {
			messages = append(messages, event.Reason+": "+event.Message)
		}
	}
	return messages, nil
}
