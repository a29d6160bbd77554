// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream keeps what Karpenter's regression suite imports in this module's go.mod. The suite is nothing but test
// files, so it cannot be named there as a tool.
package upstream

import (
	_ "sigs.k8s.io/karpenter/pkg/test/expectations"
	_ "sigs.k8s.io/karpenter/test/pkg/environment/common"
)
