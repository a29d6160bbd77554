// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package freeport

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// askVariable makes this test's program a process that asks for ports, prints them, and keeps them until its input ends.
const askVariable = "FREEPORT_TEST_ASK"

func TestMain(m *testing.M) {
	if os.Getenv(askVariable) == "" {
		os.Exit(m.Run())
	}
	free, err := Reserve(asked)
	fmt.Println(free, err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// asked is how many ports a process asks for. Of as many that Linux chose, and that were released before use, some were the same.
const asked = 500

// TestProcesses: processes that ask at the same time have no port in common, and none that Linux gives to others. A port can be had
// again when the process that had it was killed.
func TestProcesses(t *testing.T) {
	var low, high int
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		t.Fatal(err)
	}
	var processes []*exec.Cmd
	var outputs []*bufio.Reader
	for range 4 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), askVariable+"=yes")
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if _, err := command.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		output, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		processes, outputs = append(processes, command), append(outputs, bufio.NewReader(output))
	}
	seen := map[string]bool{}
	for _, output := range outputs {
		line, err := output.ReadString('\n')
		given, ok := strings.CutSuffix(strings.TrimPrefix(line, "["), "] <nil>\n")
		if err != nil || !ok {
			t.Fatalf("%v: %s", err, line)
		}
		for _, port := range strings.Fields(given) {
			var number int
			if _, err := fmt.Sscan(port, &number); err != nil || low <= number && number <= high {
				t.Errorf("port %s is between %d and %d, where Linux takes ports of connections, or %v", port, low, high, err)
			}
			if seen[port] {
				t.Errorf("port %s was given twice", port)
			}
			seen[port] = true
		}
	}
	if len(seen) != 4*asked {
		t.Errorf("%d ports, want %d", len(seen), 4*asked)
	}
	for _, process := range processes {
		_ = process.Process.Kill()
		_ = process.Wait() // it was killed
	}
	for port := range seen {
		var number int
		if _, err := fmt.Sscan(port, &number); err != nil {
			t.Fatal(err)
		}
		if ok, err := take(number); !ok || err != nil {
			t.Fatalf("port %d of a process that was killed is not free, %v", number, err)
		}
		break
	}
}

// TestTaken: a port on which a program listens is given to none, by TCP or UDP.
func TestTaken(t *testing.T) {
	free, err := Reserve(2)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := take(free[0]); ok || err != nil {
		t.Errorf("port %d was given twice, %v", free[0], err)
	}
	stream, err := net.Listen("tcp", address(free[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	datagrams, err := net.ListenPacket("udp", address(free[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	// The locks are released: what is tested is what listens.
	locks.Lock()
	locks.held = slices.DeleteFunc(locks.held, func(lock net.Listener) bool {
		mine := slices.ContainsFunc(free, func(port int) bool { return strings.HasSuffix(lock.Addr().String(), fmt.Sprintf("-%d", port)) })
		return mine && lock.Close() == nil
	})
	locks.Unlock()
	for _, port := range free {
		if ok, err := take(port); ok || err != nil {
			t.Errorf("port %d is given though a program listens on it, %v", port, err)
		}
	}
}
