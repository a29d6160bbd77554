// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks validates what is written to the management cluster. It decodes admission requests, applies
// pkg/webhooks/rules, and encodes the result. It writes nothing, so that a dry run is like any other request.
package webhooks
