// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs makes the certificates of the webhook and renews them in time, without a request that fails. They are in
// a Secret that all replicas share; whichever comes first writes it, and all serve what is in it.
//
// A new certificate authority is first made known beside the old one, and only then used: as long as an API server may
// not have heard of it, what is served is signed by the old one. Nothing of this needs a restart, or files.
package certs
