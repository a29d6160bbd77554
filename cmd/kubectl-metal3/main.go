// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-metal3 shows the fleet of bare-metal servers, explains why something waits, and takes servers in
// and out of the pool. It is a plugin of kubectl and has the rights of the person who runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

const (
	exitWrong = 1
	exitError = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

// errWrong means that the command has already printed what is wrong.
var errWrong = errors.New("something is wrong")

func run(ctx context.Context, streams genericiooptions.IOStreams, arguments []string) int {
	// The command itself prints what a person needs to know.
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	return newOptions(streams).run(ctx, arguments)
}

func (o *options) run(ctx context.Context, arguments []string) int {
	command := o.command()
	command.SetArgs(arguments)
	switch err := command.ExecuteContext(ctx); {
	case err == nil:
		return 0
	case errors.Is(err, errWrong):
		return exitWrong
	default:
		fmt.Fprintf(o.ErrOut, "error: %s\n", view.Shown(err.Error()))
		return exitError
	}
}
