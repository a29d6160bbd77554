// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap builds what a server reads at its first boot:
//
//   - user data for cloud-init (userdata.go): the user's document, SSH keys and the join, as parts of a MIME message;
//   - the join of a tenant cluster (join.go, joinmodes.go), by kubeadm or by the script of a vCluster, with a bootstrap token
//     (tokens.go) and the hashes of the cluster's CA;
//   - documents from templates (template.go, functions.go, limits.go);
//   - the network data of the config drive (network*.go).
//
// All are functions of values, but for those of tokens.go, which call the API of the tenant cluster.
package bootstrap
