// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// readLimit is how many bodies are read at a time. It is so large that an API server, which sends a body at once, is never among the
	// silent ones that are dropped first.
	readLimit = 1000
	// bytesLimit is how many bytes of bodies are held, from the first byte until the answer.
	bytesLimit = 64 << 20
	// bodyLimit is how long a body may be: an API server sends two objects of 3 MiB.
	bodyLimit = 7 << 20
)

// bodies are read before a request takes one of the few places, so that a client that sends nothing holds nothing that another needs.
// When there are too many, the one is dropped that has been silent longest.
type bodies struct {
	// readers, bytes and how long each body may take are the limits.
	readers int
	bytes   int64
	timeout time.Duration

	lock    sync.Mutex
	reading map[*body]struct{}
	held    int64
}

// body is what has been read of one request.
type body struct {
	bytes.Buffer
	heard time.Time
	// drop ends the read.
	drop    func() error
	dropped bool
}

var (
	errBusy    = errors.New("too many requests are being read")
	errTooLong = fmt.Errorf("the body is longer than %d MiB", bodyLimit>>20)
)

// read returns the body of a request, and what to call once it is not needed any more.
func (b *bodies) read(w http.ResponseWriter, r *http.Request) (release func(), err error) {
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(time.Now().Add(b.timeout)); err != nil {
		return nil, fmt.Errorf("limiting the time for the body, %w", err)
	}
	current := &body{heard: time.Now(), drop: func() error { return connection.SetReadDeadline(time.Unix(1, 0)) }}
	b.begin(current)
	defer func() {
		if b.stop(current); err != nil {
			b.end(current)
		}
	}()
	chunk := make([]byte, 32<<10)
	for {
		count, err := r.Body.Read(chunk)
		if err := b.add(current, chunk[:count]); err != nil {
			return nil, err
		}
		switch {
		case errors.Is(err, io.EOF):
			r.Body = io.NopCloser(&current.Buffer)
			return func() { b.end(current) }, nil
		case err != nil:
			return nil, b.reason(current, err)
		}
	}
}

func (b *bodies) begin(current *body) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.reading == nil {
		b.reading = map[*body]struct{}{}
	}
	if len(b.reading) >= b.readers {
		b.dropSilent(nil)
	}
	b.reading[current] = struct{}{}
}

// stop says that the body is not being read any more: from now on it cannot be dropped.
func (b *bodies) stop(current *body) {
	b.lock.Lock()
	defer b.lock.Unlock()
	delete(b.reading, current)
}

// end says that the body is not needed any more.
func (b *bodies) end(current *body) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.held -= int64(current.Cap())
	current.Buffer = bytes.Buffer{}
}

// add adds what has been read. Other bodies are dropped if there is no room for it.
func (b *bodies) add(current *body, chunk []byte) error {
	b.lock.Lock()
	defer b.lock.Unlock()
	switch {
	case current.dropped:
		return errBusy
	case len(chunk) == 0:
		return nil
	case current.Len()+len(chunk) > bodyLimit:
		return errTooLong
	}
	current.heard = time.Now()
	before := current.Cap()
	current.Write(chunk)
	for b.held += int64(current.Cap() - before); b.held > b.bytes; {
		if !b.dropSilent(current) {
			return errBusy
		}
	}
	return nil
}

// dropSilent drops the body of which nothing has come for longest, but not this one. It returns false if there is none. The lock must be
// held.
func (b *bodies) dropSilent(except *body) bool {
	var silent *body
	for other := range b.reading {
		if other != except && (silent == nil || other.heard.Before(silent.heard)) {
			silent = other
		}
	}
	if silent == nil {
		return false
	}
	delete(b.reading, silent)
	silent.dropped = true
	b.held -= int64(silent.Cap())
	silent.Buffer = bytes.Buffer{}
	return silent.drop() == nil
}

// reason is why a body could not be read.
func (b *bodies) reason(current *body, err error) error {
	b.lock.Lock()
	defer b.lock.Unlock()
	if current.dropped {
		return errBusy
	}
	return fmt.Errorf("reading the body, %w", err)
}
