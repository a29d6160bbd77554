// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package argocd has the health check of our kinds for Argo CD, in Lua. Its tests compare it with kstatus.
package argocd
