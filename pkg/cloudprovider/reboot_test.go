// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/node/termination/terminator"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/reboot"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestRebootPolicies: core accepts each set of conditions that the flag does, and reboots for those alone.
func TestRebootPolicies(t *testing.T) {
	now := time.Now()
	sick := func(conditions ...corev1.NodeConditionType) []corev1.NodeCondition {
		var all []corev1.NodeCondition
		for _, condition := range conditions {
			all = append(all, corev1.NodeCondition{Type: condition, Status: corev1.ConditionTrue, Reason: string(condition) + "IsNotHealthy",
				LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
		}
		return all
	}
	notReady := sick(corev1.NodeReady)
	notReady[0].Status = corev1.ConditionUnknown
	everything := make([]string, len(faults))
	for i, fault := range faults {
		everything[i] = string(fault)
	}
	for name, tc := range map[string]struct {
		reason     string
		conditions []string
		node       []corev1.NodeCondition
		want       cloudprovider.RepairAction
	}{
		"Driver": {"a reset loads it again", DefaultRebootConditions(), sick("GpuDriverWatch"), cloudprovider.RebootNode},
		"Memory": {"rows are remapped when the GPU starts", DefaultRebootConditions(), sick("GpuMemWatch"), cloudprovider.RebootNode},
		"XID":    {"most are over after a reset", DefaultRebootConditions(), sick("SysLogsXIDError"), cloudprovider.RebootNode},
		"Bus":    {"a GPU that is gone is gone", DefaultRebootConditions(), sick("SysLogsGPUFallenOff"), cloudprovider.ReplaceNode},
		"Switch": {"a broken link stays broken", DefaultRebootConditions(), sick("GpuNvswitchFatalWatch"), cloudprovider.ReplaceNode},
		"XIDAndBus": {"one fault that no reboot ends is enough", DefaultRebootConditions(), sick("SysLogsXIDError", "SysLogsGPUFallenOff"),
			cloudprovider.ReplaceNode},
		"NotReady": {"core wants the fallback to replace", everything, notReady, cloudprovider.ReplaceNode},
		"None":     {"the platform team wants no reboots", nil, sick("GpuDriverWatch"), cloudprovider.ReplaceNode},
		"Other":    {"the platform team knows better", []string{"SysLogsGPUFallenOff"}, sick("SysLogsGPUFallenOff"), cloudprovider.RebootNode},
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckRebootConditions(tc.conditions); err != nil {
				t.Fatal(err)
			}
			ctx := (&options.Options{FeatureGates: options.FeatureGates{NodeRepair: true}}).ToContext(t.Context())
			matcher, err := health.NewRepairPolicyMatcher(ctx, &CloudProvider{options: Options{RebootConditions: tc.conditions}})
			if err != nil {
				t.Fatalf("%s: the provider would not start, %v", tc.reason, err)
			}
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: tc.node}}
			if got := health.Resolve(matcher.Match(node), now, time.Time{}).Action; got != tc.want {
				t.Errorf("%s: core does %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
	for _, wrong := range []string{"Ready", "", "GpuCpusetWatch", "gpudriverwatch"} {
		err := CheckRebootConditions([]string{"GpuMemWatch", wrong})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("--reboot-conditions names %q", wrong)) ||
			!strings.Contains(err.Error(), "SysLogsXIDError") {
			t.Errorf("of %q it says %v, want the flag, the value and what there is", wrong, err)
		}
	}
}

// serveReboot plays the manager: it serves the request on a Machine, and returns whether there was one.
func (f *fixture) serveReboot(name string) bool {
	f.t.Helper()
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(f.ctx, f.machineKey(name), machine); err != nil {
		f.t.Fatal(err)
	}
	kind, requested := machine.Annotations[v1alpha1.RebootAnnotationKey]
	if !requested {
		return false
	}
	if kind != v1alpha1.RebootHard {
		f.t.Errorf("a reboot of kind %q is requested, want a hard one", kind)
	}
	delete(machine.Annotations, v1alpha1.RebootAnnotationKey)
	if err := environment.Client.Update(f.ctx, machine); err != nil {
		f.t.Fatal(err)
	}
	return true
}

// rebootAgain has a server rebooted for two operations, asking again as core does, also after it was done.
func rebootAgain(t *testing.T, c *connection) {
	t.Helper()
	f := newFixture(t, c.funcs())
	nodeClaim := f.launched("gpu-1")
	if c.calls != 0 {
		t.Fatalf("%d calls before the first reboot", c.calls)
	}
	for _, operation := range []string{"first", "second"} {
		served := 0
		for done := 0; done < 2; {
			if err := f.Reboot(f.ctx, nodeClaim, operation); err == nil {
				done++
			} else if apierrors.IsTimeout(err) {
				c.restart()
			} else {
				t.Fatal(err)
			}
			if f.serveReboot(nodeClaim.Name) {
				served++
			}
		}
		if served != 1 {
			t.Errorf("operation %s: the manager was asked for %d reboots, want one", operation, served)
		}
	}
}

// TestRebootWithFaultAtEveryCall: whatever happens to whichever call, a server is rebooted once for each operation.
func TestRebootWithFaultAtEveryCall(t *testing.T) {
	undisturbed := &connection{}
	rebootAgain(t, undisturbed)
	if undisturbed.calls != 6 {
		t.Fatalf("two reboots, each asked for twice, have %d calls, want 4 reads and 2 writes; the test does not see them", undisturbed.calls)
	}
	for _, kind := range []mishap{refusedCall, lostAnswer, diesBefore, diesAfter} {
		for call := 1; call <= undisturbed.calls; call++ {
			t.Run(fmt.Sprintf("%s/Call%d", kind, call), func(t *testing.T) {
				rebootAgain(t, &connection{kind: kind, failAt: call})
			})
		}
	}
}

// TestRebootRefused: what no attempt can bring about is said at once, so that core replaces the node.
func TestRebootRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*fixture, *karpv1.NodeClaim, *v1alpha1.Machine)
		is     func(error) bool
		want   string
	}{
		"Off": {reason: "the manager keeps it off", is: cloudprovider.IsNodeRebootFailedError, want: "spec.power.state of machine gpu-1 is Off",
			change: func(f *fixture, _ *karpv1.NodeClaim, machine *v1alpha1.Machine) {
				machine.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
				f.update(machine)
			}},
		"Released": {reason: "it goes back to the pool", is: cloudprovider.IsNodeRebootFailedError, want: "machine gpu-1 is being deleted",
			change: func(f *fixture, _ *karpv1.NodeClaim, machine *v1alpha1.Machine) {
				machine.Finalizers = []string{"example.com/held"}
				f.update(machine)
				if err := environment.Client.Delete(f.ctx, machine); err != nil {
					f.t.Fatal(err)
				}
			}},
		"OfAnother": {reason: "its server is another NodeClaim's by now", is: cloudprovider.IsNodeClaimNotFoundError,
			want: "machine gpu-1 belongs to another NodeClaim",
			change: func(_ *fixture, nodeClaim *karpv1.NodeClaim, _ *v1alpha1.Machine) {
				nodeClaim.UID, nodeClaim.Status.ProviderID = "another", v1alpha1.ProviderID("metal3", "a100-02", "gpu-1")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			nodeClaim, machine := f.launched("gpu-1"), &v1alpha1.Machine{}
			if err := environment.Client.Get(f.ctx, f.machineKey("gpu-1"), machine); err != nil {
				t.Fatal(err)
			}
			tc.change(f, nodeClaim, machine)
			if err := f.Reboot(f.ctx, nodeClaim, "operation"); !tc.is(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: the error is %T, %v; want %q", tc.reason, err, err, tc.want)
			}
			if f.serveReboot("gpu-1") {
				t.Errorf("%s: the server is rebooted", tc.reason)
			}
		})
	}
}

