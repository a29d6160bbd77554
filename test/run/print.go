// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const modulePath = "github.com/karpenter-provider-metal3/karpenter-provider-metal3/"

// event is one of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	// ImportPath and FailedBuild are of packages that do not compile.
	ImportPath, FailedBuild string
	Elapsed                 float64
}

// printer prints the events for people, and counts the tests.
type printer struct {
	out     io.Writer
	now     func() time.Time
	start   time.Time
	started map[string]time.Time
	tests   map[string]*testsOf
	// builds are the messages of the compiler, by import path.
	builds map[string][]string
	// failures are the names of failed tests, and of packages that failed otherwise. A test's first lines are with its name: they mostly
	// say why, and are far up in a long log.
	failures                     []string
	passed, skipped, bad, system int
}

// testsOf are the tests of a package that has not ended.
type testsOf struct {
	since   map[string]time.Time
	output  map[string][]string
	ran     int
	skipped int
	system  int
	bad     int
	cached  bool
}

func newPrinter(out io.Writer, now func() time.Time) *printer {
	return &printer{out: out, now: now, start: now(), started: map[string]time.Time{}, tests: map[string]*testsOf{},
		builds: map[string][]string{}}
}

func (p *printer) failed() bool { return len(p.failures) > 0 }

// handle processes an event, and returns whether it has printed something.
func (p *printer) handle(e event) bool {
	if e.Package == "" {
		if e.Action == "build-output" {
			p.builds[e.ImportPath] = append(p.builds[e.ImportPath], e.Output)
		}
		return false
	}
	tests := p.tests[e.Package]
	if tests == nil {
		tests = &testsOf{since: map[string]time.Time{}, output: map[string][]string{}}
		p.tests[e.Package], p.started[e.Package] = tests, p.now()
	}
	switch e.Action {
	case "run", "cont":
		tests.since[e.Test] = p.now()
	case "pause":
		delete(tests.since, e.Test)
	case "output":
		tests.output[e.Test] = append(tests.output[e.Test], e.Output)
		tests.cached = tests.cached || e.Test == "" && strings.HasSuffix(e.Output, "\t(cached)\n")
	case "pass", "fail", "skip":
		if e.Test == "" {
			return p.endPackage(e, tests)
		}
		return p.endTest(e, tests)
	}
	return false
}

func (p *printer) endTest(e event, tests *testsOf) bool {
	delete(tests.since, e.Test)
	output := strings.Join(tests.output[e.Test], "")
	delete(tests.output, e.Test)
	switch {
	case e.Action == "skip" && strings.Contains(output, system.Skipped):
		tests.system++
	case e.Action == "skip":
		tests.ran++
		tests.skipped++
	case e.Action == "pass":
		tests.ran++
	default:
		tests.ran++
		tests.bad++
		p.failures = append(p.failures, short(e.Package)+": "+e.Test+firstLines(output))
		_, _ = fmt.Fprintf(p.out, "=== FAILED %s: %s (%s)\n%s", short(e.Package), e.Test, seconds(e.Elapsed), output)
		return true
	}
	return false
}

// reasonLines and reasonWidth, in bytes, bound what is repeated of a failed test.
const reasonLines, reasonWidth = 16, 400

// firstLines are the first lines that a test has written, each after a line break.
func firstLines(output string) (text string) {
	lines := 0
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "=== ") { // written by the testing package
			continue
		}
		if lines++; lines > reasonLines {
			break
		}
		text += "\n  " + strings.ToValidUTF8(line[:min(len(line), reasonWidth)], "")
		text = strings.TrimRight(text, "\n")
	}
	return text
}

func (p *printer) endPackage(e event, tests *testsOf) bool {
	defer delete(p.tests, e.Package)
	p.passed += tests.ran - tests.skipped - tests.bad
	p.skipped += tests.skipped
	p.bad += tests.bad
	p.system += tests.system
	switch {
	case e.Action == "fail":
		p.failPackage(e, tests)
	case tests.ran == 0:
		return false // it has no tests, or all are of the other tier
	default:
		_, _ = fmt.Fprintf(p.out, "ok     %8s  %s%s\n", took(e.Elapsed, tests.cached), short(e.Package), counts(tests))
	}
	return true
}

// failPackage prints why a package has failed, unless its tests have printed it.
func (p *printer) failPackage(e event, tests *testsOf) {
	if tests.bad == 0 {
		p.bad++
		p.failures = append(p.failures, short(e.Package))
		_, _ = fmt.Fprintf(p.out, "=== FAILED %s\n%s", short(e.Package), strings.Join(append(p.builds[e.FailedBuild], tests.output[""]...), ""))
		// A panic, or -timeout: the output of the test that was running has the reason.
		for test := range tests.since {
			_, _ = fmt.Fprintf(p.out, "=== %s was running:\n%s", test, strings.Join(tests.output[test], ""))
		}
	}
	_, _ = fmt.Fprintf(p.out, "FAILED %8s  %s%s\n", took(e.Elapsed, false), short(e.Package), counts(tests))
}

func counts(tests *testsOf) string {
	text := fmt.Sprintf(", %d tests", tests.ran)
	for _, other := range []struct {
		count int
		what  string
	}{{tests.bad, "failed"}, {tests.skipped, "skipped"}, {tests.system, "left to make test-system"}} {
		if other.count > 0 {
			text += fmt.Sprintf(", %d %s", other.count, other.what)
		}
	}
	return text
}

// running prints the packages that have not ended, those that have been running for long first, and their tests.
func (p *printer) running() {
	packages := make([]string, 0, len(p.tests))
	for name := range p.tests {
		packages = append(packages, name)
	}
	slices.SortFunc(packages, func(a, b string) int { return p.started[a].Compare(p.started[b]) })
	if len(packages) == 0 {
		_, _ = fmt.Fprintf(p.out, "...    %8s  compiling\n", p.since(p.start))
		return
	}
	for _, name := range packages {
		var tests []string
		since := p.tests[name].since
		for test := range since {
			if !strings.Contains(test, "/") {
				tests = append(tests, test)
			}
		}
		slices.SortFunc(tests, func(a, b string) int { return since[a].Compare(since[b]) })
		for n, test := range tests {
			tests[n] = fmt.Sprintf("%s for %s", test, p.since(since[test]))
		}
		_, _ = fmt.Fprintf(p.out, "...    %8s  %s is running: %s\n", p.since(p.started[name]), short(name), strings.Join(tests, ", "))
	}
}

// finish prints the result. CI reads the last line.
func (p *printer) finish() {
	for _, name := range p.failures {
		_, _ = fmt.Fprintln(p.out, "FAILED", name)
	}
	if p.system > 0 {
		_, _ = fmt.Fprintf(p.out, "%d other tests are left to make test-system\n", p.system)
	}
	_, _ = fmt.Fprintf(p.out, "DONE %d tests, %d skipped, %d failed in %s\n", p.passed+p.skipped+p.bad, p.skipped, p.bad, p.since(p.start))
}

func (p *printer) since(start time.Time) string { return seconds(p.now().Sub(start).Seconds()) }

func took(elapsed float64, cached bool) string {
	if cached {
		return "cached"
	}
	return seconds(elapsed)
}

// seconds is a time for people: 1m02s.
func seconds(s float64) string {
	if s < 60 {
		return fmt.Sprintf("%.1fs", s)
	}
	return fmt.Sprintf("%dm%02ds", int(s)/60, int(s)%60)
}

func short(importPath string) string { return strings.TrimPrefix(importPath, modulePath) }
