// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-example prints a line. The test of releases packs it as a plugin of kubectl.
package main

import "fmt"

func main() { fmt.Println("example") }
