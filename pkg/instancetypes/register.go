// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Register adds labels and kinds to Karpenter's core. Pods can then select on these topology labels and properties of
// NodeTypes, and on the labels for the size of servers, without a NodePool that lists them. Core keeps them in package
// variables without a lock, so Register must run before core, and not afterwards: see UntilNewLabels. The error names
// every key that is not a label key.
func Register(labels []string) error {
	var wrong []string
	for _, key := range labels {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			wrong = append(wrong, fmt.Sprintf("%q (%s)", key, strings.Join(problems, ", ")))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("not usable as label keys: %s", strings.Join(wrong, "; "))
	}
	// Core looks the group and kind of the NodeClass up in client-go's scheme.
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return fmt.Errorf("adding our kinds to client-go's scheme, %w", err)
	}
	cloudprovider.ReservationIDLabel = v1alpha1.ReservationIDLabelKey
	cloudprovider.ReservedCapacityLabels.Insert(v1alpha1.ReservationIDLabelKey)
	karpv1.WellKnownLabels.Insert(v1alpha1.ReservationIDLabelKey)
	karpv1.WellKnownLabels.Insert(v1alpha1.Spellings(v1alpha1.NodeTypeLabelKey)...)
	karpv1.WellKnownLabels.Insert(v1alpha1.InstanceLabelKeys()...)
	// Nearly all NodeTypes have it, and the first ones may come while the program runs.
	karpv1.WellKnownLabels.Insert(v1alpha1.Spellings(v1alpha1.PropertyOSImage)...)
	for _, key := range labels {
		if Selectable(key) {
			karpv1.WellKnownLabels.Insert(v1alpha1.Spellings(key)...)
		}
	}
	return nil
}

// newLabelsPeriod is how often the labels of NodeTypes are compared with the labels that core knows. It is also the
// least time between two restarts of a provider for them.
const newLabelsPeriod = 15 * time.Minute

// UntilNewLabels returns an error once NodeTypes have labels that Register was not given, and nil when the context
// ends. The error ends the program. After its restart, pods can select on the new labels.
func (c *Catalog) UntilNewLabels(ctx context.Context, clk clock.Clock) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-clk.After(newLabelsPeriod):
		}
		var added []string
		for key := range c.read().keys {
			// Register would refuse others.
			if !karpv1.WellKnownLabels.Has(key) && len(validation.IsQualifiedName(key)) == 0 {
				added = append(added, key)
			}
		}
		if len(added) > 0 {
			slices.Sort(added)
			return fmt.Errorf("NodeTypes have got labels since this program has started (%s): the next start lets pods select on them",
				strings.Join(added, ", "))
		}
	}
}

// Selectable reports whether tenants select servers by a label that a NodeType advertises. They do not by Karpenter's
// own labels, or by labels from the settings of this provider.
func Selectable(key string) bool {
	return !v1alpha1.InDomain(key, "karpenter.sh") && key != v1alpha1.AcceleratedLabelKey && key != v1alpha1.ReservationIDLabelKey
}

// wellKnown returns the keys that every instance type must have a requirement for: without one, core accepts any value.
// The label of the NodePool is core's own.
func wellKnown() []string {
	return sets.List(karpv1.WellKnownLabels.Difference(sets.New(karpv1.NodePoolLabelKey)))
}

// DefaultPods is the number of pods on a node if its NodeType does not say so: kubelet's own default.
const DefaultPods = 110
