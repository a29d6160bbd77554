// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vcluster knows how vCluster marks what belongs to a tenant on the host: the names, labels and annotations by
// which its syncers find the objects of one another. The rules are those of vCluster v0.30.0, pkg/util/translate.
package vcluster

import "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"

// HostName returns the name on the host of a tenant's object, or an error if it would not be unique. See package names.
func HostName(name, namespace, tenant string) (string, error) {
	return names.HostName(name, namespace, tenant)
}

// CheckTenant returns an error if no names on the host can be made with the name of a tenant.
func CheckTenant(tenant string) error { return names.CheckTenant(tenant) }