func (f *fixture) update(object client.Object) {
	f.t.Helper()
	if err := environment.Client.Update(f.ctx, object); err != nil {
		f.t.Fatal(err)
	}
}

// TestRebootWithCore: core's own controller has the server reset once, and either the node comes back, or core deletes the NodeClaim and
// the Machine says why, so that the server is quarantined. The test moves its clock.
func TestRebootWithCore(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		back   bool
		// paused is true if the manager does not serve the request, because Metal3 does nothing on the server.
		paused bool
		want   string
	}{
		"Back":   {reason: "the node has booted and is ready", back: true},
		"Gone":   {reason: "it does not come back, and no condition of the node has lasted for long", want: "Rebooting is True since"},
		"Paused": {reason: "it was not rebooted, and its node is well", paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			ctx := (&options.Options{FeatureGates: options.FeatureGates{NodeRepair: true}}).ToContext(f.ctx)
			clock := testclock.NewFakeClock(time.Now())
			nodeClaim, node := f.sickNode()
			nodeClaim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeRebooting, karpv1.RebootReasonRequested,
				"rebooting for GpuMemWatch/GpuMemWatchIsNotHealthy")
			f.updateStatus(nodeClaim)
			tenant, recorder := byProviderID(t), events.NewRecorder(f.events)
			core := reboot.NewController(clock, tenant, f.CloudProvider,
				terminator.NewTerminator(clock, tenant, terminator.NewQueue(clock, tenant, recorder), recorder), recorder)
			resets := 0
			reconcile := func() {
				t.Helper()
				f.read(nodeClaim)
				if _, err := core.Reconcile(ctx, nodeClaim); err != nil {
					t.Fatal(err)
				}
				if tc.paused || f.serveReboot(nodeClaim.Name) {
					resets++
				}
				f.read(nodeClaim)
			}
			reconcile()
			reconcile()
			if tc.back {
				f.read(node)
				node.Status.NodeInfo.BootID = "second"
				f.updateStatus(node)
			} else {
				clock.Step(21 * time.Minute) // longer than core waits for a boot
			}
			reconcile()
			if resets != 1 && !tc.paused {
				t.Errorf("%s: the server was reset %d times, want once", tc.reason, resets)
			}
			if over := nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRebooting).IsFalse(); over != tc.back ||
				nodeClaim.DeletionTimestamp.IsZero() != tc.back {
				t.Fatalf("%s: the reboot has succeeded: %v, deleted %v; want %v", tc.reason, over, nodeClaim.DeletionTimestamp, tc.back)
			}
			if tc.back {
				return
			}
			if err := f.Delete(ctx, nodeClaim); err != nil {
				t.Fatal(err)
			}
			machine := &v1alpha1.Machine{}
			if err := environment.Client.Get(f.ctx, f.machineKey(nodeClaim.Name), machine); err != nil {
				t.Fatal(err)
			}
			why := machine.ReportedNode().Unhealthy
			if tc.want == "" {
				if why != nil {
					t.Errorf("%s: the Machine says %v", tc.reason, why)
				}
				return
			}
			if why == nil || !strings.HasPrefix(why.String(), tc.want) ||
				!strings.HasSuffix(why.Message, "rebooting for GpuMemWatch/GpuMemWatchIsNotHealthy, and the node has not come back") {
				t.Errorf("%s: the Machine says %v, want %q", tc.reason, why, tc.want)
			}
		})
	}
}

