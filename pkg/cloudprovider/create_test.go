// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestCreate(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeClaim := f.nodeClaim("gpu-1")
	var asked *v1alpha1.Machine
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.answer(nodeClaim.Name, func(machine *v1alpha1.Machine) {
			asked = machine.DeepCopy()
			f.claims(machine)
		})
	}()
	created, err := f.Create(f.ctx, nodeClaim)
	<-answered
	if err != nil {
		t.Fatal(err)
	}
	wantSpec := v1alpha1.MachineSpec{
		Requirements: []corev1.NodeSelectorRequirement{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn,
			Values: []string{f.nodeType}}},
		Resources:        env.Resources("nvidia.com/gpu", "1"),
		Properties:       map[string]string{v1alpha1.PropertyOSImage: "ubuntu"},
		TenantClusterRef: &v1alpha1.NameReference{Name: "tenant"},
		Taints:           []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}, karpv1.UnregisteredNoExecuteTaint},
		Labels:           map[string]string{karpv1.NodePoolLabelKey: "gpu", "team": "vision"},
		KubeletArgs:      v1alpha1.KubeletArgs{"max-pods": "200"},
	}
	if diff := cmp.Diff(wantSpec, asked.Spec); diff != "" {
		t.Errorf("spec of the machine (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{v1alpha1.NodeClaimLabelKey: "gpu-1", karpv1.NodePoolLabelKey: "gpu"},
		asked.Labels); diff != "" {
		t.Errorf("labels of the machine (-want +got):\n%s", diff)
	}
	wantLabels := map[string]string{
		corev1.LabelInstanceTypeStable: f.nodeType, v1alpha1.NodeTypeLabelKey: f.nodeType, corev1.LabelTopologyZone: "dc1", "rack": "r1",
		karpv1.CapacityTypeLabelKey: "reserved", v1alpha1.ReservationIDLabelKey: f.nodeType, karpv1.NodePoolLabelKey: "gpu",
		v1alpha1.ReferenceKey(v1alpha1.NodeTypeLabelKey): f.nodeType,
	}
	if diff := cmp.Diff(wantLabels, created.Labels); diff != "" {
		t.Errorf("labels of the NodeClaim (-want +got):\n%s", diff)
	}
	wantStatus := karpv1.NodeClaimStatus{
		ProviderID:  "metal3://metal3/a100-01/gpu-1",
		Capacity:    env.Resources("cpu", "64", "memory", "508559Mi", "nvidia.com/gpu", "4", "pods", "200", "ephemeral-storage", "20Gi"),
		Allocatable: env.Resources("cpu", "63", "memory", "508459Mi", "nvidia.com/gpu", "4", "pods", "200", "ephemeral-storage", "18431Mi"),
	}
	if diff := cmp.Diff(wantStatus, created.Status); diff != "" {
		t.Errorf("status of the NodeClaim (-want +got):\n%s", diff)
	}
	f.wantEvent(reasonServerClaimed, f.nodeType, "41741", "metal3/a100-01")
}

func TestCreateAfterACrash(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	nodeClaim := f.nodeClaim("gpu-1")
	// The first provider dies once the Machine is there, before the manager has answered.
	dying, die := context.WithCancel(f.ctx)
	first := make(chan error, 1)
	go func() {
		_, err := f.Create(dying, nodeClaim)
		first <- err
	}()
	machine := &v1alpha1.Machine{}
	key := types.NamespacedName{Namespace: f.namespace, Name: nodeClaim.Name}
	f.eventually("the machine", func() error { return environment.Client.Get(f.ctx, key, machine) })
	die()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("the first call returned %v", err)
	}
	f.answer(nodeClaim.Name, f.claims)
	created, err := f.Create(f.ctx, nodeClaim)
	if err != nil {
		t.Fatal(err)
	}
	if want := "metal3://metal3/a100-01/gpu-1"; created.Status.ProviderID != want {
		t.Errorf("provider ID %q, want %q", created.Status.ProviderID, want)
	}
	machines := &v1alpha1.MachineList{}
	if err := environment.Client.List(f.ctx, machines, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(machines.Items) != 1 || machines.Items[0].UID != machine.UID {
		t.Errorf("%d machines, the first with UID %s; want the one with UID %s", len(machines.Items), machines.Items[0].UID, machine.UID)
	}
}

