// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// environment serves an old version of claims, too.
var environment = env.Environment{Flags: []string{"--runtime-config=resource.k8s.io/v1beta1=true"}}

func TestMain(m *testing.M) { env.Main(m, &environment) }

// withoutPolicies deletes the policies that tests before have left, and waits until each attempt is admitted.
func withoutPolicies(t *testing.T, attempts ...func() error) {
	t.Helper()
	for _, kind := range []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{},
	} {
		if err := environment.Client.DeleteAllOf(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
	}
	for _, attempt := range attempts {
		poll.Eventually(t, "no policy is in force", func(context.Context) error { return attempt() })
	}
}

// enforce creates policies, and waits until each attempt is refused: a policy is not in force at once.
func enforce(t *testing.T, policies []client.Object, attempts ...func() error) {
	t.Helper()
	for _, object := range policies {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, attempt := range attempts {
		poll.Eventually(t, "the policy is in force", func(context.Context) error {
			if err := attempt(); !apierrors.IsForbidden(err) {
				return errors.Join(errors.New("it is admitted"), err)
			}
			return nil
		})
	}
}

// judge fails the test if an attempt with this answer is not admitted, or is not refused with all of the texts.
func judge(t *testing.T, reason string, err error, admitted bool, texts ...string) {
	t.Helper()
	lacks := func(text string) bool { return !strings.Contains(err.Error(), text) }
	if admitted && err != nil || !admitted && (!apierrors.IsForbidden(err) || slices.ContainsFunc(texts, lacks)) {
		t.Errorf("%s: %v", reason, err)
	}
}

// writers is a group with every right on Machines, and no other.
const writers = "writers"

func allow(t *testing.T, namespace string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: writers}
	environment.Give(t,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group}, Resources: []string{"machines"},
			Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: writers},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: writers}}},
	)
}

// hostNamespace makes the namespace of servers, in which manager.yaml binds a Role.
func hostNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := environment.Client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// labelled gives a Machine so many labels.
func labelled(machine *v1alpha1.Machine, count int) *v1alpha1.Machine {
	machine.Labels = map[string]string{}
	for n := range count {
		machine.Labels[fmt.Sprintf("example.com/label-%d", n)] = "x"
	}
	return machine
}

