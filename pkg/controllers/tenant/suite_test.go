// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant_test tests the controllers of garbagecollection, drift, nodeclass and unschedulable by what they do to objects. They share
// one API server, because starting one costs more than most of these tests.
package tenant_test

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }
