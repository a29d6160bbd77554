// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant holds the provider's controllers in the packages below, one for each concern. Each registers with the
// manager of the tenant cluster. Their common code is in pkg/tenant.
package tenant
