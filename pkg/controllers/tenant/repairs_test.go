// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/repairs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/breaker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

const (
	rebootLabel    = "nke.nvidia.com/reboot"
	terminateLabel = "nke.nvidia.com/terminate"
	byNVSentinel   = "requested-by-nvsentinel"
)

// sickNode is a node with its NodeClaim. The test plays NVSentinel and core.
type sickNode struct {
	*fleet
	nodeClaim *karpv1.NodeClaim
	node      *corev1.Node
	// resets are those that core was asked for.
	resets int
}

func newSickNode(t *testing.T, change func(*karpv1.NodeClaim)) *sickNode {
	t.Helper()
	s := &sickNode{fleet: newFleet(t, 0, true)}
	name := "sick-" + s.key.Namespace
	s.nodeClaim = createNodeClaim(t, name, func(nodeClaim *karpv1.NodeClaim) {
		if change != nil {
			change(nodeClaim)
		}
	})
	s.nodeClaim.Status.NodeName = name
	s.write(s.nodeClaim)
	s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := environment.Client.Create(t.Context(), s.node); err != nil {
		t.Fatal(err)
	}
	s.node.Status.NodeInfo.BootID = "boot-0"
	s.write(s.node)
	return s
}

func (s *sickNode) write(object client.Object) {
	s.t.Helper()
	if err := environment.Client.Status().Update(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

// label plays NVSentinel: it puts a label on the node.
func (s *sickNode) label(key string) {
	s.t.Helper()
	s.read()
	s.node.Labels = map[string]string{key: byNVSentinel, "kept": "yes"}
	update(s.t, s.node)
}

// read reads both objects again. It returns false once the NodeClaim is gone.
func (s *sickNode) read() bool {
	s.t.Helper()
	if !exists(s.t, s.nodeClaim) {
		return false
	}
	name := client.ObjectKey{Name: s.node.Name}
	s.nodeClaim, s.node = &karpv1.NodeClaim{}, &corev1.Node{}
	for _, object := range []client.Object{s.nodeClaim, s.node} {
		if err := environment.Client.Get(s.t.Context(), name, object); err != nil {
			s.t.Fatal(err)
		}
	}
	return true
}

// reboots plays core: it reboots the node for which that is committed, as its reboot controller does.
func (s *sickNode) reboots() {
	s.t.Helper()
	rebooting := s.nodeClaim.StatusConditions().Get(karpv1.ConditionTypeRebooting)
	if !rebooting.IsTrue() {
		return
	}
	if got := s.nodeClaim.Annotations[karpv1.RebootTerminationGracePeriodAnnotationKey]; got != "0s" ||
		rebooting.Reason != karpv1.RebootReasonRequested {
		s.t.Errorf("core would wait %q for pods, or not begin for the reason %s", got, rebooting.Reason)
	}
	s.resets++
	s.node.Status.NodeInfo.BootID = fmt.Sprintf("boot-%d", s.resets)
	s.write(s.node)
	s.nodeClaim.StatusConditions().SetFalse(karpv1.ConditionTypeRebooting, karpv1.RebootReasonSucceeded, "node rebooted and rejoined")
	s.write(s.nodeClaim)
}

// run reconciles until nothing changes any more, with a new process in the place of one that has died.
func (s *sickNode) run(connection *faults.Connection) (writes int) {
	s.t.Helper()
	for range 12 {
		if !s.read() {
			break
		}
		if connection.Dead() {
			writes += len(connection.Writes())
			connection = &faults.Connection{}
		}
		connection.PassTime()
		controller := newRepairs(tenanttest.Clusters(&environment, s.key, connection), repairs.DefaultLabels())
		_, _ = controller.Reconcile(s.t.Context(), s.nodeClaim.DeepCopy())
		if s.read() {
			s.reboots()
		}
	}
	return writes + len(connection.Writes())
}

// TestRebootForNVSentinel: each request of NVSentinel's label provider is one reboot, whatever happens to whichever write. The label is
// taken off when the node has another boot, which is when NVSentinel takes the node for repaired.
func TestRebootForNVSentinel(t *testing.T) {
	twice := func(t *testing.T, connection *faults.Connection) int {
		t.Helper()
		s, writes := newSickNode(t, nil), 0
		for request := 1; request <= 2; request++ {
			s.label(rebootLabel)
			writes += s.run(connection)
			connection = &faults.Connection{}
			_, labelled := s.node.Labels[rebootLabel]
			_, begun := s.node.Annotations[v1alpha1.RebootBootIDAnnotationKey]
			if s.resets != request || labelled || begun || s.node.Labels["kept"] != "yes" || !s.nodeClaim.DeletionTimestamp.IsZero() {
				t.Errorf("request %d: %d resets, labels %v, annotations %v", request, s.resets, s.node.Labels, s.node.Annotations)
			}
		}
		return writes
	}
	writes := twice(t, &faults.Connection{})
	if writes != 8 {
		t.Fatalf("two requests have %d writes, want 8; the test does not see them all", writes)
	}
	for _, kind := range faults.AtWrites {
		for write := 1; write <= writes/2; write++ {
			t.Run(fmt.Sprintf("%s/Write%d", kind, write), func(t *testing.T) {
				twice(t, &faults.Connection{Kind: kind, At: write})
			})
		}
	}
}

// TestNodesThatNobodyReboots: what is no request of NVSentinel's is none.
func TestNodesThatNobodyReboots(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*sickNode)
		labels repairs.Labels
	}{
		"Other": {reason: "another controller's value", labels: repairs.DefaultLabels(),
			change: func(s *sickNode) { s.node.Labels = map[string]string{rebootLabel: "done", terminateLabel: "done"} }},
		"Off": {reason: "the platform team has no NVSentinel", labels: repairs.Labels{},
			change: func(s *sickNode) {
				s.node.Labels = map[string]string{rebootLabel: byNVSentinel, terminateLabel: byNVSentinel}
			}},
		"Withdrawn": {reason: "the request was taken back before core was asked", labels: repairs.DefaultLabels(),
			change: func(s *sickNode) {
				s.node.Annotations = map[string]string{v1alpha1.RebootBootIDAnnotationKey: "boot-0"}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSickNode(t, nil)
			tc.change(s)
			update(t, s.node)
			controller := newRepairs(tenanttest.Clusters(&environment, s.key, &faults.Connection{}), tc.labels)
			for range 4 {
				s.read()
				if _, err := controller.Reconcile(t.Context(), s.nodeClaim.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				s.read()
				s.reboots()
			}
			_, begun := s.node.Annotations[v1alpha1.RebootBootIDAnnotationKey]
			if s.resets != 0 || begun || !s.nodeClaim.DeletionTimestamp.IsZero() {
				t.Errorf("%s: %d resets, begun %v, deleted %v", tc.reason, s.resets, begun, s.nodeClaim.DeletionTimestamp)
			}
		})
	}
}

// TestReplacementOnRequest: the NodeClaim is deleted, and says why until it is gone.
func TestReplacementOnRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, report, label, want string
	}{
		"Reported":  {reason: "the tenant's words", report: "GPU 3 is slow", want: "GPU 3 is slow"},
		"Wordless":  {reason: "who says nothing has a reason, too", report: "", want: ""},
		"Terminate": {reason: "NVSentinel's", label: terminateLabel, want: "has the label " + terminateLabel + "=" + byNVSentinel},
		"Both":      {reason: "what the tenant says is more", report: "GPU 3 is slow", label: terminateLabel, want: "GPU 3 is slow"},
	} {
		for write := range 3 {
			t.Run(fmt.Sprintf("%s/CrashAfterWrite%d", name, write), func(t *testing.T) {
				s := newSickNode(t, func(nodeClaim *karpv1.NodeClaim) {
					nodeClaim.Finalizers = []string{karpv1.TerminationFinalizer}
					if name != "Terminate" {
						nodeClaim.Annotations = map[string]string{v1alpha1.ReportIssueAnnotationKey: tc.report}
					}
				})
				defer func() {
					s.nodeClaim.Finalizers = nil
					update(t, s.nodeClaim)
				}()
				if tc.label != "" {
					s.label(tc.label)
				}
				s.run(&faults.Connection{Kind: faults.Crash, At: write})
				want := tc.want
				if name == "Terminate" {
					want = "node " + s.node.Name + " " + want
				}
				if got := s.nodeClaim.Annotations[v1alpha1.ReportIssueAnnotationKey]; got != want || s.nodeClaim.DeletionTimestamp.IsZero() {
					t.Errorf("%s: deleted %v, for %q, want %q", tc.reason, s.nodeClaim.DeletionTimestamp, got, want)
				}
			})
		}
	}
}

