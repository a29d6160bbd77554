// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices knows which device classes a tenant may see and ask for, as functions of values.
package policy

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Policy says which device classes of the host one tenant may see and ask for.
type Policy struct {
	enabled  bool
	selector labels.Selector
	hidden   []v1alpha1.DeviceClassPart
}

// NewPolicy returns the policy of a tenant's settings, or an error if the selector does not parse.
func NewPolicy(sync *v1alpha1.DeviceClassSync) (Policy, error) {
	policy := Policy{enabled: sync.Enabled, selector: labels.Everything(), hidden: sync.Hidden}
	if sync.Selector == nil {
		return policy, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(sync.Selector)
	if err != nil {
		return Policy{}, fmt.Errorf("the selector in spec.sync.fromHost.deviceClasses.selector does not parse, correct it: %w", err)
	}
	policy.selector = selector
	return policy, nil
}

// Enabled tells whether the classes are synced. If not, no class is allowed, and none is deleted.
func (p Policy) Enabled() bool { return p.enabled }

// Allows tells whether the tenant may see and ask for a class of the host. A class that does not exist, which is nil, or
// is being deleted is not allowed.
func (p Policy) Allows(class *resourcev1.DeviceClass) bool {
	return p.enabled && class != nil && class.DeletionTimestamp.IsZero() && p.selector.Matches(labels.Set(class.Labels))
}

// Hides tells whether the tenant does not see a part of the classes.
func (p Policy) Hides(part v1alpha1.DeviceClassPart) bool {
	return slices.Contains(p.hidden, part)
}

// String describes the policy in messages to the tenant.
func (p Policy) String() string {
	switch {
	case !p.enabled:
		return "sync.fromHost.deviceClasses is not enabled"
	case p.selector.Empty():
		return "every DeviceClass of the host is allowed"
	default:
		return fmt.Sprintf("DeviceClasses of the host that match %q are allowed", p.selector)
	}
}
