// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/kubernetesversion"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// TestIsDrifted: the manager's word counts, and its silence, and an outage of its cluster is not taken for either.
func TestIsDrifted(t *testing.T) {
	down := atomic.Bool{}
	f := newFixture(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
		opts ...client.GetOption) error {
		if down.Load() {
			return errors.New("connection refused")
		}
		return c.Get(ctx, key, object, opts...)
	}})
	nodeClaim := f.launched("gpu-1")
	says := func(status metav1.ConditionStatus) {
		f.answer("gpu-1", func(machine *v1alpha1.Machine) {
			meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionDrifted, Status: status, Reason: v1alpha1.ReasonOSImageChanged, LastTransitionTime: metav1.Now(),
			})
		})
	}
	eventually := func(what string, want cloudprovider.DriftReason) {
		f.eventually(what, func() error {
			got, err := f.IsDrifted(f.ctx, nodeClaim)
			if err == nil && got != want {
				err = errors.New("the reason is " + string(got))
			}
			return err
		})
	}
	eventually("a server of which nothing is known not to be drifted", "")
	says(metav1.ConditionTrue)
	eventually("the manager's reason", v1alpha1.ReasonOSImageChanged)

	down.Store(true)
	if got, err := f.IsDrifted(f.ctx, nodeClaim); err == nil {
		t.Errorf("with the management cluster down the reason is %q, want an error", got)
	}
	down.Store(false)

	says(metav1.ConditionUnknown)
	eventually("a server whose replacement could not be installed not to be drifted", "")

	f.class.Spec.ProviderRef = &v1alpha1.NameReference{Name: "elsewhere"}
	if err := environment.Client.Update(f.ctx, f.class); err != nil {
		t.Fatal(err)
	}
	eventually("a server of another provider than that of its class to be drifted", v1alpha1.ReasonNodeClassChanged)

	f.class.Spec.KubeletArgs = v1alpha1.KubeletArgs{"max-pods": "64"}
	if err := environment.Client.Update(f.ctx, f.class); err != nil {
		t.Fatal(err)
	}
	eventually("a server whose kubelet would be started differently to be drifted", v1alpha1.ReasonKubeletArgsChanged)

	foreign := nodeClaim.DeepCopy()
	foreign.Status.ProviderID = "aws:///eu-west-1a/i-1"
	if _, err := f.IsDrifted(f.ctx, foreign); !cloudprovider.IsNodeClaimNotFoundError(err) {
		t.Errorf("of a foreign provider ID it says %v, want not found", err)
	}
}

