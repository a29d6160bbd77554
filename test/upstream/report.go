// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A Spec is how one spec of the suite ended.
type Spec struct {
	// Name is the texts of the spec's containers and its own, from the outermost one.
	Name string
	// Passed is whether the spec passed.
	Passed bool
	// Took is how long it ran, its clean-up included.
	Took time.Duration
	// Failure is the failed expectation; empty if it passed.
	Failure string
}

// ginkgoReport has the fields of ginkgo's report that are used.
type ginkgoReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct {
			Message  string
			Location struct {
				FileName   string
				LineNumber int
			}
		}
	}
}

// readReport returns the specs that ran, in the order of their names.
func readReport(path string) ([]Spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the suite's report, %w", err)
	}
	var reports []ginkgoReport
	if err := json.Unmarshal(content, &reports); err != nil {
		return nil, fmt.Errorf("parsing the suite's report, %w", err)
	}
	var specs []Spec
	for _, report := range reports {
		for _, from := range report.SpecReports {
			if from.LeafNodeType != "It" || from.State == "skipped" || from.State == "pending" {
				continue
			}
			spec := Spec{
				Name:   strings.Join(append(slices.Clone(from.ContainerHierarchyTexts), from.LeafNodeText), " "),
				Passed: from.State == "passed", Took: from.RunTime,
			}
			if !spec.Passed {
				file := from.Failure.Location.FileName
				spec.Failure = fmt.Sprintf("%s, at %s:%d: %s", from.State, file[strings.LastIndex(file, "/")+1:], from.Failure.Location.LineNumber,
					from.Failure.Message)
			}
			specs = append(specs, spec)
		}
	}
	slices.SortFunc(specs, func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })
	return specs, nil
}

// Print writes a table of the specs, the unexpected failures, and the known failures that pass now. It returns the
// number of unexpected failures.
func Print(out io.Writer, specs []Spec) int {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "RESULT\tTOOK\tSPEC")
	passed := 0
	var unexpected, mended []Spec
	for _, spec := range specs {
		result := "passed"
		_, known := Known[spec.Name]
		switch {
		case spec.Passed && known:
			mended = append(mended, spec)
		case !spec.Passed && known:
			result = "known"
		case !spec.Passed:
			result = "FAILED"
			unexpected = append(unexpected, spec)
		}
		if spec.Passed {
			passed++
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", result, spec.Took.Round(time.Second), spec.Name)
	}
	_ = table.Flush()
	for _, spec := range unexpected {
		_, _ = fmt.Fprintf(out, "\nFAILED: %s\n  %s\n", spec.Name, strings.ReplaceAll(strings.TrimSpace(spec.Failure), "\n", "\n  "))
	}
	for _, spec := range mended {
		_, _ = fmt.Fprintf(out, "\npasses now, take it out of the known failures and of docs/conformance.md: %s\n", spec.Name)
	}
	_, _ = fmt.Fprintf(out, "\n%d specs, %d passed, %d failed as known, %d failed otherwise\n",
		len(specs), passed, len(specs)-passed-len(unexpected), len(unexpected))
	return len(unexpected)
}

// Known are the specs that do not pass, by name, with the reason in one sentence. docs/conformance.md has the same list.
var Known = map[string]string{
	"Drift NodePool Drift NodeRequirements": "the pool is changed to require spot capacity, which bare-metal servers do not have",
	"Repair force-terminates a drain-blocked unhealthy node": "pods do not delay the repair of a server that is broken, and the spec wants " +
		"the minute that its NodePool gives them",
}
