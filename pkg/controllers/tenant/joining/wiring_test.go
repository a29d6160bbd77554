// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// With caches and watches: a claimed Machine is seen in one cluster, and its Node in the other.
func TestWatches(t *testing.T) {
	w := newFixture(t)
	tenanttest.Run(t, &environment, w.cluster, func(clusters tenant.Clusters, m manager.Manager) tenanttest.Registrar {
		return NewController(w.clock, clusters, ClusterCA(m.GetAPIReader(), m.GetConfig()), w.follows(environment.Config))
	})
	tenanttest.Eventually(t, "the machine may join", func(context.Context) (bool, error) {
		return w.get().Spec.Bootstrap.DataSecretName != "", nil
	})
	w.mustHaveJoin()
	w.register(w.machine.Name, w.get().Status.ProviderID)
	tenanttest.Eventually(t, "the token is gone", func(context.Context) (bool, error) {
		secrets := w.secrets()
		return len(w.tokens()) == 0 && len(secrets) == 1 && allEmpty(secrets), nil
	})
	w.mustHaveJoined(w.machine.Name)
}