// TestDeleteForRepair: only the deletion of an unhealthy node is recorded on the Machine.
func TestDeleteForRepair(t *testing.T) {
	deleted := time.Now().Truncate(time.Second)
	sick := corev1.NodeCondition{Type: "GpuMemWatch", Status: corev1.ConditionTrue, Message: "GPU 3",
		LastTransitionTime: metav1.NewTime(deleted.Add(-time.Hour))}
	fresh := sick
	fresh.LastTransitionTime = metav1.NewTime(deleted.Add(-time.Minute))
	for name, tc := range map[string]struct {
		reason    string
		end       time.Time
		period    time.Duration
		condition corev1.NodeCondition
		gateOff   bool
		goes      bool
		issue     string
		want      string
	}{
		"Repair": {reason: "core lets no pod delay a repair", end: deleted, condition: sick, want: "GpuMemWatch is True"},
		"Forged": {reason: "core repairs nothing without the gate NodeRepair, so the tenant has written that", end: deleted, condition: sick,
			gateOff: true},
		"Reported": {reason: "the tenant says so, and pods may delay it", issue: "GPU 3 is slow", gateOff: true,
			want: "IssueReported is True since " + deleted.UTC().Format(time.RFC3339) + ": GPU 3 is slow"},
		"ReportedAtLength": {reason: "the API server would refuse it all", issue: strings.Repeat("ö", 10000), gateOff: true,
			want: "IssueReported is True"},
		"Drained": {reason: "it was deleted with a grace period for pods", end: deleted.Add(time.Hour), period: time.Hour, condition: sick},
		"TenantGoes": {reason: "the provider drains all nodes of a TenantCluster that is being deleted, and bounds that", condition: sick,
			end: deleted.Add(10 * time.Minute), goes: true},
		"Deleted": {reason: "it is being deleted", condition: sick},
		"Fresh":   {reason: "core has measured that it lasted, by its own clock", end: deleted, condition: fresh, want: "GpuMemWatch is True"},
		"Healthy": {reason: "a GPU that is well", end: deleted,
			condition: corev1.NodeCondition{Type: "GpuMemWatch", Status: corev1.ConditionFalse, LastTransitionTime: sick.LastTransitionTime}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			nodeClaim := f.launched("gpu-1")
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
			f.create(node)
			node.Status.Conditions = []corev1.NodeCondition{tc.condition}
			f.updateStatus(node)
			nodeClaim.Status.NodeName = node.Name
			nodeClaim.DeletionTimestamp = &metav1.Time{Time: deleted}
			if tc.period > 0 {
				nodeClaim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: tc.period}
			}
			if tc.goes {
				f.deleteTenant()
			}
			if !tc.end.IsZero() {
				nodeClaim.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: tc.end.Format(time.RFC3339)}
			}
			if tc.issue != "" {
				nodeClaim.Annotations = map[string]string{v1alpha1.ReportIssueAnnotationKey: tc.issue}
			}
			gates := options.FeatureGates{NodeRepair: !tc.gateOff}
			if err := f.Delete((&options.Options{FeatureGates: gates}).ToContext(f.ctx), nodeClaim); err != nil {
				t.Fatal(err)
			}
			machine := &v1alpha1.Machine{}
			if err := environment.Client.Get(f.ctx, f.machineKey("gpu-1"), machine); err != nil {
				t.Fatal(err)
			}
			got := ""
			if unhealthy := machine.ReportedNode().Unhealthy; unhealthy != nil {
				got = unhealthy.String()
			}
			if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s: the Machine says %q, want %q", tc.reason, got, tc.want)
			}
			if machine.DeletionTimestamp.IsZero() {
				t.Errorf("%s: the Machine is not being deleted", tc.reason)
			}
		})
	}
}

// deleteTenant has the TenantCluster wait for its servers.
func (f *fixture) deleteTenant() {
	f.t.Helper()
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(f.ctx, f.tenantKey(), cluster); err != nil {
		f.t.Fatal(err)
	}
	cluster.Finalizers = []string{v1alpha1.TenantClusterFinalizer}
	f.update(cluster)
	if err := environment.Client.Delete(f.ctx, cluster); err != nil {
		f.t.Fatal(err)
	}
	f.eventually("the cache knows", func() error {
		if err := f.management.Client.Get(f.ctx, f.tenantKey(), cluster); err != nil {
			return err
		}
		if cluster.DeletionTimestamp.IsZero() {
			return errNotSynced
		}
		return nil
	})
}

// TestRefusedLately: a pool that got no server counts as one without a spare server, until it gets one or time passes.
func TestRefusedLately(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	answering := &sync.WaitGroup{}
	t.Cleanup(answering.Wait)
	nodePool := f.nodePool()
	f.freeTwo(nodePool)
	nodeClaim := f.nodeClaim("gpu-1")
	nodeClaim.Labels[karpv1.NodePoolLabelKey] = nodePool.Name
	answering.Go(func() {
		f.answer("gpu-1", refuses(v1alpha1.ReasonQuotaExceeded, "the tenant has all that it may have"))
	})
	if _, err := f.Create(f.ctx, nodeClaim); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Fatal(err)
	}
	if !f.RefusedLately(nodePool.Name, f.nodeType) || f.RefusedLately("other", f.nodeType) || f.RefusedLately(nodePool.Name, "other") {
		t.Error("want the NodePool and the type alone that were refused")
	}
	again := f.nodeClaim("gpu-2")
	again.Labels[karpv1.NodePoolLabelKey] = nodePool.Name
	answering.Go(func() { f.answer("gpu-2", f.claims) })
	if _, err := f.Create(f.ctx, again); err != nil {
		t.Fatal(err)
	}
	if f.RefusedLately(nodePool.Name, f.nodeType) {
		t.Error("a pool that has got a server still counts as refused")
	}
}

