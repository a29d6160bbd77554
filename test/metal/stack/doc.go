// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stack runs a management cluster of real parts: etcd and kube-apiserver, baremetal-operator, Ironic, and our
// manager with its rights of config/rbac. Only the metal is emulated, by a rack of servers that speak Redfish
// (test/emulator/cmd/rack). Everything runs on loopback and in one directory, and ends with the stack. For a management
// cluster that exists, such as one of kind, only Ironic and the operator run, for a rack elsewhere.
package stack
