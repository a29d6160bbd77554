// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

var environment env.Environment

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	env.Main(m, &environment)
}

// TestTerminateOnlyWhatIsStillDrifted: a node is given up on the word of the API servers, not on that of a cache, and an
// outage is no word.
func TestTerminateReadsLive(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*testing.T, *karpv1.NodeClaim, *v1alpha1.Machine)
		outage bool
		want   bool
	}{
		"Drifted": {reason: "it is as core has it", change: func(*testing.T, *karpv1.NodeClaim, *v1alpha1.Machine) {}, want: true},
		"TakenBack": {reason: "the type points at the old image again", change: func(t *testing.T, _ *karpv1.NodeClaim, m *v1alpha1.Machine) {
			m.Status.Conditions[0].Status = metav1.ConditionFalse
			write(t, m)
		}},
		"CannotBeInstalled": {reason: "the new image has been deleted", change: func(t *testing.T, _ *karpv1.NodeClaim, m *v1alpha1.Machine) {
			m.Status.Conditions[0].Status = metav1.ConditionUnknown
			write(t, m)
		}},
		"NoMachine": {reason: "it was deleted", change: func(t *testing.T, _ *karpv1.NodeClaim, m *v1alpha1.Machine) {
			if err := environment.Client.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}},
		"NoNodeClaim": {reason: "it was deleted meanwhile", change: func(t *testing.T, n *karpv1.NodeClaim, _ *v1alpha1.Machine) {
			if err := environment.Client.Delete(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}},
		"NotDriftedAnyMore": {reason: "core has found out meanwhile", change: func(t *testing.T, n *karpv1.NodeClaim, _ *v1alpha1.Machine) {
			if err := n.StatusConditions().Clear(karpv1.ConditionTypeDrifted); err != nil {
				t.Fatal(err)
			}
			write(t, n)
		}},
		"DoNotDisrupt": {reason: "its user wants it to stay", change: func(t *testing.T, n *karpv1.NodeClaim, _ *v1alpha1.Machine) {
			n.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
			if err := environment.Client.Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}},
		"Outage": {reason: "nothing is known", change: func(*testing.T, *karpv1.NodeClaim, *v1alpha1.Machine) {}, outage: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenanttest.TenantCluster(t, &environment)
			nodePool, nodeClaim, machine := drifted(t, cluster.Namespace, cluster.Name)
			seen := &disruption.Candidate{StateNode: &state.StateNode{NodeClaim: nodeClaim.DeepCopy(),
				Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, NodePool: nodePool}
			tc.change(t, nodeClaim, machine)
			connection := client.Client(interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					if _, is := object.(*v1alpha1.Machine); is && tc.outage {
						return errors.New("connection refused")
					}
					return c.Get(ctx, key, object, opts...)
				},
			}))
			d := Dependencies{
				Client: connection, Clusters: tenanttest.ClustersOf(cluster, connection, connection), Servers: noneFree{},
				Recorder: events.NewRecorder(record.NewFakeRecorder(10)), Clock: clock.RealClock{},
			}
			giver := terminator{Dependencies: d, replacements: newReplacements(d, nil, nil)}
			command, err := giver.terminate(t.Context(), &pool{live: nodePool.DeepCopy()}, seen, "no server is free")
			if (err != nil) != tc.outage || (command != nil) != tc.want {
				t.Fatalf("%s: the command is %v, the error %v", tc.reason, command, err)
			}
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(nodePool), nodePool); err != nil {
				t.Fatal(err)
			}
			// What is given up is noted before it is.
			noted := entriesOf(nodePool)
			if tc.want && (len(noted) != 1 || noted[0].UID != nodeClaim.UID) || !tc.want && len(noted) != 0 {
				t.Errorf("%s: the NodePool has %+v noted", tc.reason, noted)
			}
			if command != nil && len(command.Replacements) > 0 {
				t.Errorf("%s: the command has replacements", tc.reason)
			}
		})
	}
}

// TestConflictPreventsTermination: if the NodePool was changed meanwhile, no node is deleted.
func TestDeletionIsRecordedFirst(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	nodePool, nodeClaim, _ := drifted(t, cluster.Namespace, cluster.Name)
	stale := nodePool.DeepCopy()
	nodePool.Labels = map[string]string{"edited": "true"}
	if err := environment.Client.Update(t.Context(), nodePool); err != nil {
		t.Fatal(err)
	}
	d := Dependencies{
		Client: environment.Client, Clusters: tenanttest.ClustersOf(cluster, environment.Client, environment.Client), Servers: noneFree{},
		Recorder: events.NewRecorder(record.NewFakeRecorder(10)), Clock: clock.RealClock{},
	}
	giver := terminator{Dependencies: d, replacements: newReplacements(d, nil, nil)}
	candidate := &disruption.Candidate{StateNode: &state.StateNode{NodeClaim: nodeClaim}, NodePool: nodePool}
	command, err := giver.terminate(t.Context(), &pool{live: stale}, candidate, "no server is free")
	if command != nil || !apierrors.IsConflict(err) {
		t.Errorf("the command is %v, the error %v; want none and a conflict", command, err)
	}
}

// TestBudgetCountsReleasedServers: a server that is being cleaned, and one that is gone and has not come back, are missing.
func TestBudgetCountsReleasedServers(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	_, nodeClaim, _ := drifted(t, cluster.Namespace, cluster.Name)
	d := Dependencies{Client: environment.Client, Clusters: tenanttest.ClustersOf(cluster, environment.Client, environment.Client),
		Clock: clock.RealClock{}}
	giver := terminator{Dependencies: d, replacements: newReplacements(d, nil, nil)}
	counted := func() bool {
		t.Helper()
		yes, err := giver.countedByCore(t.Context(), entry{NodeClaim: nodeClaim.Name, UID: nodeClaim.UID})
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	if !counted() {
		t.Error("a node that is being drained is counted by core, and would be counted twice")
	}
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeInstanceTerminating)
	write(t, nodeClaim)
	if counted() {
		t.Error("core does not count a node whose server is being released")
	}
	if err := environment.Client.Delete(t.Context(), nodeClaim); err != nil {
		t.Fatal(err)
	}
	if counted() {
		t.Error("core does not count a node that is gone")
	}
}

// drifted makes a NodePool with a drifted NodeClaim and its Machine.
func drifted(t *testing.T, namespace, tenantCluster string) (*karpv1.NodePool, *karpv1.NodeClaim, *v1alpha1.Machine) {
	t.Helper()
	class := &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"}
	nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	nodePool.Spec.Template.Spec.NodeClassRef = class
	nodePool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	nodeClaim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{karpv1.NodePoolLabelKey: namespace}},
		Spec:       karpv1.NodeClaimSpec{NodeClassRef: class, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}},
	}
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}, Spec: v1alpha1.MachineSpec{
		NodeTypeRef: &v1alpha1.NameReference{Name: "h100"}, TenantClusterRef: &v1alpha1.NameReference{Name: tenantCluster},
	}}
	for _, object := range []client.Object{nodePool, nodeClaim, machine} {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	machine.Status.ProviderID = v1alpha1.ProviderID("metal3", "server-01", machine.Name)
	meta.SetStatusCondition(&machine.Status.Conditions,
		metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOSImageChanged})
	nodeClaim.Status.ProviderID = machine.Status.ProviderID
	nodeClaim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, v1alpha1.ReasonOSImageChanged, v1alpha1.ReasonOSImageChanged)
	write(t, nodeClaim)
	write(t, machine)
	return nodePool, nodeClaim, machine
}

func write(t *testing.T, object client.Object) {
	t.Helper()
	if err := environment.Client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}