// TestIssueIsReadLive: a NodeClaim whose annotation is gone by now is not deleted.
func TestIssueIsReadLive(t *testing.T) {
	s := newSickNode(t, nil)
	stale := s.nodeClaim.DeepCopy()
	stale.Annotations = map[string]string{v1alpha1.ReportIssueAnnotationKey: "GPU 3"}
	controller := newRepairs(tenanttest.Clusters(&environment, s.key, &faults.Connection{}), repairs.DefaultLabels())
	if _, err := controller.Reconcile(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	if !s.read() || !s.nodeClaim.DeletionTimestamp.IsZero() {
		t.Error("the NodeClaim is deleted for an issue that is not reported")
	}
}

func newRepairs(clusters tenant.Clusters, labels repairs.Labels) *repairs.Controller {
	return repairs.NewController(clock.RealClock{}, clusters, events.NewRecorder(record.NewFakeRecorder(100)), labels)
}

// TestFleetIsReported: somebody reports an issue of each NodeClaim at once. As many are replaced as may have a fault of their own, and the
// others later, with an event meanwhile, also if the provider is started again.
func TestFleetIsReported(t *testing.T) {
	key := newFleet(t, 0, true).key
	others := &karpv1.NodeClaimList{} // other tests leave some, which count
	if err := environment.Client.List(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	size := 12 + len(others.Items)
	var fleet []*karpv1.NodeClaim
	for n := range size {
		fleet = append(fleet, createNodeClaim(t, fmt.Sprintf("reported-%d-%s", n, key.Namespace), func(nodeClaim *karpv1.NodeClaim) {
			nodeClaim.Finalizers = []string{karpv1.TerminationFinalizer}
			nodeClaim.Annotations = map[string]string{v1alpha1.ReportIssueAnnotationKey: "GPU 3 is slow"}
		}))
	}
	defer func() {
		for _, nodeClaim := range fleet {
			nodeClaim.Finalizers = nil
			update(t, nodeClaim)
			if err := environment.Client.Delete(t.Context(), nodeClaim); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	}()
	limit, clk, recorded := breaker.Limit(size+len(others.Items)), testclock.NewFakeClock(time.Now()), record.NewFakeRecorder(1000)
	run := func() (deleted int) {
		controller := repairs.NewController(clk, tenanttest.Clusters(&environment, key, &faults.Connection{}), events.NewRecorder(recorded),
			repairs.DefaultLabels())
		for range 2 {
			for _, nodeClaim := range fleet {
				if _, err := controller.Reconcile(t.Context(), nodeClaim.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
		}
		clk.Step(breaker.Window)
		for _, nodeClaim := range fleet {
			if _, err := controller.Reconcile(t.Context(), nodeClaim.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
		for _, nodeClaim := range fleet {
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(nodeClaim), nodeClaim); err != nil {
				t.Fatal(err)
			}
			if !nodeClaim.DeletionTimestamp.IsZero() {
				deleted++
			}
		}
		return deleted
	}
	if deleted := run(); deleted != 2*limit {
		t.Errorf("%d of %d nodes are replaced within two windows, want %d", deleted, size, 2*limit)
	}
	select {
	case event := <-recorded.Events:
		if !strings.Contains(event, "ReplacementHeld") || !strings.Contains(event, "delete the NodeClaim to replace it now") {
			t.Errorf("the event is %q", event)
		}
	default:
		t.Error("no event says that the others wait")
	}
}

// TestLabelFlags: labels of flags are those that Kubernetes takes, as NVSentinel has them.
func TestLabelFlags(t *testing.T) {
	for label, right := range map[string]bool{
		"": true, "nke.nvidia.com/reboot=requested-by-nvsentinel": true, "reboot=now": true,
		"nke.nvidia.com/reboot": false, "nke.nvidia.com/reboot=": false, "=yes": false, "a b=c": false, "a=b c": false,
	} {
		if err := repairs.Check("reboot-label", label); (err == nil) != right {
			t.Errorf("of %q it says %v", label, err)
		} else if err != nil {
			t.Log(err)
		}
	}
}
