// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers the API server of the management cluster whether an object may be written: it takes requests
// apart, has pkg/webhooks/rules look at them, and puts the answers in the API's own form. It writes nothing, so that a
// dry run is like any other request.
package webhooks
