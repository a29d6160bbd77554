// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images looks at the container images that `make images` has put into bin/images: whether they are what the
// charts run, for which processors, as whom, and whether building them again gives the same. It reads the archives by
// itself, not with the library that writes them.
package images
