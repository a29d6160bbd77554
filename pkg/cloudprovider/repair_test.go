// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/node/legacyrepair"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestFaultToleration: a flag sets the time of faults, and a server has its time to boot all the same.
func TestFaultToleration(t *testing.T) {
	for flag, want := range map[time.Duration]time.Duration{0: 10 * time.Minute, time.Minute: time.Minute, time.Hour: time.Hour} {
		for _, policy := range (&CloudProvider{options: Options{FaultToleration: flag}}).RepairPolicies() {
			wanted := want
			if policy.ConditionType == corev1.NodeReady {
				wanted = 30 * time.Minute
			}
			if policy.TolerationDuration != wanted {
				t.Errorf("with %s %s is tolerated for %s, want %s", flag, policy.ConditionType, policy.TolerationDuration, wanted)
			}
		}
	}
}

// TestRepairWithCore: Karpenter's own controller replaces a node that has been unhealthy for longer than a server may be,
// and no other. So would the disruption method that follows it, with --legacy-node-repair=false. The test moves its clock.
func TestRepairWithCore(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		condition corev1.NodeCondition
		after     time.Duration // from when on it is replaced; zero for never
	}{
		"Rebooting": {"a big server takes a quarter of an hour to boot",
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}, 30 * time.Minute},
		"NotReadyWhy": {"whatever it says the reason is",
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady"}, 30 * time.Minute},
		"NotReady": {"kubelet says so itself", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, 30 * time.Minute},
		"Memory": {"NVSentinel: uncontained ECC errors", corev1.NodeCondition{Type: "GpuMemWatch", Status: corev1.ConditionTrue},
			10 * time.Minute},
		"Bus": {"NVSentinel: a GPU has fallen off the bus", corev1.NodeCondition{Type: "SysLogsGPUFallenOff", Status: corev1.ConditionTrue,
			Reason: "SysLogsGPUFallenOffIsNotHealthy"},
			10 * time.Minute},
		"ReadOnly": {"node-problem-detector: the disk is going", corev1.NodeCondition{Type: "ReadonlyFilesystem", Status: corev1.ConditionTrue},
			10 * time.Minute},
		"Well": {"False means that nothing was found", corev1.NodeCondition{Type: "GpuMemWatch", Status: corev1.ConditionFalse}, 0},
		"Other": {"a condition that is not in the table is for people",
			corev1.NodeCondition{Type: "GpuCpusetWatch", Status: corev1.ConditionTrue}, 0},
		"Unknown": {"a monitor that does not answer is no broken GPU",
			corev1.NodeCondition{Type: "GpuMemWatch", Status: corev1.ConditionUnknown}, 0},
		"Pressure": {"that is the pods' doing", corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			nodeClaim := f.launched("gpu-" + f.namespace)
			nodeClaim.UID, nodeClaim.Labels = "", map[string]string{"node": f.namespace}
			// Core keeps it until the server is back.
			nodeClaim.Finalizers = []string{karpv1.TerminationFinalizer}
			status := nodeClaim.Status
			f.create(nodeClaim)
			nodeClaim.Status = status
			f.updateStatus(nodeClaim)
			began := time.Now().Truncate(time.Second)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}, Spec: corev1.NodeSpec{ProviderID: nodeClaim.Status.ProviderID}}
			f.create(node)
			tc.condition.LastTransitionTime = metav1.NewTime(began)
			node.Status.Conditions = []corev1.NodeCondition{tc.condition}
			f.updateStatus(node)

			clock := testclock.NewFakeClock(began)
			matcher, err := health.NewRepairPolicyMatcher(options.ToContext(f.ctx, &options.Options{
				FeatureGates: options.FeatureGates{NodeRepair: true}}), f.CloudProvider)
			if err != nil {
				t.Fatalf("the provider would not start with NodeRepair, %v", err)
			}
			f.CloudProvider.options.LegacyRepair = true
			core := legacyrepair.NewController(byProviderID(t), f.CloudProvider, clock, events.NewRecorder(f.events))
			replaced := func() bool {
				t.Helper()
				if _, err := core.Reconcile(f.ctx, node); err != nil {
					t.Fatal(err)
				}
				now := &karpv1.NodeClaim{}
				if err := environment.Client.Get(f.ctx, client.ObjectKeyFromObject(nodeClaim), now); err != nil {
					t.Fatal(err)
				}
				selected := health.Resolve(matcher.Match(node), clock.Now(), time.Time{})
				if repairs := selected.Action != ""; repairs == now.DeletionTimestamp.IsZero() {
					t.Errorf("%s: Karpenter's former controller replaces the node: %v; its disruption method: %v", tc.reason, !repairs, repairs)
				} else if repairs && (selected.TerminationGracePeriod == nil || *selected.TerminationGracePeriod != 0) {
					t.Errorf("%s: pods delay the replacement: %v", tc.reason, selected.TerminationGracePeriod)
				}
				return !now.DeletionTimestamp.IsZero()
			}
			if tc.after == 0 {
				clock.SetTime(began.Add(24 * time.Hour))
				if replaced() {
					t.Errorf("%s: it was replaced", tc.reason)
				}
				return
			}
			clock.SetTime(began.Add(tc.after - time.Second))
			if replaced() {
				t.Fatalf("%s: it was replaced before %v", tc.reason, tc.after)
			}
			clock.SetTime(began.Add(tc.after + time.Second))
			if !replaced() {
				t.Errorf("%s: it was not replaced after %v", tc.reason, tc.after)
			}
		})
	}
}

