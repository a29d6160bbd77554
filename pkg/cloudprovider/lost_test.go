// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/garbagecollection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// losesHost is what the manager says of a Machine whose BareMetalHost was deleted.
func losesHost(machine *v1alpha1.Machine) {
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHostLost, ObservedGeneration: machine.Generation,
	})
}

// TestLostServersWithCore: Karpenter's own controller deletes the NodeClaim of a Machine that has lost its server, unless its node
// is ready, or so many servers are lost that the inventory may not be complete.
func TestLostServersWithCore(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		machines      int
		lost          int
		ready         corev1.ConditionStatus
		wantCollected bool
	}{
		"NotReady":   {"its pods would hang for ever", 1, 1, corev1.ConditionUnknown, true},
		"Ready":      {"kubelet runs, whatever the inventory says", 1, 1, corev1.ConditionTrue, false},
		"NotLost":    {"the server may be booting", 1, 0, corev1.ConditionUnknown, false},
		"Few":        {"three are few in any fleet", 3, 3, corev1.ConditionUnknown, true},
		"All":        {"all of a small fleet are too many", 4, 4, corev1.ConditionUnknown, false},
		"AFifth":     {"a fifth are few", 20, 4, corev1.ConditionUnknown, true},
		"OverAFifth": {"more than a fifth are too many", 20, 5, corev1.ConditionUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			var nodeClaim *karpv1.NodeClaim
			for i := range tc.machines {
				made := f.launched(fmt.Sprintf("gpu-%d-%s", i, f.namespace)) // NodeClaims have no namespace
				if i < tc.lost {
					f.answer(made.Name, losesHost)
				}
				if i == 0 {
					nodeClaim = made
				}
			}
			// One of them has a node.
			providerID := nodeClaim.Status.ProviderID
			nodeClaim.UID, nodeClaim.Labels = "", nil
			nodeClaim.Finalizers = []string{karpv1.TerminationFinalizer}
			f.create(nodeClaim)
			nodeClaim.Status.ProviderID = providerID
			nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			f.updateStatus(nodeClaim)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}, Spec: corev1.NodeSpec{ProviderID: providerID}}
			f.create(node)
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.ready}}
			f.updateStatus(node)
			f.eventually("the cache to have all", func() error {
				machines, lost := &v1alpha1.MachineList{}, 0
				if err := f.management.Client.List(f.ctx, machines); err != nil {
					return err
				}
				for i := range machines.Items {
					if conditions.Find(machines.Items[i].Status.Conditions, v1alpha1.ConditionReady).Reason == v1alpha1.ReasonHostLost {
						lost++
					}
					if machines.Items[i].Status.ProviderID == "" {
						return errNotSynced
					}
				}
				if len(machines.Items) != tc.machines || lost != tc.lost {
					return errNotSynced
				}
				return nil
			})

			core := garbagecollection.NewController(clock.RealClock{}, tenanttest.WithWatch(&environment), f.CloudProvider)
			if _, err := core.Reconcile(f.ctx); err != nil {
				t.Fatal(err)
			}
			if err := environment.Client.Get(f.ctx, client.ObjectKeyFromObject(nodeClaim), nodeClaim); err != nil {
				t.Fatal(err)
			}
			if collected := !nodeClaim.DeletionTimestamp.IsZero(); collected != tc.wantCollected {
				t.Errorf("%s: the NodeClaim is deleted: %v", tc.reason, collected)
			}
		})
	}
}
