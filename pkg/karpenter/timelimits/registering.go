// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// Registering is for the reads of core's lifecycle controller. A NodeClaim that has been launched, has not registered, and
// has a Machine with a server gets the current time as the last transition of its condition Registered. From when the server
// has joined, core has its own 15 minutes to register it.
func Registering(clk clock.PassiveClock, machines Machines) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, nodeClaim *karpenterv1.NodeClaim, _ []client.GetOption) error {
		if !nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Status.ProviderID == "" {
			return nil
		}
		// StatusConditions would add those that are missing.
		at := slices.IndexFunc(nodeClaim.Status.Conditions, func(condition status.Condition) bool {
			return condition.Type == karpenterv1.ConditionTypeRegistered
		})
		if at < 0 || nodeClaim.Status.Conditions[at].Status == metav1.ConditionTrue {
			return nil
		}
		start, err := machines.startOfWait(ctx, nodeClaim, clk.Now())
		if err != nil {
			return err
		}
		// The object is the caller's own copy. If core writes its conditions, this time is stored, which does no harm.
		if registered := &nodeClaim.Status.Conditions[at]; start.After(registered.LastTransitionTime.Time) {
			registered.LastTransitionTime = metav1.NewTime(start)
		}
		return nil
	})
}
