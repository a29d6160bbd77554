// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// line is a TCP connection to an API server that can be cut.
type line struct {
	t        *testing.T
	target   string
	listener net.Listener

	mu   sync.Mutex
	down bool
	open map[net.Conn]struct{}
	wait sync.WaitGroup
}

func newLine(t *testing.T) *line {
	t.Helper()
	server, err := url.Parse(environment.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, target: server.Host, listener: listener, open: map[net.Conn]struct{}{}}
	l.wait.Add(1)
	go l.serve()
	t.Cleanup(func() {
		_ = listener.Close() // ends serve
		l.cut()
		l.wait.Wait()
	})
	return l
}

// config reaches the API server over the line.
func (l *line) config() *rest.Config {
	config := rest.CopyConfig(environment.Config)
	config.Host = "https://" + l.listener.Addr().String()
	return config
}

// cut ends all connections and lets no other through.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for connection := range l.open {
		_ = connection.Close() // what the test is about
	}
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *line) serve() {
	defer l.wait.Done()
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.target)
		if err != nil || !l.keep(from, to) {
			_ = from.Close() // the client sees a connection that breaks
			if err == nil {
				_ = to.Close()
			}
			continue
		}
		l.wait.Add(2)
		go l.copy(to, from)
		go l.copy(from, to)
	}
}

// keep remembers connections so that they can be cut, and reports false if the line is cut already.
func (l *line) keep(connections ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, connection := range connections {
		if !l.down {
			l.open[connection] = struct{}{}
		}
	}
	return !l.down
}

func (l *line) copy(to, from net.Conn) {
	defer l.wait.Done()
	_, _ = io.Copy(to, from) // ends when either side does
	_, _ = to.Close(), from.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, from)
}
