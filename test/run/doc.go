// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Run runs `go test` for `make test` and `make test-system`: as many packages at a time as cores and memory allow. It
// prints each package when it has ended, each failed test with its output, and the running tests when nothing has ended
// for half a minute.
package main
