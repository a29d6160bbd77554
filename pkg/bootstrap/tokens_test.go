// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

var (
	now      = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	machine  = v1alpha1.MachineReference{Namespace: "tenant-a", Name: "gpu-7f3k2", UID: "11111111-1111-1111-1111-111111111111"}
	stranger = v1alpha1.MachineReference{Namespace: "tenant-a", Name: "gpu-other", UID: "22222222-2222-2222-2222-222222222222"}
)

func tokenSecretWithID(t *testing.T, m v1alpha1.MachineReference, id string, deadline time.Time) *corev1.Secret {
	t.Helper()
	token, err := NewToken(id)
	if err != nil {
		t.Fatal(err)
	}
	return TokenSecret(m, v1alpha1.JoinKubeadm, token, deadline)
}

func TestEnsureToken(t *testing.T) {
	deadline := now.Add(time.Hour)
	cases := map[string]struct {
		reason   string
		machine  v1alpha1.MachineReference
		mode     v1alpha1.JoinMode
		existing []client.Object
		deadline time.Time
		funcs    interceptor.Funcs
		wantID   string
		wantErr  string
		// wantKept: the secret half of the first existing object is what comes back.
		wantKept bool
	}{
		"New": {reason: "nothing there", machine: machine, deadline: deadline, wantID: TokenID(machine.UID, 0)},
		"NoUID": {reason: "all Machines without UID would share a token", machine: v1alpha1.MachineReference{Name: "a"}, deadline: deadline,
			wantErr: "has no UID"},
		"Again": {reason: "user data may hold it already", machine: machine, deadline: deadline,
			existing: []client.Object{tokenSecretWithID(t, machine, TokenID(machine.UID, 0), deadline)},
			wantID:   TokenID(machine.UID, 0), wantKept: true},
		"Renew": {reason: "a slow server needs it longer", machine: machine, deadline: deadline,
			existing: []client.Object{tokenSecretWithID(t, machine, TokenID(machine.UID, 0), now.Add(-time.Minute))},
			wantID:   TokenID(machine.UID, 0), wantKept: true},
		"Labels": {reason: "the TenantCluster has changed its mode, or we are newer than the token", machine: machine,
			mode: v1alpha1.JoinVCluster, deadline: deadline,
			existing: []client.Object{tokenSecretWithID(t, machine, TokenID(machine.UID, 0), deadline)},
			wantID:   TokenID(machine.UID, 0), wantKept: true},
		"Salted": {reason: "a crash after a collision finds its own token", machine: machine, deadline: deadline,
			existing: []client.Object{tokenSecretWithID(t, machine, TokenID(machine.UID, 1), deadline)},
			wantID:   TokenID(machine.UID, 1), wantKept: true},
		"Collision": {reason: "another Machine's token is not taken", machine: machine, deadline: deadline,
			existing: []client.Object{tokenSecretWithID(t, stranger, TokenID(machine.UID, 0), deadline)},
			wantID:   TokenID(machine.UID, 1)},
		"AllTaken": {reason: "it ends", machine: machine, deadline: deadline,
			existing: []client.Object{
				tokenSecretWithID(t, stranger, TokenID(machine.UID, 0), deadline), tokenSecretWithID(t, stranger, TokenID(machine.UID, 1), deadline),
				tokenSecretWithID(t, stranger, TokenID(machine.UID, 2), deadline), tokenSecretWithID(t, stranger, TokenID(machine.UID, 3), deadline),
				tokenSecretWithID(t, stranger, TokenID(machine.UID, 4), deadline)},
			wantErr: "all taken"},
		"Race": {reason: "another caller made it after the list", machine: machine, deadline: deadline,
			existing: []client.Object{tokenSecretWithID(t, machine, TokenID(machine.UID, 0), deadline)},
			funcs: interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return nil
			}},
			wantID: TokenID(machine.UID, 0), wantKept: true},
		"Damaged": {reason: "it must not hand out half a token", machine: machine, deadline: deadline,
			existing: []client.Object{func() client.Object {
				s := tokenSecretWithID(t, machine, TokenID(machine.UID, 0), deadline)
				delete(s.Data, bootstrapapi.BootstrapTokenSecretKey)
				return s
			}()},
			wantErr: "is damaged"},
		"Outage": {reason: "an API that is down is an error, not a new token", machine: machine, deadline: deadline,
			funcs: interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("connection refused")
			}},
			wantErr: "listing token secrets, connection refused"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plain := fake.NewClientBuilder().WithObjects(tc.existing...).Build()
			c := interceptor.NewClient(plain, tc.funcs)
			got, err := EnsureToken(t.Context(), c, tc.machine, tc.mode, tc.deadline)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("%s: error %v does not say %q", tc.reason, err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if got.ID() != tc.wantID {
				t.Errorf("%s: got ID %s, want %s", tc.reason, got.ID(), tc.wantID)
			}
			if tc.wantKept {
				if kept, err := tokenOf(tc.existing[0].(*corev1.Secret)); err != nil || kept != got {
					t.Errorf("%s: the token changed", tc.reason)
				}
			}
			secret := &corev1.Secret{}
			key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + tc.wantID}
			if err := plain.Get(t.Context(), key, secret); err != nil {
				t.Fatal(err)
			}
			want := TokenSecret(machine, tc.mode, got, deadline)
			if diff := cmp.Diff(want.Data, secret.Data); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(want.Labels, secret.Labels); diff != "" {
				t.Errorf("%s: labels, -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDeleteToken(t *testing.T) {
	ours := tokenSecretWithID(t, machine, TokenID(machine.UID, 0), now)
	theirs := tokenSecretWithID(t, stranger, TokenID(stranger.UID, 0), now)
	other := ours.DeepCopy()
	other.Name, other.Type = "not-a-token", corev1.SecretTypeOpaque
	c := fake.NewClientBuilder().WithObjects(ours, theirs, other).Build()
	for range 2 { // the second time there is nothing to delete
		if err := DeleteToken(t.Context(), c, machine); err != nil {
			t.Fatal(err)
		}
		left := &corev1.SecretList{}
		if err := c.List(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, secret := range left.Items {
			names = append(names, secret.Name)
		}
		if diff := cmp.Diff([]string{theirs.Name, other.Name}, names); diff != "" {
			t.Errorf("only the Machine's own token may go, -want +got:\n%s", diff)
		}
	}
}