// read reads an object again, past the cache.
func (f *fixture) read(object client.Object) {
	f.t.Helper()
	key := client.ObjectKeyFromObject(object)
	reflect.ValueOf(object).Elem().SetZero()
	if err := environment.Client.Get(f.ctx, key, object); err != nil {
		f.t.Fatal(err)
	}
}

// sickNode is a NodeClaim and its node, both in the API server.
func (f *fixture) sickNode() (*karpv1.NodeClaim, *corev1.Node) { return f.sickNodeWith(nil) }

func (f *fixture) sickNodeWith(period *time.Duration) (*karpv1.NodeClaim, *corev1.Node) {
	f.t.Helper()
	nodeClaim := f.launched("gpu-" + f.namespace)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}, Spec: corev1.NodeSpec{ProviderID: nodeClaim.Status.ProviderID}}
	f.create(node)
	node.Status.NodeInfo.BootID = "first"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	f.updateStatus(node)
	status := nodeClaim.Status
	status.NodeName = node.Name
	nodeClaim.UID, nodeClaim.Annotations = "", map[string]string{karpv1.RebootTerminationGracePeriodAnnotationKey: "0s"}
	// Core keeps it until the server is back.
	nodeClaim.Finalizers = []string{karpv1.TerminationFinalizer}
	if period != nil {
		nodeClaim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: *period}
	}
	f.create(nodeClaim)
	nodeClaim.Status = status
	f.updateStatus(nodeClaim)
	return nodeClaim, node
}
