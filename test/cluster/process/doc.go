// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs programs as supervised children: each with a log file and a pid file, in a process group of its
// own, stopped in order, restarted with backoff after an unexpected exit, and killed by the kernel when the supervising
// process ends in any way. It runs on Linux.
package process
