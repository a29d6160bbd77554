// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	connecting sync.Once
	connection client.WithWatch
	refusal    error
)

// sharedConnection is one connection for all tests: discovery takes longer than a whole cycle.
func sharedConnection(t *testing.T) client.WithWatch {
	t.Helper()
	connecting.Do(func() {
		connection, refusal = client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
	return connection
}