// TestDocumentedConditions holds the table in the docs to the policies: each condition with its status, time and action, and no others.
func TestDocumentedConditions(t *testing.T) {
	content, err := os.ReadFile("../../docs/finite-hardware/scale-down.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	code := regexp.MustCompile("`(\\w+)`")
	rows := regexp.MustCompile("(?m)^\\| (`.+) \\| (`.+) \\| (\\d+) min \\| (reboots|replaces) \\|")
	for _, row := range rows.FindAllStringSubmatch(string(content), -1) {
		for _, condition := range code.FindAllStringSubmatch(row[1], -1) {
			for _, status := range code.FindAllStringSubmatch(row[2], -1) {
				told = append(told, condition[1]+" "+status[1]+" "+row[3]+"m0s "+row[4])
			}
		}
	}
	var have []string
	does := map[cloudprovider.RepairAction]string{cloudprovider.RebootNode: "reboots", cloudprovider.ReplaceNode: "replaces"}
	for _, policy := range (&CloudProvider{options: Options{RebootConditions: DefaultRebootConditions()}}).RepairPolicies() {
		have = append(have, fmt.Sprintf("%s %s %s %s", policy.ConditionType, policy.ConditionStatus, policy.TolerationDuration,
			does[policy.Action]))
	}
	slices.Sort(told)
	slices.Sort(have)
	if diff := cmp.Diff(have, told); diff != "" || len(told) < 10 {
		t.Errorf("docs/finite-hardware/scale-down.md (-policies +told):\n%s", diff)
	}
}

// byProviderID is a client that finds NodeClaims and nodes by what the provider's cache indexes them by, and lists no other node: the 20%
// of unhealthy nodes upon which core stops are those of the other tests too.
func byProviderID(t *testing.T) client.Client {
	t.Helper()
	live, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(live, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			options := (&client.ListOptions{}).ApplyOptions(opts)
			if nodes, is := list.(*corev1.NodeList); is {
				if options.FieldSelector == nil {
					return nil // none is unhealthy
				}
				wanted, _ := options.FieldSelector.RequiresExactMatch("spec.providerID")
				err := c.List(ctx, nodes)
				nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return n.Spec.ProviderID != wanted })
				return err
			}
			nodeClaims, is := list.(*karpv1.NodeClaimList)
			if !is || options.FieldSelector == nil {
				return c.List(ctx, list, opts...)
			}
			wanted, _ := options.FieldSelector.RequiresExactMatch("status.providerID")
			if err := c.List(ctx, nodeClaims); err != nil {
				return err
			}
			nodeClaims.Items = slices.DeleteFunc(nodeClaims.Items, func(n karpv1.NodeClaim) bool { return n.Status.ProviderID != wanted })
			return nil
		},
	})
}

// TestLongMessagesOfNodes: long conditions of nodes are shortened in Machines. The API server refuses what is too long, and the
// server would never be released.
func TestLongMessagesOfNodes(t *testing.T) {
	node := &corev1.Node{}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
		Message: "\xff" + strings.Repeat("ö", 1<<18)}}
	why := (&CloudProvider{}).unhealthy(node, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}})
	if why == nil {
		t.Fatal("nothing is noted")
	}
	if length := utf8.RuneCountInString(why.Message); length != v1alpha1.MaxUnhealthyMessage || !utf8.ValidString(why.Message) {
		t.Errorf("%d characters are noted, valid: %v; want %d", length, utf8.ValidString(why.Message), v1alpha1.MaxUnhealthyMessage)
	}
}

