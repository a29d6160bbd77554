// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ironic runs a real Ironic: API and conductor in one process, as hack/ironic.sh unpacked it,
// without authentication, its database a file. This process also runs what it needs: a web server for its boot media,
// and the bridge between it and baremetal-operator.
package ironic
