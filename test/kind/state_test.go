// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// watched calls a function with what is written.
type watched struct {
	bytes.Buffer
	written func(string)
}

func (w *watched) Write(content []byte) (int, error) {
	w.written(string(content))
	return w.Buffer.Write(content)
}

// TestLockOfKilledProcess: a kind that outlives the process that has started it makes containers, which Down would not find.
func TestLockOfKilledProcess(t *testing.T) {
	config := Config{Dir: t.TempDir(), Out: &bytes.Buffer{}}
	unlock, err := New(config).lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	started := exec.Command("cat")
	input, err := started.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := started.Start(); err != nil {
		t.Fatal(err)
	}
	unlock() // as the kernel does it for a process that was killed

	ctx, cancel := context.WithCancel(t.Context())
	config.Out = &watched{written: func(text string) {
		if strings.Contains(text, "waiting until another kind-env in "+config.Dir+" has ended, with what it has started") {
			cancel()
		}
	}}
	if _, err := New(config).lock(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("while the command that was started runs, the folder is locked: %v", err)
	}
	config.Out = &watched{written: func(string) { _ = input.Close() }}
	if unlock, err = New(config).lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := started.Wait(); err != nil {
		t.Error(err)
	}
}
