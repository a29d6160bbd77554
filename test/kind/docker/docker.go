// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docker runs the docker command for the programs and tests of test/kind.
package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// program is found in PATH.
var program = "docker"

// Check returns an error if there is no docker command, or if its daemon does not answer.
func Check(ctx context.Context) error {
	_, err := Run(ctx, "version", "--format", "{{.Server.Version}}")
	return err
}

// Run runs docker and returns its standard output, without space at the end. An error is one sentence with what docker
// printed on standard error.
func Run(ctx context.Context, args ...string) (string, error) {
	return Feed(ctx, nil, args...)
}

// Feed is Run with a standard input.
func Feed(ctx context.Context, input io.Reader, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	var output, problems bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = input, &output, &problems
	err := command.Run()
	switch {
	case err == nil:
		return strings.TrimSpace(output.String()), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("the command docker is not in PATH: install Docker, and start its daemon")
	case ctx.Err() != nil:
		return "", fmt.Errorf("running docker %s, %w", args[0], context.Cause(ctx))
	}
	return "", fmt.Errorf("docker %s has failed, %w: %s", args[0], err, explain(problems.String()))
}

// explain makes one line of what docker printed, without the hint at its help.
func explain(problems string) string {
	var lines []string
	for line := range strings.Lines(problems) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "See 'docker ") && !strings.HasPrefix(line, "Run 'docker ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// Tail returns the end of a container's log: standard output and standard error, each line indented.
func Tail(ctx context.Context, container string, lines int) string {
	output, err := exec.CommandContext(ctx, program, "logs", "--tail", strconv.Itoa(lines), container).CombinedOutput()
	if err != nil {
		return "  (no log: " + explain(string(output)) + ")"
	}
	return "  " + strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", "\n  ")
}

// IsRunning returns whether a container runs. One that does not exist is not an error.
func IsRunning(ctx context.Context, container string) (bool, error) {
	names, err := Run(ctx, "ps", "--filter", "name=^/"+container+"$", "--format", "{{.Names}}")
	return names != "", err
}
