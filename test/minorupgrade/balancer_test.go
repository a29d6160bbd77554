// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package minorupgrade

import (
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// balance has an address lead to several others until the test ends. Each connection gets any of those that accept it: by turns, clients
// that connect in step would always get the same.
func balance(t *testing.T, address string, backends []string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	dial := func() net.Conn {
		for _, i := range rand.Perm(len(backends)) {
			if connection, err := net.Dial("tcp", backends[i]); err == nil {
				return connection
			}
		}
		return nil
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			go func() {
				defer func() { _ = client.Close() }()
				server := dial()
				if server == nil {
					return
				}
				go func() {
					defer func() { _ = server.Close() }()
					_, _ = io.Copy(server, client)
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
}
