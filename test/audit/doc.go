// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit configures the audit logs of API servers and reads them, so that tests find the rights that our programs do
// not use. No logs are written unless AUDIT_LOG_DIR is set.
package audit
