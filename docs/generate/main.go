// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes docs/reference.md: every field of every kind, from the CustomResourceDefinitions, and the
// properties, keys, conditions and reasons, from the constants of the API package; and docs/tenant-fields.md: what of that a tenant writes
// and others read. It runs in the folder of the repository. Two arguments are other output files, for copies to compare with.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
)

// folders have the exported constants.
var folders = []string{"pkg/apis/v1alpha1", "pkg/inventory", "pkg/webhooks/rules"}

func main() {
	path, tenantPath := "docs/reference.md", "docs/tenant-fields.md"
	if len(os.Args) > 2 {
		path, tenantPath = os.Args[1], os.Args[2]
	}
	if err := run(path, tenantPath); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(path, tenantPath string) error {
	var page strings.Builder
	page.WriteString(head)
	words, err := constants(folders...)
	if err != nil {
		return err
	}
	words.write(&page)
	management, err := apis.ManagementCRDs()
	if err != nil {
		return err
	}
	tenant, err := apis.TenantCRDs()
	if err != nil {
		return err
	}
	page.WriteString("## Kinds of the management cluster\n")
	for _, crd := range management {
		if err := writeKind(&page, crd); err != nil {
			return err
		}
	}
	page.WriteString("\n## Kinds of a tenant cluster\n\nBeside Karpenter's own, NodePool and NodeClaim.\n")
	for _, crd := range tenant {
		if err := writeKind(&page, crd); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
		return fmt.Errorf("writing the reference, %w", err)
	}
	crossings, err := tenantFields(words, append(management, tenant...))
	if err != nil {
		return err
	}
	if err := os.WriteFile(tenantPath, []byte(crossings), 0o644); err != nil {
		return fmt.Errorf("writing what tenants write, %w", err)
	}
	return nil
}

const head = `<!-- Generated from pkg/apis by ` + "`make generate`" + `. Do not edit. -->

# Reference: every property, key, condition and field

Quantities, as ` + "`96`" + ` or ` + "`768Gi`" + `, are those of Kubernetes; durations are written like ` + "`90m`" + `. What the admission webhook refuses
beyond what is said here is in [webhooks.md](webhooks.md).

`