// TestMachines: with the token of a tenant's provider no user can answer for the network controller, claim by the identity of
// another Machine, or hold a Machine. What the provider and the manager write is admitted.
func TestMachines(t *testing.T) {
	const provider = "karpenter-metal3-provider"
	namespace := environment.Namespace(t)
	hostNamespace(t, "metal3-system")
	environment.Grant(t, namespace, "provider-management.yaml", "manager.yaml")
	allow(t, namespace)
	policies, err := Management(Options{Users: []string{"velero"}})
	if err != nil {
		t.Fatal(err)
	}
	policies = slices.DeleteFunc(policies, func(object client.Object) bool { return object.GetName() != "karpenter-metal3-machines" })
	machine := func(annotations map[string]string, finalizers ...string) *v1alpha1.Machine {
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: "m-", Annotations: annotations, Finalizers: finalizers,
		}}
		machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "any"}
		return machine
	}
	reported := func(machine *v1alpha1.Machine) *v1alpha1.Machine {
		machine.ReportNode(func(node *v1alpha1.MachineNode) {
			node.Name, node.Resources = "n", env.Resources("cpu", "1")
			node.Unhealthy = &v1alpha1.UnhealthyNode{Condition: "Ready", Status: corev1.ConditionFalse, Since: metav1.Now()}
		})
		return machine
	}
	claims := func() error {
		claimed := machine(map[string]string{v1alpha1.ClaimUIDAnnotationKey: "x"})
		return environment.As(t, provider).Create(t.Context(), claimed, client.DryRunAll)
	}
	withoutPolicies(t, claims)
	enforce(t, policies, claims)
	hook := v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)
	message := v1alpha1.HookKey(v1alpha1.HookMessagePrefix, v1alpha1.NetworkHook)
	before := v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, "any")
	type annotations = map[string]string
	for name, tc := range map[string]struct {
		reason     string
		user       string
		groups     []string
		before     *v1alpha1.Machine // nil: after is created
		after      *v1alpha1.Machine
		wantRefuse string
	}{
		"Create": {reason: "what the provider does", user: provider, after: machine(annotations{v1alpha1.NodeClaimUIDAnnotationKey: "x"})},
		"Report": {reason: "what the provider does", user: provider, before: machine(annotations{hook: "vlan:1"}, v1alpha1.MachineFinalizer),
			after: reported(machine(annotations{hook: "vlan:1", v1alpha1.RebootAnnotationKey: ""}, v1alpha1.MachineFinalizer))},
		"Labels": {reason: "what NodeClaims have", user: provider, after: labelled(machine(nil), 64)},
		"HoardLabels": {reason: "etcd is shared, and the API server does not bound labels", user: provider, after: labelled(machine(nil), 65),
			wantRefuse: "there are 65, and a Machine may have 64"},
		"CreateClaim": {reason: "of another Machine", user: provider, after: machine(annotations{v1alpha1.ClaimUIDAnnotationKey: "x"}),
			wantRefuse: v1alpha1.ClaimUIDAnnotationKey},
		"CreateHook": {reason: "the server would never come back", user: provider, after: machine(annotations{hook: "x"}), wantRefuse: hook},
		"CreateFinalizer": {reason: "it says that the Machine has a claim", user: provider, after: machine(nil, v1alpha1.MachineFinalizer),
			wantRefuse: v1alpha1.MachineFinalizer},
		"ChangeHook": {reason: "another network", user: provider, before: machine(annotations{hook: "vlan:1"}),
			after: machine(annotations{hook: "vlan:2"}), wantRefuse: hook},
		"RemoveHook": {reason: "no move", user: provider, before: machine(annotations{hook: "vlan:1"}), after: machine(nil), wantRefuse: hook},
		"RemoveClaim": {reason: "another identity", user: provider, before: machine(annotations{v1alpha1.ClaimUIDAnnotationKey: "x"}),
			after: machine(nil), wantRefuse: v1alpha1.ClaimUIDAnnotationKey},
		"Choose": {reason: "the server is the manager's choice", user: provider, before: machine(nil),
			after: machine(annotations{v1alpha1.ChosenHostAnnotationKey: "x"}), wantRefuse: v1alpha1.ChosenHostAnnotationKey},
		"Message": {reason: "operators read it", user: provider, before: machine(nil), after: machine(annotations{message: "x"}),
			wantRefuse: message},
		"HoldInstallation": {reason: "no server waits for a tenant", user: provider, before: machine(nil),
			after: machine(annotations{before: "x"}), wantRefuse: before},
		"RemoveFinalizer": {reason: "the server would go back unseen", user: provider, before: machine(nil, v1alpha1.MachineFinalizer),
			after: machine(nil), wantRefuse: "the manager removes " + v1alpha1.MachineFinalizer},
		"AddFinalizer": {reason: "the TenantCluster could not be deleted", user: provider, before: machine(nil),
			after: machine(nil, "example.com/mine"), wantRefuse: "example.com/mine"},
		"RemoveOther": {reason: "nothing is held by it", user: provider, before: machine(nil, "example.com/mine"), after: machine(nil)},
		"Foreground": {reason: "its dependents would hold it; the API server adds it itself to what is deleted", user: provider,
			before: machine(nil), after: machine(nil, metav1.FinalizerDeleteDependents), wantRefuse: metav1.FinalizerDeleteDependents},
		"Manager": {reason: "it owns all of them", user: ManagerUser, before: machine(annotations{before: "x"}),
			after: machine(annotations{hook: "vlan:1", v1alpha1.ClaimUIDAnnotationKey: "x"}, v1alpha1.MachineFinalizer)},
		"ManagerRemoves": {reason: "it owns all of them", user: ManagerUser,
			before: machine(annotations{hook: "vlan:1"}, v1alpha1.MachineFinalizer), after: machine(nil)},
		"Restore": {reason: "a named user", user: "velero", groups: []string{writers},
			after: machine(annotations{v1alpha1.ClaimUIDAnnotationKey: "x"}, v1alpha1.MachineFinalizer)},
		"Administrator": {reason: "a named group", user: "me", groups: []string{AdministratorsGroup},
			after: machine(annotations{v1alpha1.ClaimUIDAnnotationKey: "x"}, v1alpha1.MachineFinalizer)},
		"AdministratorOfKubeadm": {reason: "admin.conf of kubeadm 1.29 and later", user: "kubernetes-admin",
			groups: []string{KubeadmGroup, writers},
			after:  machine(annotations{v1alpha1.ClaimUIDAnnotationKey: "x"}, v1alpha1.MachineFinalizer)},
		"GarbageCollector": {reason: "it ends a deletion in the foreground", user: "system:serviceaccount:kube-system:generic-garbage-collector",
			groups: []string{writers}, before: machine(annotations{hook: "x"}, v1alpha1.MachineFinalizer, metav1.FinalizerDeleteDependents),
			after: machine(annotations{hook: "x"}, v1alpha1.MachineFinalizer)},
	} {
		t.Run(name, func(t *testing.T) {
			c := environment.As(t, tc.user, tc.groups...)
			var err error
			if tc.before == nil {
				err = c.Create(t.Context(), tc.after)
			} else {
				if err := environment.Client.Create(t.Context(), tc.before); err != nil {
					t.Fatal(err)
				}
				after := tc.before.DeepCopy()
				after.Annotations, after.Finalizers, after.Spec.Node = tc.after.Annotations, tc.after.Finalizers, tc.after.Spec.Node
				err = c.Patch(t.Context(), after, client.MergeFrom(tc.before))
			}
			judge(t, tc.reason, err, tc.wantRefuse == "", tc.wantRefuse, "karpenter-metal3-machines")
		})
	}
	// Deleting is for everyone with the right to it, as before: the namespace controller and the garbage collector among them.
	collector := environment.As(t, "collector", writers)
	if err := collector.DeleteAllOf(t.Context(), &v1alpha1.Machine{}, client.InNamespace(namespace)); err != nil {
		t.Error(err)
	}
}
