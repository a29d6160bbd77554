// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade rehearses docs/upgrade.md with servers in use: an earlier version, built from the history and installed by its
// charts, is upgraded to the present one, rolled back and upgraded again. Nothing that is in use may be touched.
package upgrade
