// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTooManyPending: a namespace with a quota of 5 has 3 servers, so 12 Machines may wait. An annotation that its provider can write
// counts for nothing.
func TestTooManyPending(t *testing.T) {
	machines := func(waiting int) []client.Object {
		all := []client.Object{
			parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: a, name: a}, spec: {quota: {servers: 5}}}"),
			&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "other"}},
		}
		for n := range 3 + waiting {
			machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("m-%d", n)}}
			machine.SetChosenHost(v1alpha1.HostReference{Namespace: "metal3", Name: "forged", UID: "u"}, "type")
			if n < 3 {
				machine.Status.HostRef = &v1alpha1.HostReference{Name: "server"}
			}
			all = append(all, machine)
		}
		return all
	}
	for waiting, want := range map[int]bool{0: false, 11: false, 12: true, 100: true} {
		view := newCluster(t, interceptor.Funcs{}, machines(waiting)...).For(t.Context())
		if problem := view.TooManyPending("a"); (problem != "") != want || view.Err() != nil {
			t.Errorf("with %d that wait: %q, %v", waiting, problem, view.Err())
		}
		if problem := view.TooManyPending("b"); problem != "" {
			t.Errorf("another namespace: %s", problem)
		}
	}
}
