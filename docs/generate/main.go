// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes docs/reference.md: every field of every kind, from the CustomResourceDefinitions, and the
// properties, keys, conditions and reasons, from the constants of the API package. It runs in the folder of the
// repository. An argument is another output file, for a copy to compare with.
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
	path := "docs/reference.md"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := run(path); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(path string) error {
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
	return nil
}

const head = `<!-- Generated from pkg/apis by ` + "`make generate`" + `. Do not edit. -->

# Reference: every property, key, condition and field

Quantities, as ` + "`96`" + ` or ` + "`768Gi`" + `, are those of Kubernetes; durations are written like ` + "`90m`" + `. What the admission webhook refuses
beyond what is said here is in [webhooks.md](webhooks.md).

`