// TestRefusalsThatSayNothingOfSpares: a gang gets no server before it gets all, and a rate has no end. One server may be free.
func TestRefusalsThatSayNothingOfSpares(t *testing.T) {
	for name, tc := range map[string]struct{ gang, reason string }{
		"GangIncomplete": {`[{"name":"default/Job train","minCount":5}]`, v1alpha1.ReasonGangIncomplete},
		"GangNoCapacity": {`[{"name":"default/Job train","minCount":5}]`, v1alpha1.ReasonNoCapacity},
		"TooManyClaims":  {"", v1alpha1.ReasonTooManyClaims},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, interceptor.Funcs{})
			clk := testclock.NewFakeClock(time.Now())
			f.refusals, f.options.ClaimTimeout = newRefusals(clk), 50*time.Millisecond
			nodePool := f.nodePool()
			f.freeTwo(nodePool)
			nodeClaim := f.nodeClaim("gpu-1")
			nodeClaim.Labels[karpv1.NodePoolLabelKey] = nodePool.Name
			nodeClaim.Annotations = map[string]string{v1alpha1.GangsAnnotationKey: tc.gang}
			answering := &sync.WaitGroup{}
			t.Cleanup(answering.Wait)
			answering.Go(func() { f.answer(nodeClaim.Name, refuses(tc.reason, "no")) })
			f.eventually("the NodeClaim is refused", func() error {
				_, err := f.Create(f.ctx, nodeClaim)
				clk.Step(gangPeriod)
				if !cloudprovider.IsInsufficientCapacityError(err) {
					return fmt.Errorf("not refused: %w", err)
				}
				return nil
			})
			if f.RefusedLately(nodePool.Name, f.nodeType) {
				t.Error("nodes that have drifted are drained before their replacement is there, although a server may be free")
			}
		})
	}
}

// TestOutdated: which nodes are installed again when the tenant has a newer version.
func TestOutdated(t *testing.T) {
	for name, tc := range map[string]struct {
		reason                      string
		kubelet, installed, current string
		want                        bool
	}{
		"Older": {reason: "the tenant was upgraded",
			kubelet: "v1.35.4", installed: "v1.35", current: "v1.36", want: true},
		"TwoOlder": {reason: "it is installed anew and so skips no version in place",
			kubelet: "v1.34.1", installed: "v1.34", current: "v1.36", want: true},
		"Same": {reason: "patch releases do not count",
			kubelet: "v1.36.0", installed: "v1.36", current: "v1.36"},
		"Newer": {reason: "the tenant was rolled back; an older kubelet helps nothing",
			kubelet: "v1.36.2", installed: "v1.36", current: "v1.35"},
		"OfTheImage": {reason: "the image brings a kubelet: it would be the same again, for ever",
			kubelet: "v1.34.1", installed: "v1.35", current: "v1.36"},
		"ByHand": {reason: "its kubelet was upgraded in place",
			kubelet: "v1.36.2", installed: "v1.35", current: "v1.36"},
		"NoRecord": {reason: "a provider before this record has installed it",
			kubelet: "v1.35.4", current: "v1.36", want: true},
		"NoRecordNew": {reason: "it is up to date in any case",
			kubelet: "v1.36.0", current: "v1.36"},
		"Vendor": {reason: "distributions add to the version",
			kubelet: "v1.35.4-eks-1", installed: "v1.35", current: "v1.36", want: true},
		"NoKubelet": {reason: "the Node has not reported",
			installed: "v1.35", current: "v1.36"},
		"Unreadable": {reason: "a version that cannot be read is not older",
			kubelet: "v1.35.4", installed: "v1.35", current: "main"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outdated(tc.kubelet, tc.installed, tc.current); got != tc.want {
				t.Errorf("%s: outdated(%q, %q, %q) is %v", tc.reason, tc.kubelet, tc.installed, tc.current, got)
			}
		})
	}
}

