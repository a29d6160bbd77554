// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks tests cmd/webhook from outside: a real API server asks a real process, and kubectl prints what comes
// of it.
package webhooks
