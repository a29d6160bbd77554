// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestSecretsByNamespace: the manager reads Secrets only in the namespaces that it is given. A Machine elsewhere says what is missing,
// those of other tenants are installed meanwhile, and it is too once the right is there.
func TestSecretsByNamespace(t *testing.T) {
	const other = "other"
	cluster := management.New(t, nil)
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "tenant"}}
	tenant.Spec.APIServerEndpoint = "other.example.com:6443"
	without, allowed := management.Machine(0), management.Machine(1)
	without.Namespace = other
	for _, machine := range []*v1alpha1.Machine{without, allowed} {
		machine.Spec.Bootstrap.DataSecretName = management.UserDataName
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, tenant,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: management.UserDataName},
			Data: map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config\nruncmd:\n- [kubeadm, join]\n")}},
	} {
		if err := cluster.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	cluster.CreateHosts(t, 2)
	cluster.StartManager(t)
	cluster.PlayMetal3(t)
	for _, machine := range []*v1alpha1.Machine{without, allowed} {
		if err := cluster.Client.Create(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	reaches := func(machine *v1alpha1.Machine, phase v1alpha1.MachinePhase, message string) {
		t.Helper()
		poll.Eventually(t, fmt.Sprintf("the Machine in namespace %s is %s", machine.Namespace, phase), func(ctx context.Context) error {
			if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
				return err
			}
			ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady)
			if machine.Status.Phase != phase || ready == nil || !strings.Contains(ready.Message, message) {
				return fmt.Errorf("it is %s: %+v", machine.Status.Phase, ready)
			}
			return nil
		})
	}
	reaches(without, v1alpha1.MachineClaimed, "the manager may not read Secrets in namespace other; install the tenant's chart there")
	reaches(allowed, v1alpha1.MachineProvisioned, "")
	cluster.Grant(t, other, "manager.yaml")
	reaches(without, v1alpha1.MachineProvisioned, "")
}
