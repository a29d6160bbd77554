// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"
)

// waitLimit is how many requests wait for a place.
const waitLimit = 1000

// answerTimeout is how long a request may take from its headers to the answer. The API server waits longer.
const answerTimeout = 4 * time.Second

// Callers decides which requests are answered, and how many at a time.
type Callers struct {
	// Authority signs the certificates of the accepted clients. Nil: every client is accepted.
	Authority *x509.CertPool
	// Names are the accepted common names of certificates. Empty: all certificates of the authority.
	Names []string

	timeout time.Duration
	bodies  bodies
	// large bodies share one place, in addition to one of the turns.
	large, turns turns
}

// NewCallers returns Callers that answer at most atOnce requests at a time. file has the authority of client
// certificates; it may be empty. The error names the file.
func NewCallers(file string, names []string, atOnce int) (*Callers, error) {
	callers := &Callers{Names: names, timeout: answerTimeout, bodies: bodies{readers: readLimit, bytes: bytesLimit},
		large: turns{free: 1, limit: waitLimit}, turns: turns{free: atOnce, limit: waitLimit}}
	if file == "" {
		return callers, nil
	}
	authority, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the clients, %w", err)
	}
	callers.Authority = x509.NewCertPool()
	if !callers.Authority.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("reading the authority of the clients, %s has no certificate", file)
	}
	return callers, nil
}

// TLS asks clients for their certificate. The handler refuses a client without one: the readiness probe has none.
func (c *Callers) TLS(config *tls.Config) {
	if c.Authority != nil {
		config.ClientCAs, config.ClientAuth = c.Authority, tls.VerifyClientCertIfGiven
	}
}

// Limit returns a handler that refuses other callers, and callers beyond the limit. When leaving ends, it closes
// connections, so that clients that keep theirs go to another replica.
func (c *Callers) Limit(leaving context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		if err := c.admit(r); err != nil {
			refused.WithLabelValues("certificate").Inc()
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		ctx, stop := context.WithTimeout(r.Context(), c.timeout)
		defer stop()
		client := ""
		if !isCertified(r) {
			client = addressOf(r)
		}
		r = r.WithContext(context.WithValue(ctx, clientKey{}, client))
		current, err := c.bodies.read(w, r)
		if err != nil {
			refuse(w, err)
			return
		}
		defer c.bodies.end(current)
		lines := []*turns{&c.turns}
		if current.large() {
			lines = []*turns{&c.large, &c.turns}
		}
		source := sourceOf(r, current.Bytes())
		for _, line := range lines {
			if !line.take(ctx, source) {
				refuse(w, errBusy)
				return
			}
			defer line.give()
		}
		r.Body = io.NopCloser(&current.Buffer)
		next.ServeHTTP(w, r)
	})
}

func (c *Callers) admit(r *http.Request) error {
	if c.Authority == nil {
		return nil
	}
	if !isCertified(r) {
		return errors.New("this webhook answers clients with a certificate of the authority in --client-ca-file")
	}
	if name := r.TLS.VerifiedChains[0][0].Subject.CommonName; len(c.Names) > 0 && !slices.Contains(c.Names, name) {
		return fmt.Errorf("the client certificate is of %q, which is none of --client-names", name)
	}
	return nil
}

func isCertified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// refuse answers a request without looking at it.
func refuse(w http.ResponseWriter, err error) {
	status, reason := http.StatusBadRequest, "body"
	switch {
	case errors.Is(err, errBusy):
		status, reason = http.StatusTooManyRequests, "busy"
	case errors.Is(err, errTooLong), errors.Is(err, errTooMany):
		status = http.StatusRequestEntityTooLarge
	}
	refused.WithLabelValues(reason).Inc()
	http.Error(w, err.Error(), status)
}

// sourceOf returns the source whose turn a request takes. All tenants come through the API server, so their namespaces
// take turns if a certificate proves that the body is the API server's. Others could name any namespace: each address
// has one turn.
func sourceOf(r *http.Request, review []byte) string {
	if isCertified(r) {
		named := struct{ Request struct{ Namespace string } }{}
		if json.Unmarshal(review, &named) == nil {
			return "namespace " + named.Request.Namespace
		}
	}
	return addressOf(r)
}

// addressOf returns the address of the client, without the port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