func TestCreateRefused(t *testing.T) {
	counts := "no server available: a100: 2 match, 2 claimed, 0 in error"
	for name, tc := range map[string]struct {
		reason  string
		answer  string
		want    func(error) bool
		wantMsg string
	}{
		"no capacity": {
			reason: "core must give up the NodeClaim, and its pods must learn how many servers there are",
			answer: v1alpha1.ReasonNoCapacity, want: cloudprovider.IsInsufficientCapacityError, wantMsg: counts,
		},
		"no type": {
			reason: "core chose from an older list of types and must choose again",
			answer: v1alpha1.ReasonNoMatchingType, want: cloudprovider.IsInsufficientCapacityError, wantMsg: counts,
		},
		"invalid": {
			reason: "a NodeClaim without provider ID holds up all others of the tenant, so it must go; the event stays",
			answer: v1alpha1.ReasonInvalidSpec, want: cloudprovider.IsInsufficientCapacityError, wantMsg: counts,
		},
		"not allowed": {
			reason: "as above",
			answer: v1alpha1.ReasonNotAllowed, want: cloudprovider.IsInsufficientCapacityError, wantMsg: counts,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			nodeClaim := f.nodeClaim("gpu-1")
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				f.answer(nodeClaim.Name, refuses(tc.answer, counts))
			}()
			_, err := f.Create(f.ctx, nodeClaim)
			<-answered
			if !tc.want(err) {
				t.Errorf("got %T: %v; %s", err, err, tc.reason)
			} else if !strings.Contains(err.Error(), tc.wantMsg) {
				t.Errorf("%q does not contain %q; %s", err, tc.wantMsg, tc.reason)
			}
			f.machineGone(nodeClaim.Name)
		})
	}
}

// TestCreateUnknownType: the NodeType of the server was deleted meanwhile. The server must not stay with a NodeClaim that core gives up.
func TestCreateUnknownType(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Machine){
		"type gone": func(machine *v1alpha1.Machine) { machine.Status.NodeTypeRef.Name = "gone" },
		"no type":   func(machine *v1alpha1.Machine) { machine.Status.NodeTypeRef = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				f.answer("gpu-1", func(machine *v1alpha1.Machine) {
					f.claims(machine)
					change(machine)
				})
			}()
			_, err := f.Create(f.ctx, f.nodeClaim("gpu-1"))
			<-answered
			if !cloudprovider.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), reasonUnknownType) {
				t.Errorf("got %T: %v; while the NodeClaim stays, core makes none for any pod of the tenant", err, err)
			}
			f.machineGone("gpu-1")
		})
	}
}

// The manager finds a server between its refusal and our withdrawal: what counts is the Machine as it is.
func TestCreateKeepsALateServer(t *testing.T) {
	var f *fixture
	var deletes atomic.Int32
	f = newFixture(t, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if deletes.Add(1) == 1 {
				f.answer(object.GetName(), f.claims)
			}
			return c.Delete(ctx, object, opts...)
		},
	})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.answer("gpu-1", refuses(v1alpha1.ReasonNoCapacity, "2 match, 2 claimed, 0 in error"))
	}()
	created, err := f.Create(f.ctx, f.nodeClaim("gpu-1"))
	<-answered
	if err != nil {
		t.Fatal(err)
	}
	if want := "metal3://metal3/a100-01/gpu-1"; created.Status.ProviderID != want {
		t.Errorf("provider ID %q, want %q", created.Status.ProviderID, want)
	}
}

func TestCreateErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		down      bool
		prepare   func(*fixture, *karpv1.NodeClaim)
		want      func(error) bool
		wantMsg   string
		noMachine bool
	}{
		"management cluster down": {
			reason: "nothing is known, so the NodeClaim must stay",
			down:   true, want: createErrorWith(reasonManagementUnavailable), wantMsg: "connection refused", noMachine: true,
		},
		"class not ready": {
			reason:  "no server may be claimed that cannot be installed",
			prepare: func(f *fixture, _ *karpv1.NodeClaim) { f.setReady(metav1.ConditionFalse) },
			want:    cloudprovider.IsNodeClassNotReadyError, wantMsg: "the image is missing", noMachine: true,
		},
		"class not ready, and the cache is behind": {
			reason: "it may have the NodeClaim, and the class as it was before",
			prepare: func(f *fixture, _ *karpv1.NodeClaim) {
				before := f.class.DeepCopy()
				f.setReady(metav1.ConditionFalse)
				f.tenant = interceptor.NewClient(environment.Client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
					key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if class, is := object.(*v1alpha1.MetalNodeClass); is {
						before.DeepCopyInto(class)
						return nil
					}
					return c.Get(ctx, key, object, options...)
				}})
			},
			want: cloudprovider.IsNodeClassNotReadyError, wantMsg: "the image is missing", noMachine: true,
		},
		"class not looked at": {
			reason:  "it may be ready in a moment",
			prepare: func(f *fixture, _ *karpv1.NodeClaim) { f.setReady(metav1.ConditionUnknown) },
			want:    createErrorWith(reasonNodeClassUnknown), wantMsg: "not known yet", noMachine: true,
		},
		"class missing": {
			reason:  "the pods must be scheduled again, perhaps by another pool",
			prepare: func(_ *fixture, nodeClaim *karpv1.NodeClaim) { nodeClaim.Spec.NodeClassRef.Name = "missing" },
			want:    cloudprovider.IsNodeClassNotReadyError, wantMsg: "missing does not exist", noMachine: true,
		},
		"machine of another NodeClaim": {
			reason: "the next NodeClaim has another name",
			prepare: func(f *fixture, nodeClaim *karpv1.NodeClaim) {
				other := nodeClaim.DeepCopy()
				other.UID = "another"
				f.create(machineFor(other, f.class, nil, func(string) bool { return true }, f.options))
			},
			want: cloudprovider.IsInsufficientCapacityError, wantMsg: "MachineNameTaken: machine",
		},
		"machine on its way out": {
			reason: "its server may be cleaned for an hour, and the next NodeClaim has another name",
			prepare: func(f *fixture, nodeClaim *karpv1.NodeClaim) {
				f.delete(f.finalized(nodeClaim))
				f.eventually("the cache knows of the deletion", func() error {
					machine := &v1alpha1.Machine{}
					err := f.management.Client.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: nodeClaim.Name}, machine)
					if err == nil && machine.DeletionTimestamp.IsZero() {
						err = errNotSynced
					}
					return err
				})
			},
			want: cloudprovider.IsInsufficientCapacityError, wantMsg: "MachineDeleted: machine gpu-1 is being deleted",
		},
		"machine on its way out, and the cache is behind": {
			reason: "the deletion comes while the NodeClaim waits for the manager",
			prepare: func(f *fixture, nodeClaim *karpv1.NodeClaim) {
				old := f.finalized(nodeClaim)
				f.eventually("the cache has the Machine", func() error {
					return f.management.Client.Get(f.ctx, client.ObjectKeyFromObject(old), &v1alpha1.Machine{})
				})
				deleted := make(chan struct{})
				f.t.Cleanup(func() { <-deleted })
				go func() {
					defer close(deleted)
					f.eventually("the NodeClaim waits", func() error {
						f.management.machines.mu.Lock()
						defer f.management.machines.mu.Unlock()
						if len(f.management.machines.waiting[old.Name]) == 0 {
							return errors.New("nothing waits for the Machine")
						}
						return nil
					})
					f.delete(old)
				}()
			},
			want: cloudprovider.IsInsufficientCapacityError, wantMsg: "MachineDeleted: machine gpu-1 is being deleted",
		},
		"manager does not answer": {
			reason:  "the NodeClaim must say where it hangs, and be tried again",
			prepare: func(f *fixture, _ *karpv1.NodeClaim) { f.options.ClaimTimeout = 50 * time.Millisecond },
			want:    createErrorWith(reasonWaitingForManager), wantMsg: "check that karpenter-metal3-manager runs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var down atomic.Bool
			f := newFixture(t, unreachable(down.Load))
			nodeClaim := f.nodeClaim("gpu-1")
			if tc.prepare != nil {
				tc.prepare(f, nodeClaim)
			}
			down.Store(tc.down)
			_, err := f.Create(f.ctx, nodeClaim)
			if err == nil || !tc.want(err) {
				t.Errorf("got %T: %v; %s", err, err, tc.reason)
			} else if !strings.Contains(err.Error(), tc.wantMsg) {
				t.Errorf("%q does not contain %q; %s", err, tc.wantMsg, tc.reason)
			}
			if tc.noMachine {
				f.machineGone(nodeClaim.Name)
			}
		})
	}
}

