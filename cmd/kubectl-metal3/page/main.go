// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command page runs in the management cluster, behind a proxy that signs people in. It serves the page of kubectl's
// plugin to many readers: each sees what their own token may read. It has no rights of its own and writes nothing.
package main

import (
	"context"
	"os"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// name is the name of the binary and of its user agent.
const name = "karpenter-metal3-page"

func main() {
	o := newOptions()
	os.Exit(operator.Run(operator.NewCommand(operator.Command{
		Name:  name,
		Short: "Shows the fleet of bare-metal servers in the browser",
		Long: "The page runs in the management cluster, behind a proxy that signs people in and hands each request on with the user's\n" +
			"token for the API server. With that token, and with no right of its own, it reads the fleet. It shows a reader nothing\n" +
			"that was read with the token of another, and it writes nothing.",
		Flags: o.addFlags,
		Run:   func(ctx context.Context) error { return run(ctx, o) },
	})))
}
