// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal runs what stands beside kind clusters: for a management cluster Metal3, in one container, and in another a rack of
// emulated servers, which boot as containers in the network of kind. Both containers are of one local image, a Debian with Python
// for Ironic; the programs are mounted from bin/.
package metal
