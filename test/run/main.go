// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Run runs `go test` for `make test` and `make test-system`: as many packages at a time as cores and memory allow. It
// prints each package when it has ended, each failed test with its output, and the running tests when nothing has ended
// for half a minute.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// silence is how long nothing may be printed before the running tests are.
const silence = 30 * time.Second

func main() {
	tier := flag.String("tier", "", `"test" for the tests that no call of system.Only marks, "system" for those that one marks, empty for all`)
	packages := flag.Int("p", 0, "packages at a time, 0 for as many as cores and memory allow")
	first := flag.String("first", "", "packages to start with, separated by commas")
	flags := flag.String("flags", "", "more flags of go test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	failed, err := run(ctx, os.Stdout, options{
		tier: *tier, packages: *packages, first: strings.FieldsFunc(*first, func(r rune) bool { return r == ',' }),
		flags: strings.Fields(*flags), patterns: patterns,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	if failed || err != nil {
		stop()
		os.Exit(1) //nolint:gocritic // the signals are not caught any more
	}
}

type options struct {
	tier                   string
	packages               int
	first, flags, patterns []string
}

// run runs the tests and returns whether one has failed. An error means that they could not be run.
func run(ctx context.Context, out io.Writer, o options) (failed bool, err error) {
	if o.packages == 0 {
		m := thisMachine()
		o.packages = m.packages()
		_, _ = fmt.Fprintf(out, "%d packages at a time, for %s\n", o.packages, m)
	}
	arguments, err := o.arguments(ctx)
	if err != nil {
		return false, err
	}
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Stderr = os.Stderr
	// SIGTERM first: tests must stop the programs that they have started.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	output, err := command.StdoutPipe()
	if err != nil {
		return false, fmt.Errorf("connecting to go test, %w", err)
	}
	if err := command.Start(); err != nil {
		return false, fmt.Errorf("starting go test, %w", err)
	}
	p := newPrinter(out, time.Now)
	read(output, p)
	err = command.Wait()
	p.finish()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return true, fmt.Errorf("running go test, %w", err)
	}
	return err != nil || p.failed(), ctx.Err()
}

// arguments are those of go.
func (o options) arguments(ctx context.Context) ([]string, error) {
	arguments := append([]string{"test", "-json", "-p", strconv.Itoa(o.packages)}, o.flags...)
	switch o.tier {
	case "":
		return append(append(arguments, o.first...), o.patterns...), nil
	case "test":
		return append(append(append(arguments, "-short"), o.first...), o.patterns...), nil
	case "system":
		marked, err := markedIn(ctx, o.first, o.patterns)
		if err != nil {
			return nil, err
		}
		return append(append(arguments, "-run="+marked.expression()), marked.packages()...), nil
	}
	return nil, fmt.Errorf(`-tier is %q: it must be "test", "system", or empty`, o.tier)
}

// read passes the events of go test to the printer, until it ends.
func read(output io.Reader, p *printer) {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		reader := bufio.NewReader(output)
		for {
			line, err := reader.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		select {
		case line, open := <-lines:
			if !open {
				return
			}
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				_, _ = fmt.Fprintf(p.out, "%s", line) // not an event, but perhaps an error message
				continue
			}
			if p.handle(e) {
				timer.Reset(silence)
			}
		case <-timer.C:
			p.running()
			timer.Reset(silence)
		}
	}
}

const gibibyte = 1 << 30

// perPackage is the memory that a package may need: a sandbox has two control planes, and its packages are linked meanwhile.
const perPackage = 3 * gibibyte

// machine has the resources for tests.
type machine struct {
	cores  int
	memory int64
}

// thisMachine has the cores and the memory that this process may use.
func thisMachine() machine {
	m := machine{cores: runtime.GOMAXPROCS(0)}
	if content, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.memory = memTotal(string(content))
	}
	if content, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil { // or it is "max"
			m.memory = min(m.memory, limit)
		}
	}
	return m
}

// memTotal returns the memory in /proc/meminfo, in bytes; 0 if it cannot be parsed.
func memTotal(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "MemTotal:" {
			kibibytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kibibytes << 10
		}
	}
	return 0
}

// packages is how many packages to test at a time: one more than there are cores, because the longest ones wait most of the
// time, if the memory allows it, and never less than two.
func (m machine) packages() int {
	return max(2, min(m.cores+1, int(m.memory/perPackage)))
}

func (m machine) String() string {
	return fmt.Sprintf("%d cores and %d GiB of memory", m.cores, m.memory/gibibyte)
}