// TestGangThatStaysIncomplete: a Machine waits for the others of its gang, and not for ever: while a NodeClaim has no server, core makes
// none for any pod.
func TestGangThatStaysIncomplete(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	clk := clocktesting.NewFakeClock(time.Now())
	f.refusals, f.options.ClaimTimeout = newRefusals(clk), 50*time.Millisecond
	nodeClaim := f.nodeClaim("gpu-1")
	nodeClaim.Annotations = map[string]string{v1alpha1.GangsAnnotationKey: `[{"name":"default/Job train","minCount":5}]`}
	wait := func(waited time.Duration) {
		t.Helper()
		clk.Step(waited)
		if _, err := f.Create(f.ctx, nodeClaim); !createErrorWith(reasonWaitingForManager)(err) {
			t.Fatalf("after %v: %v", waited, err)
		}
	}
	wait(0)
	f.answer(nodeClaim.Name, refuses(v1alpha1.ReasonGangIncomplete, "1 of the 5 Machines exist"))
	f.eventually("the cache has the answer", func() error {
		machine := &v1alpha1.Machine{}
		err := f.management.Client.Get(f.ctx, f.machineKey(nodeClaim.Name), machine)
		if err == nil && len(machine.Status.Conditions) == 0 {
			err = errNotSynced
		}
		return err
	})
	wait(0) // it waits since the answer
	wait(gangPeriod / 2)
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(f.ctx, f.machineKey(nodeClaim.Name), machine); err != nil {
		t.Fatal(err)
	}
	if want := (v1alpha1.MachineGang{Name: "default/Job train", MinCount: 5}); machine.Spec.Gang == nil || *machine.Spec.Gang != want {
		t.Errorf("gang %v, want %v", machine.Spec.Gang, want)
	}
	clk.Step(gangPeriod / 2)
	if _, err := f.Create(f.ctx, nodeClaim); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("after %v: %v", gangPeriod, err)
	}
	f.machineGone(nodeClaim.Name)
}

// finalized is a Machine of an earlier try of the NodeClaim, which stays when it is deleted.
func (f *fixture) finalized(nodeClaim *karpv1.NodeClaim) *v1alpha1.Machine {
	machine := machineFor(nodeClaim, f.class, nil, func(string) bool { return true }, f.options)
	machine.Finalizers = []string{v1alpha1.MachineFinalizer}
	f.create(machine)
	return machine
}

func (f *fixture) delete(object client.Object) {
	if err := environment.Client.Delete(f.ctx, object); err != nil {
		f.t.Errorf("deleting %T, %v", object, err)
	}
}

// What the management cluster does not admit is refused like what the manager refuses: no other pod waits for it.
func TestCreateNotAdmitted(t *testing.T) {
	machines := schema.GroupResource{Group: v1alpha1.Group, Resource: "machines"}
	terminating := apierrors.NewForbidden(machines, "gpu-1", errors.New("unable to create new content: it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		reason string
		denied error
		// event of the provider, besides core's.
		event string
	}{
		"webhook": {
			reason: "our webhook compares with the quota, too",
			denied: apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: "Machine"}, "gpu-1", field.ErrorList{
				field.Forbidden(field.NewPath("spec"), "TenantCluster a/a has 2 servers and its spec.quota.servers is 2")}),
			event: reasonServerRefused,
		},
		"ResourceQuota or policy engine": {
			reason: "it denies every Machine, so no pod of the tenant may wait for this one",
			denied: apierrors.NewForbidden(machines, "gpu-1", errors.New("exceeded quota: machines")),
			event:  reasonServerRefused,
		},
		"namespace being deleted": {
			reason: "the tenant gets no more servers, as the manager would say",
			denied: terminating,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
					if _, ok := object.(*v1alpha1.Machine); ok {
						return tc.denied
					}
					return c.Create(ctx, object, opts...)
				},
			})
			_, err := f.Create(f.ctx, f.nodeClaim("gpu-1"))
			if !cloudprovider.IsInsufficientCapacityError(err) || !strings.Contains(err.Error(), tc.denied.Error()) {
				t.Errorf("got %T: %v; %s", err, err, tc.reason)
			}
			f.machineGone("gpu-1")
			if tc.event != "" {
				f.wantEvent(tc.event, tc.denied.Error())
			}
		})
	}
}

// An API server that has just started denies every request until it has read its RBAC rules. A NodeClaim that was refused for that
// would be deleted after each outage.
func TestCreateUnauthorized(t *testing.T) {
	machines := schema.GroupResource{Group: v1alpha1.Group, Resource: "machines"}
	f := newFixture(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if _, ok := object.(*v1alpha1.Machine); ok {
				return apierrors.NewForbidden(machines, "", errors.New(`User "provider" cannot create resource "machines"`))
			}
			return c.Create(ctx, object, opts...)
		},
	})
	if _, err := f.Create(f.ctx, f.nodeClaim("gpu-1")); !createErrorWith(reasonManagementUnavailable)(err) {
		t.Errorf("got %T: %v", err, err)
	}
}

func createErrorWith(reason string) func(error) bool {
	return func(err error) bool {
		var createError *cloudprovider.CreateError
		return errors.As(err, &createError) && createError.ConditionReason == reason && !cloudprovider.IsInsufficientCapacityError(err)
	}
}
