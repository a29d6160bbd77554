// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package web serves HTTP on a free port of loopback, for as long as a test wants.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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

// Start begins to serve.
func Start(handler http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on loopback, %w", err)
	}
	s := &Server{
		URL:    "http://" + listener.Addr().String(),
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
