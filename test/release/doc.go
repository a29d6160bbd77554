// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release tests `make release` and `make release-push`: two checkouts of one commit make the same files, these are what they say of
// themselves, and charts are installed from a registry where signatures hold. It reads all of it without the libraries that write it. The
// key in testdata is one of cosign's own, with the password "not-a-secret", and signs nothing else.
package release
