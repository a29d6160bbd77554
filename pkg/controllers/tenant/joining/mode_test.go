// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// setType gives the Machine a NodeType that sets something aside.
func (w *fixture) setType() {
	w.Helper()
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "type-" + w.cluster.Namespace}, Spec: v1alpha1.NodeTypeSpec{
		ProviderRef: v1alpha1.NameReference{Name: "fleet"},
	}}
	nodeType.Spec.Resources = env.Resources("cpu", "96", "memory", "768Gi", "pods", "150")
	nodeType.Spec.Overhead = &v1alpha1.NodeTypeOverhead{KubeReserved: env.Resources("memory", "1Gi", "cpu", "500m")}
	if err := environment.Client.Create(w.Context(), nodeType); err != nil {
		w.Fatal(err)
	}
	machine := w.get()
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType.Name}
	if err := environment.Client.Status().Update(w.Context(), machine); err != nil {
		w.Fatal(err)
	}
}

func TestKubeletArguments(t *testing.T) {
	w := newFixture(t)
	w.setType()
	machine := w.get()
	machine.Spec.KubeletArgs = v1alpha1.KubeletArgs{"max-pods": "200"}
	if err := environment.Client.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	join := w.mustHaveJoin()
	if diff := cmp.Diff(map[string]string{"kube-reserved": "cpu=500m,memory=1Gi", "max-pods": "200"}, join.KubeletArgs); diff != "" {
		t.Errorf("the Node has for pods what Karpenter reckons with, and what the Machine asks for (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(join.KubernetesVersion, "v1.") {
		t.Errorf("a server without a kubelet could not install one of version %q", join.KubernetesVersion)
	}
	if got := w.get().ReportedNode().KubernetesVersion; got != join.KubernetesVersion {
		t.Errorf("the Machine is said to be installed with %q, and its server installs %q", got, join.KubernetesVersion)
	}
}

// A Machine that is older than the rules of the API server is not let around them.
func TestKubeletArgumentsOfTheJoin(t *testing.T) {
	w := newFixture(t)
	machine := w.get()
	machine.Spec.KubeletArgs = v1alpha1.KubeletArgs{"kube-reserved": "cpu=1"}
	_, err := w.controller(&faults.Connection{}).Reconcile(t.Context(), machine)
	if err == nil || !strings.Contains(err.Error(), "spec.kubeletArgs of machine "+w.machine.String()) ||
		!strings.Contains(err.Error(), "set the overhead of the NodeType") {
		t.Errorf("got %v", err)
	}
	if machine := w.get(); machine.Spec.Bootstrap.DataSecretName != "" {
		t.Error("the server would boot with it")
	}
}

// TestUpgradeUnderWay: a server joins with the old version while one of the tenant's API servers has it, whichever answers.
func TestUpgradeUnderWay(t *testing.T) {
	w := newFixture(t)
	service := tenanttest.NewService(nil)
	clusters := tenanttest.Clusters(&environment, w.cluster, &faults.Connection{})
	for i, answer := range []string{"35", "36", "35", "36"} {
		service.LeadsTo(tenanttest.Version("1", answer))
		w.machine = client.ObjectKeyFromObject(w.claimedMachine(fmt.Sprintf("%s-%d", w.machine.Name, i)))
		controller := NewController(w.clock, clusters, ClusterCA(clusters.Tenant.Live, environment.Config), w.follows(service.Config()))
		if _, err := controller.Reconcile(t.Context(), w.get()); err != nil {
			t.Fatal(err)
		}
		if got := w.get().ReportedNode().KubernetesVersion; got != "v1.35" {
			t.Errorf("while one of two API servers is new, Machine %d is installed with %q", i, got)
		}
	}
}

// A vCluster's server gets everything that another one gets, in the form that its join script takes.
func TestVCluster(t *testing.T) {
	w := newFixture(t)
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), w.cluster, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Spec.JoinMode = v1alpha1.JoinVCluster
	if err := environment.Client.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	w.setType()
	w.reconcile()
	join := w.mustHaveJoin()
	if join.Mode != v1alpha1.JoinVCluster || join.ProviderID != w.get().Status.ProviderID || join.NodeName != w.machine.Name ||
		join.Labels["team"] != "blue" ||
		join.KubeletArgs["kube-reserved"] != "cpu=500m,memory=1Gi" || join.KubeletArgs["max-pods"] != "150" || len(join.CACertificates) == 0 {
		t.Errorf("something is missing: %+v", join)
	}
	if !slices.ContainsFunc(join.Taints, func(taint corev1.Taint) bool { return taint.Key == "karpenter.sh/unregistered" }) {
		t.Errorf("pods could land on it before Karpenter knows it: %v", join.Taints)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + join.Token.ID()}
	if err := environment.Client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	for label, value := range map[string]string{"vcluster.loft.sh/token": "true", "vcluster.loft.sh/token-node-type": "worker"} {
		if secret.Labels[label] != value {
			t.Errorf("vCluster's own tokens have the label %s: %q, this one has %v", label, value, secret.Labels)
		}
	}
	// The token is kept while the server boots, as in the other mode.
	w.reconcile()
	if again := w.mustHaveJoin(); again.Token != join.Token {
		t.Error("the server was given another token")
	}
	w.register(w.machine.Name, join.ProviderID)
	w.reconcile()
	w.mustHaveJoined(w.machine.Name)
}
