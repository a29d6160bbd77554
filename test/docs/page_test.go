// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
)

func root(parts ...string) string { return filepath.Join(append([]string{"..", ".."}, parts...)...) }

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(root(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// blocks are the fenced blocks of a page.
func blocks(t *testing.T, path string) []page.Block {
	t.Helper()
	return page.Blocks(read(t, path))
}

// step is a command and its output; shown is whether the page has the output.
type step struct {
	command string
	output  []string
	shown   bool
}

var hereDocument = regexp.MustCompile(`<<'?(\w+)'?`)

// steps are the commands of a console block.
func steps(b page.Block) ([]step, error) {
	if !strings.Contains("\n"+strings.Join(b.Lines, "\n"), "\n$ ") {
		return []step{{command: strings.Join(b.Lines, "\n")}}, nil
	}
	var all []step
	until := ""
	more := false
	for _, line := range b.Lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case more || until != "":
			last := &all[len(all)-1]
			last.command += "\n" + line
			if until == "" || line == until {
				until, more = "", until == "" && strings.HasSuffix(line, `\`)
			}
		case isCommand:
			all = append(all, step{command: command, shown: true})
			more = strings.HasSuffix(line, `\`)
		case len(all) == 0:
			return nil, fmt.Errorf("output without a command: %s", line)
		default:
			all[len(all)-1].output = append(all[len(all)-1].output, line)
		}
		if begin := hereDocument.FindStringSubmatch(line); begin != nil && (isCommand || more) {
			until, more = begin[1], false
		}
	}
	return all, nil
}

// matches compares output with that of the page: ... matches anything in a line, and alone on a line any lines.
func matches(got, want []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "..." {
		for skip := 0; skip <= len(got); skip++ {
			if matches(got[skip:], want[1:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && matchesLine(got[0], want[0]) && matches(got[1:], want[1:])
}

func matchesLine(got, want string) bool {
	var pattern strings.Builder
	for i, part := range strings.Split(strings.Join(strings.Fields(want), " "), "...") {
		if i > 0 {
			pattern.WriteString(".*")
		}
		pattern.WriteString(regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + pattern.String() + "$").MatchString(strings.Join(strings.Fields(got), " "))
}

func TestMatches(t *testing.T) {
	cases := map[string]struct {
		reason    string
		got, want string
		matches   bool
	}{
		"Same":        {"Runs of blanks match one blank.", "NAME   AGE\nx 5s", "NAME AGE\nx  5s", true},
		"Word":        {"A part of a line may be anything.", "x 5s ago", "x ... ago", true},
		"WordOther":   {"The rest of it may not.", "x 5s from now", "x ... ago", false},
		"Lines":       {"Lines may be left out.", "a\nb\nc\nd", "a\n...\nd", true},
		"NoLines":     {"... also matches no line.", "a\nd", "a\n...\nd", true},
		"More":        {"Additional lines do not match.", "a\nb", "a", false},
		"Fewer":       {"Missing lines do not match.", "a", "a\nb", false},
		"Punctuation": {"The page's output is not a regular expression.", "axb", "a.b", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := matches(strings.Split(tc.got, "\n"), strings.Split(tc.want, "\n")); got != tc.matches {
				t.Errorf("%s\nmatches is %t", tc.reason, got)
			}
		})
	}
}

func TestSteps(t *testing.T) {
	all, err := steps(page.Block{Lines: []string{"$ kubectl apply -f - <<EOF", "a: 1", "EOF", "applied", "$ one \\", "  two", "$ three"}})
	if err != nil || len(all) != 3 {
		t.Fatalf("%d steps, %v", len(all), err)
	}
	if all[0].command != "kubectl apply -f - <<EOF\na: 1\nEOF" || len(all[0].output) != 1 || all[1].command != "one \\\n  two" ||
		all[2].command != "three" {
		t.Errorf("steps are %+v", all)
	}
}
