// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ironic runs a real Ironic: API and conductor in one process, as hack/ironic.sh unpacked it, on loopback, without
// authentication, its database a file. Beside it, in this process, are what it needs of the world: a web server for the
// boot media that it publishes, and the bridge that baremetal-operator talks to it through.
package ironic
