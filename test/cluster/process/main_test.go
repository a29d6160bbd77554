// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also the program that the tests run, in one of these roles.
const (
	roleKey  = "PROCESS_TEST_ROLE"
	orderKey = "PROCESS_TEST_ORDER" // a file to which an obedient process appends its name at its end
	nameKey  = "PROCESS_TEST_NAME"
	dirKey   = "PROCESS_TEST_DIR"

	roleObedient   = "obedient"   // ends on SIGTERM
	roleStubborn   = "stubborn"   // ignores SIGTERM
	roleFailing    = "failing"    // ends at once, with an error
	roleEnvironed  = "environed"  // prints its environment, and ends
	roleSupervisor = "supervisor" // supervises a stubborn process, and prints its pid
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleKey) {
	case "":
		os.Exit(m.Run())
	case roleObedient:
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		fmt.Println("ready")
		<-end
		fmt.Println("bye")
		if path := os.Getenv(orderKey); path != "" {
			file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				os.Exit(1)
			}
			_, _ = fmt.Fprintln(file, os.Getenv(nameKey))
		}
	case roleStubborn:
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		block()
	case roleFailing:
		fmt.Println("no such luck")
		os.Exit(3)
	case roleEnvironed:
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case roleSupervisor:
		supervise()
	}
}

// supervise runs a process that ignores SIGTERM, and waits to be killed.
func supervise() {
	supervisor, err := NewSupervisor(Options{Dir: os.Getenv(dirKey)})
	if err == nil {
		err = supervisor.Start(Spec{Name: "child", Path: os.Args[0], Env: []string{roleKey + "=" + roleStubborn}})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(supervisor.List()[0].PID)
	block()
}

// block waits for ever; a channel would let the runtime see a deadlock.
func block() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
}
