// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// The parts of objects that are as before if nothing has touched a server.
type (
	// host has the operations that Metal3 has done on a server in its status, with their times. Its generation tells a spec that was changed
	// and changed back.
	host struct {
		Generation  int64
		Spec        bmov1alpha1.BareMetalHostSpec
		Provisioned bmov1alpha1.ProvisionStatus
		PoweredOn   bool
		Operations  bmov1alpha1.OperationHistory
	}
	machine struct {
		Phase            v1alpha1.MachinePhase
		Host             *v1alpha1.HostReference
		ProviderID, Node string
		Drifted, Deleted bool
	}
	claim struct {
		Spec             karpv1.NodeClaimSpec
		ProviderID       string
		Drifted, Deleted bool
	}
	node struct {
		ProviderID string
		Taints     []corev1.Taint
		Deleted    bool
	}
	pod struct {
		Node    string
		Phase   corev1.PodPhase
		Deleted bool
	}
)

// inUse are the servers, and what is on them, by the name and the UID.
type inUse struct {
	hosts    map[string]host
	machines map[string]machine
	claims   map[string]claim
	nodes    map[string]node
	pods     map[string]pod
	// power is the journal of the emulated servers: what each of them did whenever its power changed.
	power string
}

// allInUse waits until all Machines and NodeClaims are ready, of which there are some, and returns what is in use.
func (r *rehearsal) allInUse(t *testing.T) inUse {
	t.Helper()
	poll.Eventually(t, "all that is in use is ready", func(ctx context.Context) error {
		machines, claims := &v1alpha1.MachineList{}, &karpv1.NodeClaimList{}
		if err := errors.Join(r.management.List(ctx, machines), r.tenant.List(ctx, claims)); err != nil {
			return err
		}
		for _, o := range machines.Items {
			if !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReady) {
				return fmt.Errorf("machine %s is %s: %v", o.Name, o.Status.Phase, o.Status.Conditions)
			}
		}
		for _, o := range claims.Items {
			if !o.StatusConditions().Root().IsTrue() {
				return fmt.Errorf("nodeclaim %s is not ready: %v", o.Name, o.Status.Conditions)
			}
		}
		if want := len(claims.Items) + 1; len(claims.Items) == 0 || len(machines.Items) != want {
			return fmt.Errorf("there are %d Machines, want %d", len(machines.Items), want)
		}
		return nil
	})
	return r.now(t)
}

// now reads what there is.
func (r *rehearsal) now(t *testing.T) inUse {
	t.Helper()
	hosts, machines, claims := &bmov1alpha1.BareMetalHostList{}, &v1alpha1.MachineList{}, &karpv1.NodeClaimList{}
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := errors.Join(r.management.List(t.Context(), hosts), r.management.List(t.Context(), machines), r.tenant.List(t.Context(), claims),
		r.tenant.List(t.Context(), nodes), r.tenant.List(t.Context(), pods, client.InNamespace(metav1.NamespaceDefault))); err != nil {
		t.Fatal(err)
	}
	journal, err := os.ReadFile(filepath.Join(filepath.Dir(r.box.Kubeconfigs().Management), "log", "rack.log"))
	if err != nil {
		t.Fatal(err)
	}
	state := inUse{
		hosts: map[string]host{}, machines: map[string]machine{}, claims: map[string]claim{}, nodes: map[string]node{}, pods: map[string]pod{},
		power: string(journal),
	}
	for _, o := range hosts.Items {
		state.hosts[key(&o)] = host{o.Generation, o.Spec, o.Status.Provisioning, o.Status.PoweredOn, o.Status.OperationHistory}
	}
	for _, o := range machines.Items {
		drifted := meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionDrifted)
		state.machines[key(&o)] = machine{o.Status.Phase, o.Status.HostRef, o.Status.ProviderID, o.Status.NodeName,
			drifted, o.DeletionTimestamp != nil}
	}
	for _, o := range claims.Items {
		drifted := o.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue()
		state.claims[key(&o)] = claim{o.Spec, o.Status.ProviderID, drifted, o.DeletionTimestamp != nil}
	}
	for _, o := range nodes.Items {
		state.nodes[key(&o)] = node{o.Spec.ProviderID, o.Spec.Taints, o.DeletionTimestamp != nil}
	}
	for _, o := range pods.Items {
		state.pods[key(&o)] = pod{o.Spec.NodeName, o.Status.Phase, o.DeletionTimestamp != nil}
	}
	return state
}

func key(object client.Object) string { return object.GetName() + " " + string(object.GetUID()) }

// checkUntouched fails if anything is not as it was.
func (r *rehearsal) checkUntouched(t *testing.T, before inUse) {
	t.Helper()
	if diff := cmp.Diff(before, r.now(t), cmp.AllowUnexported(inUse{})); diff != "" {
		t.Errorf("after this, what was in use is not as before (-before +now):\n%s", diff)
	}
}

// looks are the controllers that look at all Machines or NodeClaims when their program starts, and could touch them.
var looks = map[string][]string{
	sandbox.ManagerName:  {"machine"},
	sandbox.ProviderName: {"nodeclaim.lifecycle", "nodeclaim.disruption"},
}

// awaitWork waits until the programs that run have looked at everything in use, of which there is at least so much, and have done what they
// had to do.
func (r *rehearsal) awaitWork(t *testing.T, count int) {
	t.Helper()
	for program, url := range r.metrics {
		poll.Eventually(t, program+" has done its work", func(ctx context.Context) error {
			metrics, err := scrape(ctx, url)
			if err != nil {
				return err
			}
			for _, controller := range looks[program] {
				if seen := sum(metrics["controller_runtime_reconcile_total"], "controller", controller); seen < float64(count) {
					return fmt.Errorf("controller %s has looked at %v of %d objects", controller, seen, count)
				}
				if busy := sum(metrics["controller_runtime_active_workers"], "controller", controller); busy > 0 {
					return fmt.Errorf("controller %s works on %v objects", controller, busy)
				}
			}
			if waiting := sum(metrics["workqueue_depth"], "", ""); waiting > 0 {
				return fmt.Errorf("%v objects wait", waiting)
			}
			if program == sandbox.ProviderName {
				const decisions = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds"
				if sum(metrics[decisions], "reason", "drifted") == 0 {
					return errors.New("it has not thought about drift")
				}
			}
			return nil
		})
	}
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// sum adds the values of a metric with a label, or all of them.
func sum(family *dto.MetricFamily, name, value string) (total float64) {
	for _, metric := range family.GetMetric() {
		matches := name == ""
		for _, label := range metric.GetLabel() {
			matches = matches || label.GetName() == name && label.GetValue() == value
		}
		if matches {
			total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return total
}
