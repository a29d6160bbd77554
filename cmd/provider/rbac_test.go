// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// TestRightsCoverARenewal: the token of a server that takes long to boot is written again every 20 minutes, which no
// test that runs the whole program waits for.
func TestRightsCoverARenewal(t *testing.T) {
	w := newFixture(t)
	grant(t, w, "provider-tenant.yaml")
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	machine := v1alpha1.MachineReference{Namespace: w.namespace, Name: "slow", UID: types.UID(w.namespace)}
	t.Cleanup(func() { _ = bootstrap.DeleteToken(context.Background(), environment.Client, machine) })
	for _, validity := range []time.Duration{time.Hour, 2 * time.Hour} {
		deadline := time.Now().Add(validity)
		if _, err := bootstrap.EnsureToken(t.Context(), c, machine, v1alpha1.JoinKubeadm, deadline); err != nil {
			t.Errorf("valid for %v: %v", validity, err)
		}
	}
	if err := bootstrap.DeleteToken(t.Context(), c, machine); err != nil {
		t.Error(err)
	}
}
