// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package web serves HTTP, on a free port of loopback or for other machines, for as long as a test wants.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// closeTimeout bounds the requests that are under way when a server is closed. Then their connections are closed.
const closeTimeout = 2 * time.Second

// A Server runs until it is closed.
type Server struct {
	// URL of the server, without a path.
	URL string

	server *http.Server
	ended  chan error
}

// Loopback is the host for clients on this machine.
const Loopback = "127.0.0.1"

// Start begins to serve at a free port. The host is the name or address of this machine in the URL. For another host than Loopback
// all addresses of the machine are served.
func Start(host string, handler http.Handler) (*Server, error) {
	address := ""
	if host == Loopback {
		address = Loopback
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening for HTTP, %w", err)
	}
	s := &Server{
		URL:    "http://" + net.JoinHostPort(host, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)),
		server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, ended: make(chan error, 1),
	}
	go func() { s.ended <- s.server.Serve(listener) }()
	return s, nil
}

// Close stops the server and waits until it has ended. It does nothing for a Server that was not started.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), closeTimeout)
	defer stop()
	if err := s.server.Shutdown(ctx); err != nil {
		err = s.server.Close()
		if err != nil {
			return fmt.Errorf("closing the server at %s, %w", s.URL, err)
		}
	}
	if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving at %s, %w", s.URL, err)
	}
	return nil
}
