// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler holds the configuration with which kube-scheduler fills one server before the next. By default it puts a
// pod on the node that has the most left, so that servers with accelerators never become empty and are never released.
package scheduler

import _ "embed"

// Packing is that configuration. The chart for tenants has a copy, docs/finite-hardware/packing.md shows it, and the
// tenant of the sandbox runs with it.
//
//go:embed packing.yaml
var Packing []byte
