// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// dirKey turns the test binary into a process that holds the lock of a directory until SIGTERM.
const dirKey = "SANDBOX_TEST_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(dirKey)
	if dir == "" {
		os.Exit(m.Run())
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	lock, err := acquire(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("locked")
	<-end
	lock.release()
}
