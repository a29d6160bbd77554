// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command workload runs in the pods of tests. It prints one line with its node and its accelerators, with --environment
// after its environment, and then waits for SIGTERM, or, with --once, ends.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	once := flag.Bool("once", false, "end after the line is written")
	environment := flag.Bool("environment", false, "print the environment first")
	flag.Parse()
	if *environment {
		fmt.Println(strings.Join(os.Environ(), "\n"))
	}
	hostname, err := os.Hostname()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: asking for the hostname,", err)
		os.Exit(1)
	}
	fmt.Printf("workload: pod %s on node %s with accelerators %s\n",
		hostname, cmp.Or(os.Getenv("NODE_NAME"), "(unknown)"), cmp.Or(os.Getenv("VISIBLE_DEVICES"), "(none)"))
	if *once {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
}
