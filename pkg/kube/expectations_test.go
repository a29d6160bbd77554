// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestExpectationsExpire: a version that the cache never shows is not expected forever.
func TestExpectationsExpire(t *testing.T) {
	e, now := &Expectations{}, time.Now()
	version := func(text string) *corev1.Secret {
		secret := &corev1.Secret{}
		secret.Name, secret.ResourceVersion = "m", text
		return secret
	}
	e.Expect(version("10"), now)
	if e.Satisfied(version("9"), now) {
		t.Error("the cache is behind")
	}
	if !e.Satisfied(version("9"), now.Add(expectationsTimeout)) {
		t.Error("a cache that has gone back is waited for")
	}
	e.Expect(version("10"), now)
	if !e.Satisfied(version("10"), now) || len(e.expected) > 0 {
		t.Error("a version that the cache shows is still expected")
	}
}
