// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeport knows which loopback ports a test may give to programs that it starts. Nothing else takes such a port while the test
// runs: it is outside the range from which Linux by default takes the ports of connections and of listeners at port 0, and it is locked for
// all processes that ask this package.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

const (
	loopback = "127.0.0.1"
	// first and last are above the ports of well-known programs, and below NodePorts (from 30000) and Linux's ephemeral ports (from 32768).
	first, last = 12000, 29999
)

// locks are of the ports that this process has been given. The kernel releases them when the process ends, however it ends.
var locks struct {
	sync.Mutex
	held []net.Listener
}

// Reserve returns as many different ports as asked for. Nothing listens on them on loopback by TCP or UDP, and no process is given any of
// them until this one has ended.
func Reserve(count int) ([]int, error) {
	free := make([]int, 0, count)
	const all = last - first + 1
	for offset, tried := rand.IntN(all), 0; len(free) < count; offset, tried = offset+1, tried+1 {
		if tried == all {
			return nil, fmt.Errorf("finding %d free ports on %s from %d to %d: there are %d", count, loopback, first, last, len(free))
		}
		port := first + offset%all
		ok, err := take(port)
		if err != nil {
			return nil, fmt.Errorf("finding a free port on %s, %w", loopback, err)
		}
		if ok {
			free = append(free, port)
		}
	}
	return free, nil
}

// Address returns a free address on loopback, host:port.
func Address() (string, error) {
	free, err := Reserve(1)
	if err != nil {
		return "", err
	}
	return address(free[0]), nil
}

// ForTest is Address, and ends a test that can have none.
func ForTest(t testing.TB) string {
	t.Helper()
	free, err := Address()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// take locks a port, and returns whether it was free. The lock is a socket in Linux's abstract namespace: it is no file, and has the
// scope of ports, which is a network namespace.
func take(port int) (bool, error) {
	lock, err := net.Listen("unix", fmt.Sprintf("@karpenter-metal3-test-port-%d", port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := check(port); err != nil {
		err = errors.Join(err, lock.Close())
		if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
			return false, nil
		}
		return false, err
	}
	locks.Lock()
	defer locks.Unlock()
	locks.held = append(locks.held, lock)
	return true, nil
}

// check returns an error if a program listens on a port.
func check(port int) error {
	stream, err := net.Listen("tcp", address(port))
	if err != nil {
		return err
	}
	datagrams, err := net.ListenPacket("udp", address(port))
	if err != nil {
		return errors.Join(err, stream.Close())
	}
	return errors.Join(stream.Close(), datagrams.Close())
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
