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

	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	// readLimit is how many bodies are read at a time. It is large, so that an API server, which sends a body at once,
	// is never among the silent ones that are dropped first.
	readLimit = 1000
	// bytesLimit limits the bytes of large bodies in memory, from the first byte until the answer. The number of the
	// other bodies limits their bytes.
	bytesLimit = 64 << 20
	// bodyLimit is the largest body, in bytes: an API server sends two objects of 3 MiB.
	bodyLimit = 7 << 20
)

// bodies are read before a request takes one of the few places. So a client that sends nothing blocks nothing that
// another client needs. If there are too many bodies, the one that has been silent longest is dropped.
type bodies struct {
	// readers and bytes are the limits.
	readers int
	bytes   int64

	lock    sync.Mutex
	reading map[*body]struct{}
	held    int64
}

// body is the part of a request's body that has been read.
type body struct {
	bytes.Buffer
	elements
	heard time.Time
	// held is how many of its bytes count towards the limit.
	held int64
	// drop aborts the read.
	drop    func() error
	dropped bool
}

var (
	errBusy    = errors.New("too many requests are being read")
	errTooLong = fmt.Errorf("the body is longer than %d MiB", bodyLimit>>20)
	errTooMany = fmt.Errorf("the body has more than %d values", elementsLimit)
	errNoJSON  = errors.New("the body is not a JSON object")
)

// large reports whether the body needs so much memory that only one is decoded at a time.
func (b *body) large() bool { return b.Len() > largeBytes || b.count > largeElements }

// read reads the body of a request until the deadline of its context. Call end once the body is no longer needed.
func (b *bodies) read(w http.ResponseWriter, r *http.Request) (complete *body, err error) {
	connection := http.NewResponseController(w)
	deadline, _ := r.Context().Deadline()
	if err := connection.SetReadDeadline(deadline); err != nil {
		return nil, fmt.Errorf("limiting the time for the body, %w", err)
	}
	current := &body{heard: time.Now(), drop: func() error { return connection.SetReadDeadline(time.Unix(1, 0)) }}
	b.begin(current)
	defer func() {
		switch dropped := b.stop(current); {
		case dropped:
			err = errBusy
		case err == nil && !yaml.IsJSONBuffer(current.Bytes()):
			err = errNoJSON // it would be read as YAML, in which other signs make values
		case err == nil:
			// A deadline that has passed would cancel all later requests of the connection.
			err = connection.SetReadDeadline(time.Time{})
		}
		if err != nil {
			b.end(current)
			w.Header().Set("Connection", "close")
		}
	}()
	chunk := make([]byte, 32<<10)
	for {
		count, err := r.Body.Read(chunk)
		if current.elements.add(chunk[:count]); current.count > elementsLimit {
			return nil, errTooMany
		}
		if err := b.add(current, chunk[:count]); err != nil {
			return nil, err
		}
		switch {
		case errors.Is(err, io.EOF):
			return current, nil
		case err != nil:
			return nil, fmt.Errorf("reading the body, %w", err)
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
		b.dropSilent(func(*body) bool { return true })
	}
	b.reading[current] = struct{}{}
}

// stop ends the reading of a body: from now on it cannot be dropped. It reports whether it was dropped before.
func (b *bodies) stop(current *body) (dropped bool) {
	b.lock.Lock()
	defer b.lock.Unlock()
	delete(b.reading, current)
	return current.dropped
}

// end releases a body that is no longer needed.
func (b *bodies) end(current *body) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.free(current)
}

// free releases the bytes of a body. The caller must hold the lock.
func (b *bodies) free(current *body) {
	b.held -= current.held
	current.held, current.Buffer = 0, bytes.Buffer{}
}

// add appends a chunk to a body. If there is no room for a large body, it drops other large bodies.
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
	if current.Write(chunk); current.Len() <= largeBytes {
		return nil
	}
	b.held += int64(current.Cap()) - current.held
	current.held = int64(current.Cap())
	for b.held > b.bytes {
		if !b.dropSilent(func(other *body) bool { return other != current && other.held > 0 }) {
			return errBusy
		}
	}
	return nil
}

// dropSilent drops the body that has been silent longest, among the ones that among accepts. It reports false if there
// is none. The caller must hold the lock.
func (b *bodies) dropSilent(among func(*body) bool) bool {
	var silent *body
	for other := range b.reading {
		if among(other) && (silent == nil || other.heard.Before(silent.heard)) {
			silent = other
		}
	}
	if silent == nil {
		return false
	}
	delete(b.reading, silent)
	silent.dropped = true
	b.free(silent)
	return silent.drop() == nil
}
