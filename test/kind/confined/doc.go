// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package confined tests the scripts of this folder, which run a command beside a Docker daemon and a node image for kind on a machine
// that has neither. README.md says what is different there.
package confined
