// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// invited makes the token of a Machine, which need not exist.
func invited(t *testing.T, namespace, name string, uid types.UID) *corev1.Secret {
	t.Helper()
	made, err := bootstrap.EnsureToken(t.Context(), environment.Client, v1alpha1.MachineReference{Namespace: namespace, Name: name, UID: uid},
		v1alpha1.JoinKubeadm, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + made.ID()}}
}

// uidFrom makes a UID of its own for each test, as tokens of all tests are in one namespace.
func uidFrom(cluster types.NamespacedName, n int) types.UID {
	return types.UID(fmt.Sprintf("uid-%d-%s", n, cluster.Namespace))
}

func TestLeftovers(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	alive := createMachine(t, cluster, "alive", "x")
	other := tenanttest.TenantCluster(t, &environment)

	keptToken := invited(t, cluster.Namespace, "alive", alive.UID)
	otherToken := invited(t, other.Namespace, "gone", uidFrom(other, 1))
	goneToken := invited(t, cluster.Namespace, "gone", uidFrom(cluster, 1))
	joined := createMachine(t, cluster, "joined", "x")
	before := joined.DeepCopy()
	joined.ReportNode(func(node *v1alpha1.MachineNode) { node.Name = "node" })
	if err := environment.Client.Patch(t.Context(), joined, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	lateToken := invited(t, cluster.Namespace, "joined", joined.UID)

	// The controller crashes before each of its writes in turn, and the next one continues.
	for writes := 0; ; writes++ {
		process := &faults.Connection{Kind: faults.Crash, At: min(writes, 1)}
		_, err := garbagecollection.NewLeftoverController(tenanttest.Clusters(&environment, cluster, process)).Reconcile(t.Context())
		if !process.Dead() {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, faults.ErrDead) {
			t.Fatalf("got error %v", err)
		}
	}
	for name, tc := range map[string]struct {
		reason string
		secret *corev1.Secret
		want   bool
	}{
		"Token":         {"its Machine is there", keptToken, true},
		"OtherToken":    {"it is of another provider's namespace", otherToken, true},
		"LateToken":     {"its Machine has joined: somebody with the provider's credentials has made it", lateToken, false},
		"LeftOverToken": {"its Machine is gone", goneToken, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exists(t, tc.secret); got != tc.want {
				t.Errorf("%s: exists is %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// A new Machine of the same name does not keep what an earlier one has left behind.
func TestLeftoversOfEarlierMachine(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	createMachine(t, cluster, "again", "x")
	token := invited(t, cluster.Namespace, "again", uidFrom(cluster, 1))
	if _, err := garbagecollection.NewLeftoverController(tenanttest.Clusters(&environment, cluster,
		&faults.Connection{})).Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exists(t, token) {
		t.Error("what the earlier machine left behind is still there")
	}
}

func TestLeftoversDuringOutage(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	machine := createMachine(t, cluster, "alive", "x")
	token := invited(t, cluster.Namespace, "alive", machine.UID)
	clusters := tenanttest.Clusters(&environment, cluster, &faults.Connection{})
	machineAnswer := func(answer error) client.Client {
		return interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return answer
			},
		})
	}
	// The cache is empty, as at the start, and the API server does not answer.
	clusters.Management.Client = machineAnswer(apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("machines").GroupResource(), "alive"))
	clusters.Management.Live = machineAnswer(apierrors.NewServiceUnavailable("down"))
	if _, err := garbagecollection.NewLeftoverController(clusters).Reconcile(t.Context()); err == nil {
		t.Error("the controller must try again")
	}
	if !exists(t, token) {
		t.Error("the token of a machine that exists was deleted")
	}
}
