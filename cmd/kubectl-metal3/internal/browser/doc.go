// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package browser tests the page of kubectl metal3 ui with Debian's Chromium, which "make chromium" unpacks, and
// takes its screenshots.
package browser
