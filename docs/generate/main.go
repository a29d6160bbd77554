// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes docs/reference.md: every field of every kind, from the CustomResourceDefinitions, and the
// properties, keys, conditions and reasons, from the constants of the API package; docs/tenant-fields.md: what of that a tenant writes
// and others read; and docs/troubleshooting.md: what each reason means, and what to do. It runs in the folder of the repository. An
// argument is another folder for the pages, for copies to compare with.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
)

// folders have the exported constants.
var folders = []string{"pkg/apis/v1alpha1", "pkg/inventory", "pkg/webhooks/rules"}

func main() {
	folder := "docs"
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	if err := run(folder); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
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
	crossings, err := tenantFields(words, append(management, tenant...))
	if err != nil {
		return err
	}
	symptoms, err := troubleshooting()
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"reference.md": page.String(), "tenant-fields.md": crossings, "troubleshooting.md": symptoms} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing a page, %w", err)
		}
	}
	return nil
}

const head = `<!-- Generated from pkg/apis by ` + "`make generate`" + `. Do not edit. -->

# Reference: every property, key, condition and field

Quantities, as ` + "`96`" + ` or ` + "`768Gi`" + `, are those of Kubernetes; durations are written like ` + "`90m`" + `. What the admission webhook refuses
beyond what is said here is in [webhook-messages.md](webhook-messages.md).

`
