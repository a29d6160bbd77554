// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant has the controllers of the provider in the packages below, one for each concern. Each registers with the manager of
// the tenant cluster. What they share is in pkg/tenant.
package tenant
