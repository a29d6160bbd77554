// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints lines with the time since the start.
type progress struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

func newProgress(out io.Writer) *progress { return &progress{start: time.Now(), out: out} }

// say writes one line. Errors are ignored: the sandbox goes on without a reader.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, "+%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