// TestRepairIsRecorded: core's own controller, which is the default here, replaces a node. The Machine says why, however
// far the clocks of the provider and of the tenant's API server are apart. After any other deletion the Machine says nothing.
func TestRepairIsRecorded(t *testing.T) {
	fault := corev1.NodeCondition{Type: "GpuMemWatch", Status: corev1.ConditionTrue, Message: "uncontained ECC errors"}
	notReady := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
	for name, tc := range map[string]struct {
		reason    string
		condition corev1.NodeCondition
		ahead     time.Duration // of the provider's clock
		undated   bool
		deleted   bool           // by a user
		period    *time.Duration // the NodeClaim's terminationGracePeriod
		refuse    error
		want      string
	}{
		"SameClock":  {reason: "both clocks are right", condition: fault, want: "GpuMemWatch is True since"},
		"Ahead":      {reason: "NTP allows milliseconds", condition: fault, ahead: 200 * time.Millisecond, want: "GpuMemWatch is True since"},
		"HourAhead":  {reason: "a machine without NTP", condition: fault, ahead: time.Hour, want: "GpuMemWatch is True since"},
		"HourBehind": {reason: "as above", condition: fault, ahead: -time.Hour, want: "GpuMemWatch is True since"},
		"NotReady":   {reason: "the kubelet is silent", condition: notReady, ahead: time.Hour, want: "Ready is Unknown since"},
		"WithoutTime": {reason: "the time of a condition is optional in Kubernetes", condition: fault, undated: true,
			want: "GpuMemWatch is True since 2"},
		"WithPeriod": {reason: "core shortens what pods have", condition: fault, ahead: time.Hour, period: new(3 * time.Hour),
			want: "GpuMemWatch is True since"},
		"Deleted": {reason: "a user deletes it for another reason", condition: fault, deleted: true},
		"DeletedWithPeriod": {reason: "core notes when the period of the NodeClaim ends", condition: notReady, deleted: true,
			period: new(time.Hour)},
		"DeletedAtOnce": {reason: "a node that boots is not ready", condition: notReady, deleted: true, period: new(time.Duration(0))},
		"Refused": {reason: "the server goes back to the pool all the same", condition: fault,
			refuse: apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Machine").GroupKind(), "gpu", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
				opts ...client.PatchOption) error {
				if _, is := object.(*v1alpha1.Machine); is && tc.refuse != nil {
					return tc.refuse
				}
				return c.Patch(ctx, object, patch, opts...)
			}})
			f.CloudProvider.options.LegacyRepair = true
			ctx := (&options.Options{FeatureGates: options.FeatureGates{NodeRepair: true}}).ToContext(f.ctx)
			nodeClaim, node := f.sickNodeWith(tc.period)
			clock := testclock.NewFakeClock(time.Now().Add(tc.ahead))
			if condition := tc.condition; !tc.undated {
				condition.LastTransitionTime = metav1.NewTime(clock.Now().Add(-notReadyToleration))
				tc.condition = condition
			}
			node.Status.Conditions = []corev1.NodeCondition{tc.condition}
			f.updateStatus(node)
			if tc.deleted {
				if err := environment.Client.Delete(f.ctx, nodeClaim); err != nil {
					t.Fatal(err)
				}
				f.read(nodeClaim)
				if tc.period != nil { // core's lifecycle controller
					nodeClaim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey] =
						nodeClaim.DeletionTimestamp.Add(*tc.period).Format(time.RFC3339)
					f.update(nodeClaim)
				}
			} else if _, err := legacyrepair.NewController(byProviderID(t), f.CloudProvider, clock, events.NewRecorder(f.events)).
				Reconcile(ctx, node); err != nil {
				t.Fatal(err)
			}
			if f.read(nodeClaim); nodeClaim.DeletionTimestamp.IsZero() {
				t.Fatal("the NodeClaim is not deleted")
			}
			machine := &v1alpha1.Machine{}
			if err := environment.Client.Get(f.ctx, f.machineKey(nodeClaim.Name), machine); err != nil {
				t.Fatal(err)
			}
			machine.Finalizers = []string{"example.com/held"} // as the manager's
			f.update(machine)
			if err := f.Delete(ctx, nodeClaim); err != nil {
				t.Fatalf("%s: the server is never given back: %v", tc.reason, err)
			}
			if f.read(machine); machine.DeletionTimestamp.IsZero() {
				t.Errorf("%s: the Machine is not deleted", tc.reason)
			}
			why := ""
			if unhealthy := machine.ReportedNode().Unhealthy; unhealthy != nil {
				why = unhealthy.String()
			}
			if !strings.HasPrefix(why, tc.want) || (tc.want == "") != (why == "") {
				t.Errorf("%s: the Machine says %q of its node, want %q", tc.reason, why, tc.want)
			}
		})
	}
}
