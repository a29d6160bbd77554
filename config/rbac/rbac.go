// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac holds the rights that our programs need, as roles and their bindings in YAML: manager.yaml for the
// manager in the management cluster, provider-management.yaml for a tenant's provider there, provider-tenant.yaml for
// the provider in its tenant cluster, and provider-dra-management.yaml and provider-dra-tenant.yaml for the sync of
// Dynamic Resource Allocation; webhook.yaml is for the webhook in the management cluster, and manager-webhook.yaml for the
// manager where it makes the certificates of the webhook. The files are templates: .Namespace is the tenant's namespace in
// the management cluster, and in the last two the namespace that the webhook runs in. In manager.yaml the servers are in
// the namespace metal3-system.
package rbac

import "embed"

// Files are the files of this package, by name.
//
//go:embed *.yaml
var Files embed.FS
