// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestKindNotServed: an API server that does not serve Machines, or not in this version, answers 404 too. That says
// nothing about any one of them, and must cost no server and no user data.
func TestKindNotServed(t *testing.T) {
	w := newFixture(t, 1)
	w.create(&corev1.Secret{ObjectMeta: metaIn(w.tenant, "user-data"), Data: map[string][]byte{v1alpha1.UserDataSecretKey: []byte("x")}})
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Bootstrap.DataSecretName = "user-data"
	})
	manager := w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })

	machines := schema.GroupResource{Group: v1alpha1.Group, Resource: "machines"}
	unserved := interceptor.NewClient(w.api.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, ok := object.(*v1alpha1.Machine); ok {
				return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", machines, key.Name, "404 page not found", 0, true)
			}
			return c.Get(ctx, key, object, opts...)
		},
	})
	manager = w.start(unserved)
	if _, err := (OrphanHosts{manager.servers, manager.inventory, manager.recorder}).Reconcile(t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&w.hosts()[0])}); err == nil {
		t.Error("no error for the host")
	}
	if _, err := (OrphanSecrets{manager.servers}).Reconcile(t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&w.secrets()[0])}); err == nil {
		t.Error("no error for the Secret")
	}
	if host := w.hosts()[0]; host.Spec.Image == nil {
		t.Error("the server was emptied")
	}
	if len(w.secrets()) == 0 {
		t.Error("the user data was deleted")
	}
}
