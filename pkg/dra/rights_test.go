// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
)

// user is the user of our roles.
const user = "karpenter-metal3-provider"

// asUser has the controllers of all tests work with the rights of our roles, and no others.
func asUser(config *rest.Config) *rest.Config {
	limited := rest.CopyConfig(config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: user}
	return limited
}

// grant applies the roles of a file, for one tenant.
func grant(t *testing.T, c client.Client, file, namespace string) {
	t.Helper()
	rights, err := rbac.Read(rbac.Files, file, namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range rights {
		if err := c.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if len(rights) == 0 {
		t.Fatalf("%s has no roles", file)
	}
}
