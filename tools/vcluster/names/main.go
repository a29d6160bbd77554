// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// names prints the names that vCluster's own code gives to objects on the host, as a JSON table. It exists to
// make pkg/dra/names/testdata/names.json, with which our own rule is tested:
//
//	go run ./names > ../../pkg/dra/names/testdata/names.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/loft-sh/vcluster/pkg/util/translate"
)

// row is one name and its translation.
type row struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Tenant    string `json:"tenant"`
	Host      string `json:"host"`
	// HostShort is the name of a ResourceClaim or ResourceClaimTemplate.
	HostShort string `json:"hostShort"`
	// ReleaseLabel is the key under which the host has the tenant's label "release".
	ReleaseLabel string `json:"releaseLabel"`
}

func main() {
	var rows []row
	translator := translate.NewSingleNamespaceTranslator("host")
	for _, tenant := range []string{"blue", "my-vcluster", "a", strings.Repeat("t", 40), strings.Repeat("t", 63)} {
		for _, namespace := range []string{"default", "ml", "kube-system", strings.Repeat("n", 63)} {
			for _, name := range []string{
				"gpu", "a", "claim-1", "claim.with.dots", "x", "x-1",
				// Its SHA-256 in namespace ml of tenant blue begins with a zero.
				"claim-154",
				// The whole is 63 characters in namespace ml of tenant blue, and 64.
				strings.Repeat("c", 51), strings.Repeat("c", 52), strings.Repeat("c", 53),
				// The cut falls on a dot, and beside one.
				strings.Repeat("c", 51) + ".d", strings.Repeat("c", 50) + ".d", strings.Repeat("c", 52) + ".d",
				strings.Repeat("c", 51) + "-d",
				strings.Repeat("c", 253),
			} {
				translate.VClusterName = tenant
				rows = append(rows, row{
					Name: name, Namespace: namespace, Tenant: tenant,
					Host:         translate.SingleNamespaceHostName(name, namespace, tenant),
					HostShort:    translator.HostNameShort(nil, name, namespace).Name,
					ReleaseLabel: translate.HostLabel(translate.VClusterReleaseLabel),
				})
			}
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(rows); err != nil {
		fmt.Fprintln(os.Stderr, "error: writing the table,", err)
		os.Exit(1)
	}
}
