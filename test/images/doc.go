// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images tests the container images of `make images` in bin/images: their names in the charts, their platforms
// and users, and that they are reproducible. It reads the archives without the library that writes them.
package images
