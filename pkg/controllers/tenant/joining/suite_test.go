// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/kubernetesversion"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

// fixture is one tenant with one claimed Machine.
type fixture struct {
	*testing.T
	cluster types.NamespacedName
	clock   *testclock.FakePassiveClock
	machine client.ObjectKey
}

func newFixture(t *testing.T) *fixture {
	w := &fixture{T: t, cluster: tenanttest.TenantCluster(t, &environment),
		clock: testclock.NewFakePassiveClock(time.Date(2030, 1, 1, 12, 5, 0, 0, time.UTC))}
	w.machine = client.ObjectKeyFromObject(w.claimedMachine("pool-" + w.cluster.Namespace))
	return w
}

// claimedMachine creates a Machine as the manager leaves it once it has a server.
func (w *fixture) claimedMachine(name string) *v1alpha1.Machine {
	w.Helper()
	machine := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.cluster.Namespace, Name: name,
			Finalizers: []string{v1alpha1.MachineFinalizer},
			Labels:     map[string]string{v1alpha1.NodeClaimLabelKey: name},
		},
		Spec: v1alpha1.MachineSpec{
			NodeTypeRef:      &v1alpha1.NameReference{Name: "h100-8x"},
			TenantClusterRef: &v1alpha1.NameReference{Name: w.cluster.Name},
			Labels:           map[string]string{"team": "blue"},
		},
	}
	if err := environment.Client.Create(w.Context(), machine); err != nil {
		w.Fatal(err)
	}
	machine.Status = v1alpha1.MachineStatus{
		ProviderID: v1alpha1.ProviderID("metal3-system", "server-01", name),
		NodeLabels: map[string]string{"rack": "a"},
	}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonClaimed,
	})
	if err := environment.Client.Status().Update(w.Context(), machine); err != nil {
		w.Fatal(err)
	}
	return machine
}

// follows is the version that servers of the tenant follow, as a provider says that was just started.
func (w *fixture) follows(config *rest.Config) VersionSource {
	w.Helper()
	versions, err := kubernetesversion.NewController(w.clock, tenanttest.Clusters(&environment, w.cluster, &faults.Connection{}), config)
	if err != nil {
		w.Fatal(err)
	}
	return versions.Least
}

// timed is a client of an API server whose clock is the fixture's. That of the machine is not asked.
func (w *fixture) timed(c client.Client) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, object, opts...)
			if _, isReview := object.(*authenticationv1.SelfSubjectReview); isReview {
				object.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
			}
			return err
		}})
}

// controller starts a controller again, as after a crash.
func (w *fixture) controller(process *faults.Connection) *Controller {
	w.Helper()
	clusters := tenanttest.Clusters(&environment, w.cluster, process)
	clusters.Tenant.Client = w.timed(clusters.Tenant.Client)
	return NewController(w.clock, clusters, ClusterCA(clusters.Tenant.Live, environment.Config), w.follows(environment.Config))
}

// reconcile lets a controller that does not die look at the Machine once.
func (w *fixture) reconcile() reconcile.Result {
	w.Helper()
	result, err := w.controller(&faults.Connection{}).Reconcile(w.Context(), w.get())
	if err != nil {
		w.Fatal(err)
	}
	return result
}

func (w *fixture) get() *v1alpha1.Machine {
	w.Helper()
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(w.Context(), w.machine, machine); err != nil {
		w.Fatal(err)
	}
	return machine
}

// tokens returns the join tokens in the tenant for any Machine of this fixture's namespace.
func (w *fixture) tokens() []corev1.Secret {
	w.Helper()
	list := &corev1.SecretList{}
	if err := environment.Client.List(w.Context(), list, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(w.get().UID)}); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// secrets returns all secrets in the Machine's namespace.
func (w *fixture) secrets() []corev1.Secret {
	w.Helper()
	list := &corev1.SecretList{}
	if err := environment.Client.List(w.Context(), list, client.InNamespace(w.cluster.Namespace)); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

func (w *fixture) register(name, providerID string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	if err := environment.Client.Create(w.Context(), node); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := environment.Client.Delete(w.Context(), node); err != nil && !apierrors.IsNotFound(err) {
			w.Logf("deleting a node, %v", err)
		}
	})
	return node
}

// mustHaveJoin checks that the Machine has what it takes to join, once.
func (w *fixture) mustHaveJoin() bootstrap.Join {
	w.Helper()
	machine, tokens, secrets := w.get(), w.tokens(), w.secrets()
	if len(tokens) != 1 || len(secrets) != 1 {
		w.Fatalf("there are %d tokens and %d secrets, want one of each", len(tokens), len(secrets))
	}
	if machine.Spec.Bootstrap.DataSecretName != secrets[0].Name {
		w.Fatalf("the machine's user data is %q, want %q", machine.Spec.Bootstrap.DataSecretName, secrets[0].Name)
	}
	if !metav1.IsControlledBy(&secrets[0], machine) {
		w.Errorf("the machine does not own its user data: %v", secrets[0].OwnerReferences)
	}
	join, err := emulator.ReadJoin(secrets[0].Data[v1alpha1.UserDataSecretKey])
	if err != nil {
		w.Fatal(err)
	}
	if half := string(tokens[0].Data["token-secret"]); half != join.Token.SecretHalf() {
		w.Errorf("the token in the user data is not the one that the tenant knows")
	}
	return join
}

// mustHaveJoined checks that the manager is told, and that no token is left anywhere.
func (w *fixture) mustHaveJoined(node string) {
	w.Helper()
	if got := w.get().ReportedNode().Name; got != node {
		w.Errorf("the machine's node is %q, want %q", got, node)
	}
	w.mustHaveNothing()
}

// mustHaveNothing checks that no token is left anywhere. Kubernetes deletes empty Secrets with the Machine.
func (w *fixture) mustHaveNothing() {
	w.Helper()
	if tokens := w.tokens(); len(tokens) != 0 {
		w.Errorf("there are %d tokens, want none", len(tokens))
	}
	if !allEmpty(w.secrets()) {
		w.Errorf("the user data has not been used up: %d secrets", len(w.secrets()))
	}
}

func allEmpty(secrets []corev1.Secret) bool {
	return !slices.ContainsFunc(secrets, func(secret corev1.Secret) bool { return len(secret.Data) != 1 || !isRevoked(&secret) })
}
