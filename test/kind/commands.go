// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// run runs a program and returns its standard output. An error is one sentence, with the last line that the program has printed as an
// error.
func (w *Environment) run(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	// kind is told to stop, and ends its own children.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	name := filepath.Base(program)
	switch {
	case err == nil:
		return strings.TrimSpace(output.String()), nil
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("there is no %s: `make kind-up` builds it", program)
	case ctx.Err() != nil:
		return "", fmt.Errorf("running %s %s, %w", name, args[0], context.Cause(ctx))
	}
	log := w.path("logs", name+".log")
	content := fmt.Sprintf("%s %s\n%s%s\n", name, strings.Join(args, " "), output.Bytes(), problems.Bytes())
	if file, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		_, _ = file.WriteString(content)
		_ = file.Close()
	}
	return "", fmt.Errorf("%s %s has failed, %w: %s (all of its output is in %s)", name, strings.Join(args[:min(2, len(args))], " "), err,
		lastError(problems.String()), log)
}

// lastError is the line that says why: the last one that begins as an error, otherwise the last one.
func lastError(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	why := lines[len(lines)-1]
	for _, line := range lines {
		if strings.HasPrefix(strings.ToLower(line), "error") {
			why = line
		}
	}
	return strings.TrimSpace(why)
}

// kind runs kind, which must not touch the user's own kubeconfig: commands that write one are given its path.
func (w *Environment) kind(ctx context.Context, args ...string) (string, error) {
	return w.run(ctx, w.config.Kind, args...)
}

// kubectl runs kubectl as an administrator of one of the clusters.
func (w *Environment) kubectl(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	return w.run(ctx, w.bin("kubectl"), append(args, "--kubeconfig="+kubeconfig)...)
}
