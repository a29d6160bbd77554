// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs issues the certificates of the webhook and renews them, without a failed request. They are in a Secret that
// all replicas share; the first replica writes it, and all serve its certificate.
//
// A new certificate authority is published beside the old one before it signs anything: as long as an API server may not
// trust it, the certificate is signed by the old one. This needs neither a restart nor files.
package certs