// TestAutoUpgrade: a node of an older version is drifted only if the tenant has its servers follow.
func TestAutoUpgrade(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	f.CloudProvider.options.KubernetesVersion = func(context.Context) (string, error) { return "v1.36", nil }
	nodeClaim := f.launched("gpu-1")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	f.create(node)
	node.Status.NodeInfo.KubeletVersion = "v1.35.4"
	f.updateStatus(node)
	nodeClaim.Status.NodeName = node.Name
	eventually := func(what string, want cloudprovider.DriftReason) {
		f.eventually(what, func() error {
			got, err := f.IsDrifted(f.ctx, nodeClaim)
			if err == nil && got != want {
				err = errors.New("the reason is " + string(got))
			}
			return err
		})
	}
	tenant := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(f.ctx, client.ObjectKey{Namespace: f.namespace, Name: "tenant"}, tenant); err != nil {
		t.Fatal(err)
	}
	for _, enabled := range []bool{true, false, true} {
		tenant.Spec.PrivateNodes = &v1alpha1.PrivateNodes{AutoUpgrade: v1alpha1.AutoUpgrade{Enabled: enabled}}
		if err := environment.Client.Update(f.ctx, tenant); err != nil {
			t.Fatal(err)
		}
		if enabled {
			eventually("an older node to be drifted", v1alpha1.ReasonKubernetesVersionChanged)
		} else {
			eventually("no node to follow the tenant's version", "")
		}
	}
	node.Status.NodeInfo.KubeletVersion = "v1.36.2"
	f.updateStatus(node)
	eventually("a node of the tenant's version not to be drifted", "")
}

// TestUpgradeUnderWay: no node is drifted while one of the tenant's API servers has the old version, whichever answers.
func TestUpgradeUnderWay(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	clk, service := testclock.NewFakePassiveClock(time.Now()), tenanttest.NewService(nil)
	key := types.NamespacedName{Namespace: f.namespace, Name: "tenant"}
	versions, err := kubernetesversion.NewController(clk, tenanttest.ClustersOf(key, environment.Client, environment.Client), service.Config())
	if err != nil {
		t.Fatal(err)
	}
	f.CloudProvider.options.KubernetesVersion = versions.Least
	tenant := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(f.ctx, key, tenant); err != nil {
		t.Fatal(err)
	}
	tenant.Spec.PrivateNodes = &v1alpha1.PrivateNodes{AutoUpgrade: v1alpha1.AutoUpgrade{Enabled: true}}
	if err := environment.Client.Update(f.ctx, tenant); err != nil {
		t.Fatal(err)
	}
	f.eventually("the cache to have that servers follow", func() error {
		err := f.management.Client.Get(f.ctx, key, tenant)
		if err == nil && tenant.Spec.PrivateNodes == nil {
			err = errors.New("it has not")
		}
		return err
	})
	nodeClaim := f.launched("gpu-1")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	f.create(node)
	node.Status.NodeInfo.KubeletVersion = "v1.35.4"
	f.updateStatus(node)
	nodeClaim.Status.NodeName = node.Name
	follows := func(minor string, times int, want cloudprovider.DriftReason) {
		t.Helper()
		service.LeadsTo(tenanttest.Version("1", minor))
		for range times {
			clk.SetTime(clk.Now().Add(30 * time.Second))
			if got, err := f.IsDrifted(f.ctx, nodeClaim); err != nil || got != want {
				t.Fatalf("an API server of 1.%s answers, and the reason is %q, want %q: %v", minor, got, want, err)
			}
		}
	}
	for range 3 {
		follows("35", 1, "")
		follows("36", 19, "")
	}
	follows("36", 1, v1alpha1.ReasonKubernetesVersionChanged)
	follows("35", 1, "")
}
